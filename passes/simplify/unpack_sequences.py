"""Lets ops read the tensors of a sequence, where it is known which these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import Shape

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .constants.shapes import take_inferred_shapes
from .decompositions.builder import Builder, put_in_place

_INSERT = "SequenceInsert"
_READERS = ("SequenceAt", "SequenceLength", "ConcatFromSequence")


@dataclass(frozen=True)
class UnpackSequences(Pass):
    """Lets ops read the tensors of a sequence, where it is known which these are; a sequence has no grid.

    Exporters of PyTorch write one for a split or a chunk, and for a list that a loop adds to. A
    SplitToSequence becomes a Split, and a ConcatFromSequence a Concat, of what a SequenceConstruct or
    SequenceInserts have put together. Where a sequence comes from a loop, a body or an input, or data decides
    about its length or the place, it stays. What is constant then is for ``fold-constants``.
    """

    name = "unpack-sequences"
    stage = Stage.FLOAT

    def run(self, model: Model, context: PassContext) -> None:
        rewriter, before = Rewriter(model), model.epoch
        for graph in model.graph.walk():
            for op in graph.ops():
                if op.is_type("SplitToSequence"):
                    _split(rewriter, op)
            for op in graph.ops():
                if op.is_type(*_READERS):
                    _unpack(rewriter, op)
        if model.epoch != before:
            with rewriter.action("infer shapes", model.graph.values()[0]):
                take_inferred_shapes(rewriter, model.graph, lower(model))


def _unpack(rewriter: Rewriter, op: Op) -> None:
    """Lets those that read what an op takes of a sequence read its tensors."""
    (result,), tensors = op.outputs, _tensors(op.inputs[0])
    place = _place(op, len(tensors)) if tensors and op.is_type("SequenceAt") else None
    if result is None or not tensors or (op.is_type("SequenceAt") and place is None):
        return
    with rewriter.action("read the tensors", op):
        build, kind = Builder(rewriter, op), tensors[0].type.elem_type or None
        if place is not None:
            made = build.op("Identity", tensors[place], shape=tensors[place].type.shape, type=kind)
        elif op.is_type("SequenceLength"):
            count = build.constant(np.array(len(tensors)), "length")
            made = build.op("Identity", count, shape=(), type=count.type.elem_type)
        else:
            made = _joined(build, op, tensors, result.type.shape)
        put_in_place(rewriter, result, made)
        rewriter.erase_op(op)


def _joined(build: Builder, op: Op, tensors: Sequence[Value], shape: Shape | None) -> Value:
    axis = op.attribute("axis")
    if op.attribute("new_axis", 0):
        tensors = [build.unsqueeze(tensor, [axis], None) for tensor in tensors]
    return build.op("Concat", *tensors, shape=shape, type=tensors[0].type.elem_type or None, axis=axis)


def _tensors(sequence: Value | None) -> list[Value] | None:
    """The tensors of a sequence; None if it is not known which these are."""
    edits, op = list[Op](), _producer(sequence)
    while op is not None and op.is_type("Identity", _INSERT, "SequenceErase"):
        edits.append(op)
        op = _producer(op.inputs[0])
    if op is None or not op.is_type("SequenceConstruct", "SequenceEmpty"):
        return None
    tensors = [value for value in op.inputs if value is not None]
    return tensors if all(_edit(tensors, edit) for edit in reversed(edits)) else None


def _producer(value: Value | None) -> Op | None:
    return value.producer if value is not None else None


def _edit(tensors: list[Value], op: Op) -> bool:
    """Does what a SequenceInsert or SequenceErase does; whether it is known where."""
    if op.is_type("Identity"):
        return True
    place, added = _place(op, len(tensors)), op.inputs[1] if op.is_type(_INSERT) else None
    if place is None:
        return False
    tensors[place : place + (added is None)] = [added] if added is not None else []
    return True


def _place(op: Op, count: int) -> int | None:
    """The place in a sequence of ``count`` tensors that an op is about; None if data decides about it."""
    is_insert = op.is_type(_INSERT)
    given, last = (*op.inputs, None)[1 + is_insert], count - (not is_insert)
    data = fixed_constant(given)
    if given is not None and (data is None or data.size != 1):
        return None
    place = int(data.numpy().item()) if data is not None else last
    place += count * (place < 0)
    return place if 0 <= place <= last else None


def _split(rewriter: Rewriter, op: Op) -> None:
    """Writes a SplitToSequence as ops that make its parts, and a sequence of them."""
    (sequence,), data = op.outputs, op.inputs[0]
    lengths, axis = _lengths(op), op.attribute("axis", 0)
    if data is None or sequence is None or not lengths or not _is_unpacked(sequence, len(lengths)):
        return
    with rewriter.action("split into tensors", op):
        build = Builder(rewriter, op)
        if op.num_inputs > 1 or op.attribute("keepdims", 1):
            parts = build.parts(data, lengths, axis % len(data.type.shape or ()))
        else:
            parts = [_row(build, data, axis, place) for place in range(len(lengths))]
        put_in_place(rewriter, sequence, build.op("SequenceConstruct", *parts, shape=None))
        rewriter.erase_op(op)


def _is_unpacked(sequence: Value, count: int) -> bool:
    """Whether something that reads a sequence of ``count`` tensors is about places that are known."""
    readers = [use.op for use in sequence.uses]
    known = ("ConcatFromSequence", "Identity", "SequenceLength", "SequenceErase", _INSERT)
    at_known = (_place(op, count) is not None for op in readers if op.is_type("SequenceAt"))
    return any(op.is_type(*known) for op in readers) or any(at_known)


def _row(build: Builder, data: Value, axis: int, place: int) -> Value:
    index = build.constant(np.array(place), "place")
    return build.op("Gather", data, index, shape=None, type=data.type.elem_type, axis=axis)


def _lengths(op: Op) -> list[int]:
    """The lengths of the parts that a SplitToSequence makes; none if they are not known."""
    data, given = (*op.inputs, None)[:2]
    shape, axis = data.type.shape if data is not None else None, op.attribute("axis", 0)
    asked = fixed_constant(given)
    if shape is None or not -len(shape) <= axis < len(shape) or (given is not None and asked is None):
        return []
    if asked is not None and asked.shape:
        return [int(length) for length in asked.numpy()]
    length, part = shape[axis], int(asked.numpy().item()) if asked is not None else 1
    if not isinstance(length, int) or part < 1:
        return []
    return [min(part, length - begin) for begin in range(0, length, part)]
