"""What quantization does to the results of the layers behind a tensor, for any scales of its channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qc.ir.executor import Statistics
from qc.ir.quant.arithmetic import fake_quantize
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import Encoding, PerTensor, QuantSpec

from ..layers.layer import Layer

# Scales are between the exponentials of this and its negative: float32 keeps its digits.
_REACH = 7.0
# The grid of a weight, a float32 array.
GridOf = Callable[[QuantSpec, np.ndarray], Encoding]


@dataclass(frozen=True)
class Ranges:
    """The range of each channel of a tensor, with zero; float64, shape ``(channels,)``."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, statistics: Statistics) -> Ranges:
        """Those of channels that were observed."""
        low, high = statistics.minimum.astype(np.float64), statistics.maximum.astype(np.float64)
        return cls(np.minimum(low, 0), np.maximum(high, 0))

    @property
    def largest(self) -> np.ndarray:
        """The largest magnitude in each channel."""
        return np.maximum(-self.low, self.high)


@dataclass(frozen=True)
class Rounded:
    """A tensor on a grid whose channels are scaled, as seen on data.

    Attributes:
        spec: of its quantizer.
        covered: the ranges on the samples that the grid is made for.
        reached: those on others.
        power: the mean square of each channel; float64, shape ``(channels,)``.
        rows: how many numbers there are of each channel in the others.
    """

    spec: QuantSpec
    covered: Ranges
    reached: Ranges
    power: np.ndarray
    rows: float

    def noise(self, scale: np.ndarray) -> np.ndarray:
        """The mean square of the errors of each channel, as a share of its power, if it is divided.

        Errors are uniform over a step, or the numbers themselves where these are less: what is far smaller
        than a step becomes 0. At least one number of a channel is clipped that goes beyond the grid on other
        samples: where each channel has all of the grid, each has some that do.
        """
        if not isinstance(self.spec.format, IntFormat) or self.spec.granularity != PerTensor():
            return np.zeros_like(scale)
        low, high = (self.covered.low / scale).min(), (self.covered.high / scale).max()
        grid = encoding_of_range(self.spec, np.asarray(low), np.asarray(high))
        power = self.power / scale**2
        below = np.maximum(float(grid.minimum) - self.reached.low / scale, 0)
        above = np.maximum(self.reached.high / scale - float(grid.maximum), 0)
        clipped = np.minimum((below**2 + above**2) / max(self.rows, 1), power)
        rounding = np.minimum(float(grid.scale) ** 2 / 12, power)
        return (rounding + clipped) / np.maximum(power, np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Reading:
    """What a layer reads, as seen on data.

    Attributes:
        layer: the layer.
        covered: the largest magnitude of each channel on the samples that grids are made for; float64, shape
            ``(channels,)``.
        largest: that on all samples.
        squares: the mean square of each channel; float64, shape ``(channels,)``.
        power: the mean square of the results, summed over all outputs.
        rounded: the tensors on grids of which it is made by scaled channels, and itself if it is on one.
    """

    layer: Layer
    covered: np.ndarray
    largest: np.ndarray
    squares: np.ndarray
    power: float
    rounded: tuple[Rounded, ...]

    @property
    def largest_weight(self) -> np.ndarray:
        """The largest magnitude of a weight of each channel."""
        matrix = np.abs(self.layer.matrix).max(axis=1)
        return matrix.reshape(self.largest.size, -1).max(axis=1).astype(np.float64)

    def error(self, scale: np.ndarray, grid_of: GridOf) -> float:
        """The mean square of what the results change by, summed over the outputs.

        The weight is rounded to the nearest codes. Errors of different features are taken to be independent.

        Args:
            scale: what the channels are divided by; shape ``(channels,)``.
        """
        array = self.layer.as_weight((self.layer.matrix * self.layer.by_feature(scale)).astype(np.float32))
        held = self.layer.weight.quantizer
        if held is not None:
            array = fake_quantize(array, grid_of(held.spec, array))
        weight = self.layer.as_matrix(array) / self.layer.by_feature(scale)
        noise = np.sum([one.noise(scale) for one in self.rounded], axis=0) + np.zeros_like(scale)
        squares = (weight - self.layer.matrix) ** 2 + weight**2 * self.layer.by_feature(noise)
        return float((squares * self.layer.by_feature(self.squares)).sum())


def candidates(
    readings: Sequence[Reading], largest: Sequence[np.ndarray], span: float = 0.0
) -> dict[str, np.ndarray]:
    """Scales of channels to try, by how they are made.

    With ``x`` the largest magnitude of the data in a channel, and ``w`` that of the weights for it, they are
    ``x ** a / w ** (1 - a)`` (G. Xiao et al., SmoothQuant, 2022); and with ``m`` the root of the mean square
    of the data, ``m ** a`` (as J. Lin et al., AWQ, 2023); all around 1. Channels that are 0, or have weights
    of 0, stay as they are.

    Args:
        largest: the largest magnitudes of the channels of each reading.
        span: how many times the smallest scale the largest may be; 0 for as many as float32 bears.
    """
    data = np.max(largest, axis=0)
    size = np.sqrt(np.max([one.squares for one in readings], axis=0))
    weight = np.max([one.largest_weight for one in readings], axis=0)
    alive = (size > 0) & (weight > 0) & (data > 0)
    data, size, weight = (np.log(np.where(alive, one, 1)) for one in (data, size, weight))
    found = {f"{alpha:g} of maxima": alpha * data - (1 - alpha) * weight for alpha in np.arange(1, 11) / 10}
    found |= {f"{alpha:g} of means": alpha * size for alpha in np.arange(1, 9) / 8}
    return {f"alpha {name}": _around_one(logarithms, alive, span) for name, logarithms in found.items()}


def _around_one(logarithms: np.ndarray, alive: np.ndarray, span: float) -> np.ndarray:
    """Scales around the middle, with a span that of most: few far away would else take all to an end."""
    known = logarithms[alive] if alive.any() else np.zeros(1)
    middle = np.median(known) if span else (known.max() + known.min()) / 2
    reach = math.log(span) / 2 if span else _REACH
    return np.exp(np.where(alive, np.clip(logarithms - middle, -reach, reach), 0.0))
