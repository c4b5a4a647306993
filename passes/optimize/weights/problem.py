"""What there is to choose the codes of a layer's weight by: its matrix, its grid, and what it multiplies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qc.ir.quant.arithmetic import spread
from qc.ir.quant.spec import Encoding

from ..layers.layer import Layer
from .features import Features

# What is added to the diagonal of a Gram matrix, as a share of its mean: what the data do not tell apart
# should not be changed much.
_DAMPING = 0.01


@dataclass(frozen=True)
class Problem:
    """To find codes for which ``trace(E H E')`` is least, with ``E = wanted - scale * (codes - zero)``.

    The groups of a convolution are problems of their own, and so is each output in them.

    Attributes:
        wanted: what the codes are to stand for; float64, shape ``(groups, outputs, features)``.
        gram: ``H``, float64, shape ``(groups, features, features)``; symmetric and positive definite.
        scale: of each element; float64, in the shape of ``wanted``.
        zero: what code each element has for the number 0, which need not be whole; as ``scale``.
        lowest, highest: the limits of codes.
    """

    wanted: np.ndarray
    gram: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    lowest: int
    highest: int

    @classmethod
    def of(cls, layer: Layer, encoding: Encoding, features: Features, mismatch: float) -> Problem:
        """The problem of a layer whose weight has an integer grid.

        With ``X`` the features in the float model and ``Y`` in the quantized one, what the weight ``W`` makes
        of ``X`` is made best by ``W + (H^-1 (C - H) W')'`` of ``Y``, with ``H = Y'Y`` and ``C = Y'X``
        (Y. Arai and Y. Ichikawa, Quantization Error Propagation, 2025; S. Zhang et al., Qronos, 2025).

        Args:
            mismatch: how much of the way to go there, 0 to 1.
        """
        array = layer.weight.array

        def matrix(parameter: np.ndarray) -> np.ndarray:
            return layer.as_matrix(np.broadcast_to(spread(parameter, encoding, array.shape), array.shape))

        weight = layer.matrix.astype(np.float64)
        size = weight.shape[-1]
        gram, cross = features.gram[:, size:, size:], features.gram[:, size:, :size]
        damped = _damped(gram)
        change = np.linalg.solve(damped, (cross - gram) @ np.swapaxes(weight, 1, 2))
        return cls(
            weight + mismatch * np.swapaxes(change, 1, 2),
            damped,
            matrix(encoding.scale).astype(np.float64),
            matrix(encoding.zero_point) - np.float64(encoding.spec.shift),
            *encoding.spec.code_range,
        )

    def reordered(self, order: np.ndarray) -> Problem:
        """The same with features in another order.

        Args:
            order: for each group the features; shape ``(groups, features)``.
        """

        def columns(array: np.ndarray) -> np.ndarray:
            return np.take_along_axis(array, order[:, np.newaxis, :], 2)

        gram = np.take_along_axis(columns(self.gram), order[:, :, np.newaxis], 1)
        return replace(
            self, wanted=columns(self.wanted), gram=gram, scale=columns(self.scale), zero=columns(self.zero)
        )

    def nearest(self, numbers: np.ndarray, features: slice | int = slice(None)) -> np.ndarray:
        """The codes nearest to numbers for some features; float64, in their shape."""
        codes = np.rint(numbers / self.scale[..., features] + self.zero[..., features])
        return np.clip(codes, self.lowest, self.highest)

    def numbers(self, codes: np.ndarray, features: slice | int = slice(None)) -> np.ndarray:
        """What codes of some features stand for; float64."""
        return (codes - self.zero[..., features]) * self.scale[..., features]


def _damped(gram: np.ndarray) -> np.ndarray:
    mean = np.einsum("gii->g", gram) / gram.shape[-1]
    added = np.where(mean > 0, _DAMPING * mean, 1.0)
    return gram + added[:, np.newaxis, np.newaxis] * np.eye(gram.shape[-1])
