"""A Pad or a Resize along some axes as one that says of every axis what becomes of it.

In that form ONNX Runtime moves a Transpose across it rightly, and others know no other.
"""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.ir.value_type import Shape
from qc.patterns.attributes import attribute_of

from .builder import Builder, Writer, result_shape


def pad(op: Op) -> Writer | None:
    """A Pad by lengths that are known."""
    data, _, number, axes, *_ = (*op.inputs, None, None, None)
    pads, mode = attribute_of(op, "pads", op.inputs), op.attribute("mode", "constant")
    if axes is None or data is None or not isinstance(pads, tuple):
        return None
    filling = [number] if number is not None else []

    def write(build: Builder) -> list[Value | None]:
        lengths = build.constant(np.array(pads, np.int64), "pads")
        return [build.op("Pad", data, lengths, *filling, shape=result_shape(op), mode=mode)]

    return write


def resize(op: Op) -> Writer | None:
    """A Resize by scales that are known, or to lengths, where those of the other axes are."""
    data, _, scales, sizes, *_ = (*op.inputs, None, None, None)
    axes = attribute_of(op, "axes", op.inputs)
    shape = data.type.shape if data is not None else None
    attributes = {name: op.attribute(name) for name in op.attributes if name != "axes"}
    needs_all = attributes.pop("keep_aspect_ratio_policy", "stretch") != "stretch"
    crops = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if "axes" not in op.attributes or shape is None or needs_all or crops or not isinstance(axes, tuple):
        return None
    by_scales = scales is not None and scales.type.shape != (0,)
    given = fixed_constant(scales if by_scales else sizes)
    lengths = np.array([1.0 if by_scales or not isinstance(one, int) else one for one in shape])
    if given is None or given.size != len(axes) or not (by_scales or _others_are_known(shape, axes)):
        return None
    lengths[list(axes)] = given.numpy()

    def write(build: Builder) -> list[Value | None]:
        made = build.constant(lengths.astype(np.float32 if by_scales else np.int64), "lengths")
        asked = (made,) if by_scales else (None, made)
        return [build.op("Resize", data, None, *asked, shape=result_shape(op), **attributes)]

    return write


def _others_are_known(shape: Shape, axes: tuple[int, ...]) -> bool:
    return all(isinstance(length, int) for axis, length in enumerate(shape) if axis not in axes)
