"""From a range of numbers to the grid that covers it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .formats import IntFormat
from .spec import Encoding, QuantSpec

# How a calibration finds the grid of a quantizer, also for other specs than it has.
GridOf = Callable[[QuantSpec], Encoding]


class GridsById(dict[int, GridOf]):
    """How a calibration finds the grid of each quantizer, by the id of the quantizer.

    The grid that one would have in 4 bits, from the same statistics::

        spec = quantizer.spec.resized(IntFormat(4, signed=True), quantizer.spec.narrow)
        encoding = compiled.grids[quantizer.id](spec)
    """

    def __repr__(self) -> str:
        example = f"grids[{next(iter(self))}](spec)" if self else "grids[id](spec)"
        return f"<how {len(self)} quantizers find their grids, by id: {example} is the Encoding of a spec>"


# The smallest scale of an integer grid: the product of two is still a normal float32, as biases need it.
SMALLEST_SCALE = 2.0**-60


def encoding_of_range(spec: QuantSpec, low: np.ndarray, high: np.ndarray) -> Encoding:
    """The grid of ``spec`` that covers ``[low, high]`` and zero.

    Args:
        spec: a spec with an integer or a small float format.
        low, high: the range; any shape, one element per scale.

    Returns:
        An encoding whose scale has the shape of ``low``. Real zero is exactly a code. Symmetric integer
        grids reach the larger of both ends, or begin at zero if one-sided and nothing is negative; float8
        maps the largest magnitude to the largest finite value.
    """
    low = np.minimum(np.asarray(low, np.float64), 0.0)
    high = np.maximum(np.asarray(high, np.float64), 0.0)
    if not isinstance(spec.format, IntFormat):
        reach = np.maximum(-low, high) / spec.format.highest
        scale = np.maximum(reach, np.finfo(np.float32).tiny) if spec.format.scaled else np.ones_like(reach)
        return Encoding(spec, scale, np.zeros(scale.shape, np.int32))
    first, last = spec.code_range
    if spec.symmetric:
        centre = 0 if spec.format.signed else (spec.format.highest + 1) // 2
        scale = np.maximum(-low / (centre - first - spec.shift), high / (last - centre + spec.shift))
        zero_point = np.full(scale.shape, centre)
        if spec.one_sided:
            scale = np.where(low >= 0, high / (last - first), scale)
            zero_point = np.where(low >= 0, first, centre)
        return Encoding(spec, np.maximum(scale, SMALLEST_SCALE), zero_point)
    scale = np.maximum((high - low) / (last - first), SMALLEST_SCALE).astype(np.float32).astype(np.float64)
    zero_point = np.clip(np.rint(first - low / scale), first, last)
    return Encoding(spec, scale, zero_point)
