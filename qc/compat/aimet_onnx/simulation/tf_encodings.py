"""Grids as lists of AIMET's ``TfEncoding``, one for each scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from qc.ir.facts.op_traits import kernel_axes, weighted_op
from qc.ir.graph import Value
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, QuantSpec
from qc.passes.encodings.from_model import once

from ..defs import TfEncoding
from ..errors import ArgumentError

_ROUNDING = 1e-6  # what a float32 scale moves the ends of a grid by, relatively


def encodings_of(encoding: Encoding, value: Value | None) -> list[TfEncoding]:
    """The numbers of each scale of a grid; blocks of a kernel that are the same count as one.

    Args:
        value: the tensor, if it is known.
    """
    spec = encoding.spec
    scale, zero_point = encoding.scale.astype(np.float64), np.asarray(encoding.zero_point)
    if not isinstance(spec.format, IntFormat):
        ends = [(float(step), float(step) * spec.format.highest) for step in scale.ravel()]
        return [TfEncoding(-end, end, step, 0, spec.format.bits) for step, end in ends]
    (lowest, highest), bits = spec.code_range, spec.format.bits
    if isinstance(spec.granularity, PerBlock) and value is not None:
        kernel = kernel_axes(weighted_op(value), value)
        scale, zero_point = once(scale, kernel), once(zero_point, kernel)
    scales = scale.ravel()
    offsets = lowest - zero_point.ravel() + spec.shift
    low, high = offsets * scales, (offsets + highest - lowest) * scales
    if spec.fixed_range is not None:
        low, high = (_at(end, fixed) for end, fixed in zip((low, high), spec.fixed_range, strict=True))
    numbers = zip(low.tolist(), high.tolist(), scales.tolist(), offsets.tolist(), strict=True)
    return [TfEncoding(*fields, bits) for fields in numbers]


def bits_of(encodings: Sequence[TfEncoding]) -> int:
    """The width of the codes of a grid; raises UsageError if there are no encodings."""
    if not encodings:
        raise ArgumentError("there is no encoding to load; give one for each scale")
    return encodings[0].bw


def encoding_from(encodings: Sequence[TfEncoding], spec: QuantSpec, shape: tuple[int, ...]) -> Encoding:
    """The grid of a list.

    Args:
        shape: of the scales; blocks of a kernel may be given once.

    Raises:
        UsageError: their number does not fit the shape.
    """
    given = shape[:2] + (1,) * len(shape[2:]) if isinstance(spec.granularity, PerBlock) else shape
    if len(encodings) not in (math.prod(shape), math.prod(given)):
        raise ArgumentError(f"{len(encodings)} encodings do not fit {spec}, which has {math.prod(shape)}")
    as_given = shape if len(encodings) == math.prod(shape) else given
    scale, offset = (
        np.broadcast_to(np.reshape([getattr(one, name) for one in encodings], as_given), shape)
        for name in ("delta", "offset")
    )
    if not isinstance(spec.format, IntFormat):
        return Encoding(spec, scale, np.zeros(shape))
    # A symmetric grid that is not strict begins one code lower, and has its zero at the same one.
    is_whole = offset == -(1 << (spec.format.bits - 1))
    lowest = np.where(is_whole, spec.format.lowest, spec.code_range[0])
    return Encoding(spec, scale, lowest + spec.shift - offset)


def _at(end: np.ndarray, fixed: float) -> np.ndarray:
    """An end of a grid as it was fixed, where they are the same but for rounding."""
    return np.where(np.isclose(end, fixed, rtol=_ROUNDING, atol=0), fixed, end)


def in_codes_of(spec: QuantSpec, encoding: Encoding) -> Encoding:
    """The same grid with the sign of codes that ``spec`` has."""
    given = encoding.spec.format
    if not isinstance(spec.format, IntFormat) or not isinstance(given, IntFormat):
        return Encoding(spec, encoding.scale, encoding.zero_point)
    return Encoding(spec, encoding.scale, encoding.zero_point + spec.format.lowest - given.lowest)
