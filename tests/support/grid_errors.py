"""What grids cost, in numpy: the definitions that the kernels behind an executor equal bit for bit."""

from __future__ import annotations

import numpy as np

from qc.ir.quant.arithmetic import fake_quantize, reduce_groups
from qc.ir.quant.spec import Encoding


def squared_error(array: np.ndarray, encoding: Encoding) -> np.ndarray:
    """The definition of :meth:`qc.ir.executor.Executor.squared_error`."""
    errors = (array - fake_quantize(array, encoding)) ** 2
    return reduce_groups(errors, encoding.spec.granularity, np.sum)


def histogram_error(
    edges: np.ndarray, counts: np.ndarray, encoding: Encoding, clipping: float = 1.0
) -> np.ndarray:
    """The definition of :meth:`qc.ir.executor.Executor.histogram_error`."""
    first, last = encoding.spec.code_range
    scale = encoding.scale.astype(np.float64)
    steps = float(last - first)
    ends = edges / scale[..., None] + (encoding.zero_point - float(first))[..., None]
    width = np.diff(ends)
    centre = (ends[..., :-1] + ends[..., 1:]) / 2
    point = centre - np.clip(np.rint(centre), 0.0, steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.diff(_integral(ends, steps, clipping)) / width
    weight = np.where((centre < 0.0) | (centre > steps), clipping, 1.0)
    errors = np.where(width > 1e-3, mean, weight * point * point)
    return np.sum(counts * errors, axis=-1) * scale * scale


def _integral(u: np.ndarray, steps: float, clipping: float) -> np.ndarray:
    """The integral from 0 to ``u`` of the weighted squared distance to the nearest code, 0 to ``steps``."""
    inside = np.clip(u, 0.0, steps)
    nearest = np.rint(inside)
    rest = inside - nearest
    outside = u - inside
    cubes = rest * rest * rest + clipping * (outside * outside * outside)
    return nearest / 12.0 + cubes / 3.0
