"""Keeps ONNX Runtime from moving its transposes across ops that it breaks by that.

It computes convolutions of codes with channels last, and moves the Transpose behind one as far as it goes.
What a Pad or a Resize along some axes says of these it reorders as if it were said of all, and in that order
it has no cubic Resize to fewer numbers: a model with one is not loaded, or does not run. A SpaceToDepth of
single places, or an Einsum that sums nothing up, stops the Transpose, and copies the tensor.
"""

from __future__ import annotations

from string import ascii_lowercase
from typing import Any

from qc.ir.facts.constants import fixed_constant
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from .neighbours import has_known_lengths, is_constant

_PAD_AXES, _SCALES = 3, 2  # inputs of a Pad and of a Resize
_PICTURE, _PLANE = 3, 4  # the fewest axes of what has channels before others, and those of SpaceToDepth
_ONE_PLACE: tuple[str, dict[str, Any]] = ("SpaceToDepth", {"blocksize": 1})


def keep_layout(model: Model, rewriter: Rewriter) -> None:
    """Puts such an op in front of what has to find its axes in their order, if anything is quantized."""
    ops = list(model.ops())
    if not any(is_qdq(op, "QuantizeLinear") for op in ops):
        return
    for op in filter(_needs_order, ops):
        graph, data = op.graph, op.inputs[0]
        rank = len(data.type.shape or ()) if data is not None else 0
        if data is None or rank < _PICTURE or is_constant(data):
            continue
        kept, axes = rewriter.add_value(graph, f"{data.name}_kept", data.type), ascii_lowercase[:rank]
        kind, given = ("Einsum", {"equation": f"{axes}->{axes}"}) if rank != _PLANE else _ONE_PLACE
        rewriter.add_op(graph, kind, (data,), [kept], given, "", f"{data.name}_{kind}")
        rewriter.set_input(op, 0, kept)


def unkeep_layout(model: Model, rewriter: Rewriter) -> None:
    """Takes such ops away again."""
    for op in filter(_needs_order, list(model.ops())):
        data = op.inputs[0]
        keeping = data.producer if data is not None else None
        if data is not None and keeping is not None and _changes_nothing(keeping):
            with rewriter.action("unkeep layout", op):
                rewriter.set_input(op, 0, keeping.inputs[0])
                if not data.is_read:
                    rewriter.erase_op(keeping)


def _needs_order(op: Op) -> bool:
    inputs = (*op.inputs, *[None] * _PAD_AXES)
    if op.is_type("Pad"):
        return inputs[_PAD_AXES] is not None
    if not op.is_type("Resize"):
        return False
    is_plain_cubic = op.attribute("mode", "nearest") == "cubic" and not op.attribute("antialias", 0)
    return "axes" in op.attributes or (is_plain_cubic and not _enlarges(op))


def _enlarges(op: Op) -> bool:
    """Whether a Resize is known to make no axis shorter."""
    data, result = op.inputs[0], op.outputs[0]
    scales = fixed_constant(op.inputs[_SCALES]) if op.num_inputs > _SCALES else None
    if scales is not None and scales.size:
        return bool((scales.numpy() >= 1).all())
    if data is None or result is None or not (has_known_lengths(data) and has_known_lengths(result)):
        return False
    lengths = zip(data.type.shape or (), result.type.shape or (), strict=True)
    return all(int(made or 0) >= int(length or 0) for length, made in lengths)


def _changes_nothing(op: Op) -> bool:
    if op.is_type("Einsum"):
        left, _, right = op.attribute("equation", "").partition("->")
        return op.num_inputs == 1 and left == right
    return op.is_type("SpaceToDepth") and op.attribute("blocksize") == 1
