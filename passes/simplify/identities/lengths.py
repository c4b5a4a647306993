"""Ops that make other lengths of a tensor, where these are the lengths that it has."""

from __future__ import annotations

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op

_SCALES = 2  # the input of a Resize that has them, from opset 11 on


def keeps_lengths(op: Op) -> bool:
    """Whether an Expand, a Tile or a Resize gives its data back, as no length changes."""
    (data, *_), (result, *_) = op.inputs, op.outputs
    before, after = (value.type.shape if value is not None else None for value in (data, result))
    if before is None or before != after or not all(isinstance(length, int) for length in before):
        return False
    return not op.is_type("Resize") or _resizes_nothing(op)


def _resizes_nothing(op: Op) -> bool:
    """Whether a Resize by no scale but 1 takes every number from its own place."""
    crops = op.attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    policy = op.attribute("keep_aspect_ratio_policy", "stretch")
    if crops or policy != "stretch" or op.num_inputs <= _SCALES:
        return False
    given = op.inputs[_SCALES]
    scales = fixed_constant(given)
    by_lengths = op.num_inputs > _SCALES + 1 and (given is None or (scales is not None and scales.size == 0))
    return by_lengths or (scales is not None and scales.size > 0 and scales.extremes() == (1.0, 1.0))
