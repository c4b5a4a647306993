"""Where the numbers of a Resize lie, and one to the nearest in forms that a device computes rightly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Lengths, Writer, lengths_of

COORDINATES = 11  # the first opset whose Resize tells how places correspond
_REGION_IS_OPTIONAL = 13  # the first opset whose Resize need not be given one
_PLAIN: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_ROUNDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),
}


def nearest(op: Op) -> Writer | None:
    """A Resize that repeats numbers without rounding places, and Gathers where it does not repeat all alike.

    The HTP takes the numbers at other places than ONNX where they are rounded in some ways, and compiles none
    that takes every second number.
    """
    data, wanted = op.inputs[0], lengths_of(op.outputs[0])
    lengths = lengths_of(data)
    if data is None or lengths is None or wanted is None:
        return None
    scales = scales_of(op, lengths, wanted)
    if scales is None:
        return None
    is_plain = all(op.attribute(name, "") == chosen for name, chosen in _PLAIN.items())
    if is_plain and all(to >= length for length, to in zip(lengths, wanted, strict=True)):
        return None
    places = [_places(op, *axis) for axis in zip(lengths, wanted, scales, strict=True)]
    known = [one for one in places if one is not None]
    if len(known) < len(places):
        return None
    if not all(map(_repeats, known, lengths)):
        return lambda build: [_gathered(build, data, known)]
    times = np.array([to // length for length, to in zip(lengths, wanted, strict=True)], np.float32)
    return lambda build: [_repeated(build, data, times, wanted)]


def _repeated(build: Builder, data: Value, times: np.ndarray, shape: Lengths) -> Value:
    scales = build.constant(times, "scales")
    region = build.constant(np.zeros(0, np.float32), "region") if build.opset < _REGION_IS_OPTIONAL else None
    return build.op("Resize", data, region, scales, shape=shape, mode="nearest", **_PLAIN)


def _gathered(build: Builder, data: Value, places: list[np.ndarray]) -> Value:
    """The numbers at places along every axis; one that keeps all of them in order needs no Gather."""
    shape = lengths_of(data) or ()
    for axis, along in enumerate(places):
        if not np.array_equal(along, np.arange(shape[axis])):
            shape = (*shape[:axis], along.size, *shape[axis + 1 :])
            data = build.op("Gather", data, build.constant(along, "places"), shape=shape, axis=axis)
    return data


def _repeats(places: np.ndarray, length: int) -> bool:
    """Whether the places along an axis are each of its own, equally often, one after the other."""
    times = places.size // length
    return times > 0 and np.array_equal(places, np.repeat(np.arange(length), times))


def scales_of(op: Op, lengths: Lengths, wanted: Lengths) -> np.ndarray | None:
    """How many times as long every axis becomes; None if that is not known, or said of some axes alone."""
    keeps_ratio = op.attribute("keep_aspect_ratio_policy", "stretch") != "stretch"
    if keeps_ratio or op.attribute("axes", None) is not None:
        return None
    _, _, scales, *_ = (*op.inputs, None, None)
    if scales is None or scales.type.shape == (0,):
        return np.array(wanted, np.float32) / np.array(lengths, np.float32)
    given = fixed_constant(scales)
    return given.numpy().astype(np.float32) if given is not None else None


def _places(op: Op, length: int, wanted: int, scale: np.float32) -> np.ndarray | None:
    """Which number of an axis each of the result is, as ONNX defines it; None if it depends on a region."""
    exact = exact_places(op, length, wanted, scale)
    if exact is None:
        return None
    rounded = _ROUNDED[op.attribute("nearest_mode", "round_prefer_floor")](exact)
    return np.clip(rounded, 0, length - 1).astype(np.int64)


def exact_places(op: Op, length: int, wanted: int, scale: np.float32) -> np.ndarray | None:
    """Where on an axis each number of the result lies, float32; None if it depends on a region."""
    mode = op.attribute("coordinate_transformation_mode", "half_pixel")
    results = np.arange(wanted, dtype=np.float32)
    if length == wanted and scale == 1:
        return results
    halves = (results + np.float32(0.5)) / scale - np.float32(0.5)
    if mode == "asymmetric":
        return results / scale
    if mode == "align_corners":
        return results * np.float32((length - 1) / (wanted - 1)) if wanted > 1 else results
    if mode == "pytorch_half_pixel":
        return halves if wanted > 1 else results
    if mode == "half_pixel_symmetric":
        return halves + np.float32(length * (1 - wanted / (np.float64(scale) * length)) / 2)
    return halves if mode == "half_pixel" else None
