"""Removes ops that return their input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qc.ir.facts.constants import fixed_constant
from qc.ir.facts.op_traits import trains
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import Shape

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .identities.copies import narrow_shapes
from .identities.dropouts import advice
from .identities.lengths import keeps_lengths
from .identities.pools import needless_attributes
from .identities.reshapes import asks_for_all_lengths, is_taken_back, unshaped
from .identities.shifts import is_needless_shift
from .identities.transposes import detour_before

# The number that changes nothing; as the second operand where order counts.
_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0, "Max": -math.inf, "Min": math.inf}
_COMMUTATIVE = ("Add", "Mul", "Max", "Min")


@dataclass(frozen=True)
class EliminateIdentity(Pass):
    """Removes Identity, inference-time Dropout, casts and reshapes to what a tensor is, and Concat of one.

    So are a Gather of all there is along its axis, in its order, and a sum with 0, a product by 1, a maximum
    with -infinity and the like, of constants of one number; that a sum of -0 and 0 is 0 is not kept.
    So is an Expand, where all that reads its copies would make them itself: elementwise ops whose other
    operands are as long, and what computes numbers for these alone, as for the mask of a mean over words.
    A Slice of all there is goes as well, of a length that is known, and so do an Expand, a Tile and a Resize
    to the lengths that are.
    And so are a Transpose and one that takes it back, with elementwise ops between them or none. Of two
    reshapes the first one goes, or both, if the second one takes it back.
    A maximum of each row is not taken off what only a Softmax reads, which takes it off itself.
    An AveragePool loses attributes that change nothing, such as dilations of 1.
    Constants without a number, with which some exports begin a state, and Slices of nothing, of which rotary
    embeddings of whole heads have some, are taken out of a Concat. An identity
    that joins a graph input or an initializer to a graph output stays: without it the output would need
    another name.

    A Dropout that drops numbers where an input of the model says so stays, with a note on ``--fix-input``.
    """

    name = "eliminate-identity"
    stage = Stage.FLOAT

    def run(self, model: Model, context: PassContext) -> None:
        rewriter, advised = Rewriter(model), dict[str, None]()
        for graph in model.graphs():
            for op in graph.ops():
                narrow = narrow_shapes(op) if op.is_type("Expand") else None
                source = _returned(op)
                detour = detour_before(op) if op.is_type("Transpose") else None
                if detour is not None:
                    with rewriter.action("in the order of axes that it has", op):
                        detour.leave_out(rewriter)
                elif narrow is not None:
                    _leave_out_copies(rewriter, op, narrow)
                elif source is not None:
                    _bypass(rewriter, op, source)
                elif (whole := unshaped(op)) is not None:
                    _reshape_once(rewriter, op, whole)
                elif op.is_type("Concat") and len(_joined(op)) < op.num_inputs:
                    _join(rewriter, op, _joined(op))
                elif op.is_type("Dropout") and trains(op):
                    advised[advice(op)] = None
                elif needless := needless_attributes(op):
                    _leave_out_attributes(rewriter, op, needless)
        context.notes += [note for note in advised if note and note not in context.notes]


def _returned(op: Op) -> Value | None:
    """The input that an op returns; None if it does something."""
    given = op.inputs[0] if op.num_inputs else None
    if op.is_type("Identity"):
        return given
    if op.is_type("Dropout"):
        mask = op.outputs[1] if op.num_outputs > 1 else None
        return given if not trains(op) and (mask is None or not mask.is_read) else None
    if op.is_type("Cast"):
        return given if given is not None and given.type.elem_type == op.attribute("to") != 0 else None
    if op.is_type("Reshape") and op.num_inputs == 2:  # before opset 5 it has the shape as an attribute
        return given if given is not None and _has_shape(given, op) else None
    if op.is_type("Gather"):
        return given if given is not None and _takes_all(given, op) else None
    if op.is_type("Slice"):
        return given if given is not None and _leaves_all(op, given) else None
    if op.is_type("Expand", "Resize", "Tile"):
        return given if given is not None and keeps_lengths(op) else None
    if op.is_type("Concat"):
        joined = _joined(op)
        return joined[0] if len(joined) == 1 else None
    if op.is_type("Sub") and is_needless_shift(op):
        return given
    return _kept_by_number(op) if op.is_type(*_NEUTRAL) and op.num_inputs == 2 else None


def _has_shape(value: Value, op: Op) -> bool:
    """Whether a Reshape asks for the lengths that a tensor has, one of which it may leave to be found."""
    asked, shape = fixed_constant(op.inputs[1]), value.type.shape
    if asked is None or shape is None or len(shape) != asked.size or op.attribute("allowzero", 0):
        return False
    return all(length in (-1, 0, known) for length, known in zip(asked.numpy().tolist(), shape, strict=True))


def _takes_all(value: Value, op: Op) -> bool:
    """Whether a Gather takes all that there is along its axis, in its order."""
    places, shape, axis = fixed_constant(op.inputs[1]), value.type.shape, op.attribute("axis", 0)
    if places is None or shape is None or not -len(shape) <= axis < len(shape):
        return False
    length = shape[axis]
    return places.shape == (length,) and places.numpy().tolist() == list(range(places.size))


def _leaves_all(op: Op, value: Value) -> bool:
    """Whether a Slice leaves as many numbers along its axes as there are, in their order."""
    axes, steps = (fixed_constant(one) for one in [*op.inputs, *[None] * 4][3:5])
    before, after = (one.type.shape if one is not None else None for one in (value, op.outputs[0]))
    if axes is None or not before or after is None or len(before) != len(after):
        return False
    if not all(-len(before) <= axis < len(before) for axis in axes.numpy().tolist()):
        return False
    in_order = op.num_inputs < 5 or (steps is not None and bool((steps.numpy() == 1).all()))
    lengths = [(before[axis], after[axis]) for axis in axes.numpy().tolist()]
    is_whole = bool(lengths) and all(isinstance(was, int) and was == now for was, now in lengths)
    return in_order and is_whole and value.original.const is None


def _kept_by_number(op: Op) -> Value | None:
    """The operand that the other one, a constant number, does not change."""
    left, right = op.inputs
    if _is_neutral(op, right, left):
        return left
    return right if op.op_type in _COMMUTATIVE and _is_neutral(op, left, right) else None


def _is_neutral(op: Op, number: Value | None, other: Value | None) -> bool:
    """Whether an operand has no number but that of its operation, and makes the result no larger."""
    data = fixed_constant(number)
    shape = other.type.shape if other is not None else None
    if data is None or shape is None or len(data.shape) > len(shape):
        return False
    fits = (own in (1, length) for own, length in zip(reversed(data.shape), reversed(shape), strict=False))
    return all(fits) and data.size > 0 and data.extremes() == (_NEUTRAL[op.op_type],) * 2


def _joined(op: Op) -> Sequence[Value | None]:
    """The inputs of a Concat that have numbers; the first, if none has."""
    given = op.inputs
    return [value for value in given if not _is_empty(value, op.attribute("axis", 0))] or given[:1]


def _is_empty(value: Value | None, axis: int) -> bool:
    """Whether it has length 0: a constant, or what a Slice leaves of something longer.

    That some models say so of an input means that it is free.
    """
    if value is None or value.original.type.shape is None:
        return False
    shape, producer = value.original.type.shape, value.producer
    if not -len(shape) <= axis < len(shape) or shape[axis] != 0:
        return False
    source = producer.inputs[0] if producer is not None and producer.is_type("Slice") else None
    length = (source.type.shape or shape)[axis] if source is not None else 0
    return value.original.const is not None or (isinstance(length, int) and length > 0)


def _join(rewriter: Rewriter, op: Op, joined: Sequence[Value | None]) -> None:
    result = op.outputs[0]
    if result is None:
        return
    with rewriter.action("leave out what is empty", op):
        made = rewriter.add_value(op.graph, result.name, result.type)
        rewriter.add_op(op.graph, "Concat", joined, [made], {"axis": op.attribute("axis", 0)})
        rewriter.replace_uses(result, made)
        rewriter.erase_op(op)


def _leave_out_attributes(rewriter: Rewriter, op: Op, names: Sequence[str]) -> None:
    with rewriter.action("leave out what changes nothing", op):
        for name in names:
            rewriter.set_attribute(op, name, None)


def _bypass(rewriter: Rewriter, op: Op, source: Value, between: Value | None = None) -> None:
    """Lets all that read an op read its source, without what may have been between the two."""
    result = op.outputs[0]
    if result is None:
        return
    fixed_name = source.producer is None or source.is_output
    if result.is_output and fixed_name:
        return
    with rewriter.action("bypass", op):
        rewriter.replace_uses(result, source)
        rewriter.erase_op(op)
        rewriter.erase_unread(between)


def _reshape_once(rewriter: Rewriter, op: Op, source: Value) -> None:
    """Lets a reshape read what the one before it read, or all read that, if it is taken back."""
    between = op.inputs[0]
    if is_taken_back(op, source):
        _bypass(rewriter, op, source, between)
    elif asks_for_all_lengths(op):
        with rewriter.action("reshape once", op):
            rewriter.set_input(op, 0, source)
            rewriter.erase_unread(between)


def _leave_out_copies(rewriter: Rewriter, op: Op, narrow: Mapping[Value, Shape]) -> None:
    source, result = op.inputs[0], op.outputs[0]
    assert source is not None and result is not None
    with rewriter.action("without copies", op):
        for value, shape in narrow.items():
            rewriter.set_type(value, value.type._replace(shape=shape))
        rewriter.replace_uses(result, source)
        rewriter.erase_op(op)
