"""What there is to choose the codes of a layer's weight by: its matrix, its grid, and what it multiplies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qc.ir.quant.arithmetic import spread
from qc.ir.quant.spec import Encoding, PerBlock

from ..layers.layer import Layer
from .features import Features

# What is added to the diagonal of a Gram matrix, as a share of its mean: what the data do not tell apart
# should not be changed much.
_DAMPING = 0.01
# What is added to each number on the diagonal, as a share of it, if there are as many rows of data as
# features. So much of what few rows have in common is chance (O. Ledoit and M. Wolf, A Well-Conditioned
# Estimator for Large-Dimensional Covariance Matrices, 2004).
_CHANCE = 1.0


@dataclass(frozen=True)
class Problem:
    """To find codes for which ``trace(E H E')`` is least, with ``E = wanted - scale * (codes - zero)``.

    The groups of a convolution are problems of their own, and so is each output in them. In memory, what
    there is of a feature stands together (see :func:`by_feature`): methods visit one after the other.

    Attributes:
        wanted: what the codes are to stand for; float64, shape ``(groups, outputs, features)``.
        gram: ``H``, float64, shape ``(groups, features, features)``; symmetric and positive definite.
        scale: of each element; float64, in the shape of ``wanted``.
        zero: what code each element has for the number 0, which need not be whole; as ``scale``.
        lowest, highest: the limits of codes.
        weight: the numbers that ``wanted`` is without what makes up for earlier layers; in its shape.
        shared: which scale of the encoding each element has, counted from 0; int64, in the same shape.
        least: the least scale that each element may have; as ``scale``.
    """

    wanted: np.ndarray
    gram: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    lowest: int
    highest: int
    weight: np.ndarray
    shared: np.ndarray
    least: np.ndarray

    @classmethod
    def of(
        cls,
        layer: Layer,
        encoding: Encoding,
        features: Features,
        mismatch: float,
        least: np.ndarray | float = 0.0,
    ) -> Problem:
        """The problem of a layer whose weight has an integer grid.

        With ``X`` the features in the float model and ``Y`` in the quantized one, what the weight ``W`` makes
        of ``X`` is made best by ``W + (H^-1 (C - H) W')'`` of ``Y``, with ``H = Y'Y`` and ``C = Y'X``
        (Y. Arai and Y. Ichikawa, Quantization Error Propagation, 2025; S. Zhang et al., Qronos, 2025).

        Args:
            mismatch: how much of the way to go there, 0 to 1.
            least: the least scales that may be chosen, as those of the encoding, or for all.
        """
        shape = layer.weight.array.shape
        scales = spread(tied_scales(layer, encoding), encoding, shape)
        shared = by_feature(layer.as_matrix(np.broadcast_to(scales, shape)))
        weight = by_feature(layer.matrix.astype(np.float64))
        size = weight.shape[-1]
        gram, cross = features.gram[:, size:, size:], features.gram[:, size:, :size]
        damped = _damped(gram, features.rows)
        change = np.linalg.solve(damped, (cross - gram) @ np.swapaxes(weight, 1, 2))
        return cls(
            weight + mismatch * np.swapaxes(change, 1, 2),
            damped,
            *_spread(encoding, shared),
            *encoding.spec.code_range,
            weight,
            shared,
            np.broadcast_to(least, encoding.scale.shape).ravel()[shared],
        )

    def on(self, encoding: Encoding) -> Problem:
        """The same on another grid of the same granularity and codes."""
        scale, zero = _spread(encoding, self.shared)
        return replace(self, scale=scale, zero=zero)

    def reordered(self, order: np.ndarray) -> Problem:
        """The same with features in another order.

        Args:
            order: for each group the features; shape ``(groups, features)``.
        """

        def columns(array: np.ndarray) -> np.ndarray:
            return np.swapaxes(np.swapaxes(array, 1, 2)[groups, order], 1, 2)

        groups = np.arange(len(order))[:, np.newaxis]
        gram = np.stack([one[which][:, which] for one, which in zip(self.gram, order, strict=True)])
        return replace(self._each(columns), gram=gram)

    @property
    def in_single_precision(self) -> Problem:
        """The same in float32, twice as fast for what is only tried.

        Each Gram matrix has a mean of 1 on its diagonal, which codes do not depend on: small ones would be 0.
        """

        def single(array: np.ndarray) -> np.ndarray:
            return array.astype(np.float32) if array.dtype == np.float64 else array

        mean = np.einsum("gii->g", self.gram) / self.gram.shape[-1]
        return replace(
            self._each(single), gram=(self.gram / mean[:, np.newaxis, np.newaxis]).astype(np.float32)
        )

    def of_features(self, features: slice | np.ndarray) -> Problem:
        """The problem of some features, as if there were no others."""
        part = self._each(lambda array: array[..., features])
        return replace(part, gram=self.gram[:, features][..., features])

    def repeated(self, times: int) -> Problem:
        """The same outputs several times over."""
        if times == 1:
            return self
        return self._each(lambda array: np.swapaxes(np.tile(np.swapaxes(array, 1, 2), (1, 1, times)), 1, 2))

    @property
    def parts(self) -> list[slice | np.ndarray]:
        """The features in sets that have one scale in each output: one set, or one for each block."""
        first, which = np.unique(self.shared[0, 0], return_inverse=True)
        if len(first) == 1:
            return [slice(None)]
        return [np.flatnonzero(which == part) for part in range(len(first))]

    @property
    def shares_outputs(self) -> bool:
        """Whether a scale is that of more than one output."""
        ids = self.shared.reshape(-1, self.shared.shape[-1])
        outputs = np.arange(len(ids))[:, np.newaxis]
        last = np.zeros(ids.max() + 1, np.int64)
        last[ids] = outputs
        return bool((last[ids] != outputs).any())

    def with_scale(self, scale: np.ndarray) -> Problem:
        """The same with other scales, as they are stored, and none below the least.

        Args:
            scale: of each element.
        """
        stored = np.maximum(scale, self.least).astype(np.float32)
        return replace(self, scale=stored.astype(self.scale.dtype))

    def encoding(self, encoding: Encoding) -> Encoding:
        """The encoding that this is the problem of, with the scales as they are here."""
        scale = encoding.scale.copy()
        scale.ravel()[self.shared] = self.scale
        return replace(encoding, scale=scale)

    def error(self, codes: np.ndarray) -> np.ndarray:
        """What is to be least, for each output; shape ``(groups, outputs)``."""
        errors = self.wanted - self.numbers(codes)
        return np.einsum("goi,goi->go", errors @ self.gram, errors)

    def better(self, codes: np.ndarray, others: np.ndarray) -> np.ndarray:
        """For each output the codes with the lower error; of equals ``others``."""
        return np.where((self.error(codes) < self.error(others))[..., np.newaxis], codes, others)

    def nearest(self, numbers: np.ndarray, features: slice | int = slice(None)) -> np.ndarray:
        """The codes nearest to numbers for some features; float64, in their shape."""
        codes = numbers / self.scale[..., features]
        codes += self.zero[..., features]
        np.rint(codes, out=codes)
        np.maximum(codes, self.lowest, out=codes)  # these two are faster than clip, for one feature
        return np.minimum(codes, self.highest, out=codes)

    def numbers(self, codes: np.ndarray, features: slice | int = slice(None)) -> np.ndarray:
        """What codes of some features stand for; float64."""
        return (codes - self.zero[..., features]) * self.scale[..., features]

    def rounded(self, numbers: np.ndarray) -> np.ndarray:
        """What the nearest codes to numbers stand for; float64, in their shape."""
        return self.numbers(self.nearest(numbers))

    def _each(self, change: Callable[[np.ndarray], np.ndarray]) -> Problem:
        """The same with all arrays changed that have an element for each of the weight."""
        names = ("wanted", "scale", "zero", "weight", "shared", "least")
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in names}
        return replace(self, **changed)


def by_feature(array: np.ndarray) -> np.ndarray:
    """The same array, ``(groups, outputs, features)``, with what there is of a feature together in memory."""
    return np.swapaxes(np.ascontiguousarray(np.swapaxes(array, 1, 2)), 1, 2)


def tied_scales(layer: Layer, encoding: Encoding) -> np.ndarray:
    """Which scale each one is the same as, counted from 0, in their shape: itself, but for some blocks.

    Blocks of a convolution that are equal at all positions of the kernel stay so: in AIMET they are one.
    """
    numbers = np.arange(encoding.scale.size).reshape(encoding.scale.shape)
    if not isinstance(encoding.spec.granularity, PerBlock) or not layer.op.is_type("Conv", "ConvTranspose"):
        return numbers
    outer = numbers.shape[:2]
    first = numbers.reshape(*outer, -1)[..., 0].reshape(*outer, *(1 for _ in numbers.shape[2:]))
    same = all(
        np.array_equal(array, np.broadcast_to(array.ravel()[first], array.shape))
        for array in (encoding.scale, encoding.zero_point)
    )
    return np.broadcast_to(first, numbers.shape) if same else numbers


def _spread(encoding: Encoding, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scale of each element, and the code that stands for 0."""
    scale = encoding.scale.ravel()[shared].astype(np.float64)
    return scale, encoding.zero_point.ravel()[shared] - np.float64(encoding.spec.shift)


def _damped(gram: np.ndarray, rows: int) -> np.ndarray:
    size = gram.shape[-1]
    diagonal = np.einsum("gii->gi", gram)
    mean = diagonal.mean(axis=1, keepdims=True)
    added = np.where(mean > 0, _DAMPING * mean + _CHANCE * size / rows * diagonal, 1.0)
    return gram + added[:, np.newaxis] * np.eye(size)
