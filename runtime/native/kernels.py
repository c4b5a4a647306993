"""The native kernels on numpy arrays, without ONNX Runtime: fake quantization and statistics.

They are the kernels of the operators ``qc::FakeQuantize`` and ``qc::Observe``, called through ctypes on the
calling thread. ctypes releases the interpreter lock, so several threads can use them at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from qc.ir.errors import UsageError
from qc.ir.executor import Observation
from qc.ir.quant.arithmetic import Rounding
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, QuantSpec

from .functions import DifferenceSums, Error, Features, Quantizer, Tensor, library

HISTOGRAM_BINS = 1 << 16


@dataclass(frozen=True, eq=False)
class Observed:
    """What one look at an array found.

    Attributes:
        minimum: float32, the smallest finite element; shape ``()``, or ``(channels,)`` if an axis was given;
            infinity where there is none.
        maximum: float32, likewise; minus infinity where there is none.
        count: number of finite elements.
        nonfinite: number of infinite and NaN elements.
        histogram: int64 ``(65536,)``, the finite elements counted by the upper 16 bits of their float32
            (sign, exponent and 7 bits of the mantissa); None if not asked for.
    """

    minimum: np.ndarray
    maximum: np.ndarray
    count: int
    nonfinite: int
    histogram: np.ndarray | None


def fake_quantize(
    array: np.ndarray,
    encoding: Encoding,
    rounding: Rounding = Rounding.HALF_EVEN,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Rounds ``array`` to the grid of ``encoding``.

    Equals :func:`qc.ir.quant.arithmetic.fake_quantize` bit for bit on float32 arrays (a NaN stays some NaN);
    float16 and bfloat16 arrays are widened to float32 first and the result is rounded back.

    Args:
        array: float32, float16 or bfloat16 in any order of bytes, any shape.
        encoding: the grid; integer formats of 2 to 16 bits or float formats, not shifted.
        rounding: how ties are rounded; float formats always round to even.
        out: where the result goes: a contiguous array of the dtype and shape of ``array``, which is
            ``array`` itself or does not overlap it; None for a new one.

    Returns:
        ``out``, or a new array of the dtype, in the machine's order of bytes, and shape of ``array``.

    Raises:
        UsageError: the dtype is not supported, the encoding does not fit the shape, the format has more
            than 16 bits, the grid is shifted, or ``out`` cannot take the result.
    """
    spec = encoding.spec
    if spec.shifted:
        raise UsageError(f"the kernels know no shifted grids, such as {spec}; use qc.ir.quant.arithmetic")
    limits = _limits(spec) if isinstance(spec.format, IntFormat) else np.zeros(2, np.int32)
    x = _contiguous(array)
    y = np.empty_like(x) if out is None else _checked_output(out, x)
    grid = [_contiguous(encoding.scale), _contiguous(encoding.zero_point), limits]
    quantizer, type_name = _quantizer(encoding, rounding), x.dtype.name.encode()
    error = Error()
    failed = library().qc_fake_quantize(
        _tensor(x), type_name, quantizer, *map(_tensor, grid), y.ctypes.data, error
    )
    if failed:
        raise UsageError(error.text.decode())
    return y


def squared_error(array: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Sums of squared rounding errors; see :meth:`qc.ir.executor.Executor.squared_error`."""
    x = _contiguous(np.asarray(array, np.float32))
    spec, errors, error = encoding.spec, np.empty(encoding.scale.shape, np.float32), Error()
    grid = [_contiguous(encoding.scale), _contiguous(encoding.zero_point), _limits(spec)]
    failed = library().qc_squared_error(
        _tensor(x),
        _quantizer(encoding, Rounding.HALF_EVEN),
        *map(_tensor, grid),
        spec.shift,
        errors.ctypes.data,
        error,
    )
    if failed:
        raise UsageError(error.text.decode())
    return errors


def histogram_error(
    edges: np.ndarray, counts: np.ndarray, encoding: Encoding, clipping: float = 1.0
) -> np.ndarray:
    """Sums of squared errors on a histogram; see :meth:`qc.ir.executor.Executor.histogram_error`.

    Raises:
        UsageError: there is not one edge more than there are counts.
    """
    if np.shape(edges) != (np.size(counts) + 1,):
        raise UsageError(f"{np.size(counts)} bins have one edge more, not edges of shape {np.shape(edges)}")
    first, last = encoding.spec.code_range
    given = edges, counts, encoding.scale, encoding.zero_point - float(first)
    of_edges, of_bins, scale, offset = (np.ascontiguousarray(numbers, np.float64) for numbers in given)
    errors = np.empty(encoding.scale.shape)
    library().qc_histogram_errors(
        of_edges.ctypes.data,
        of_bins.ctypes.data,
        of_bins.size,
        scale.ctypes.data,
        offset.ctypes.data,
        scale.size,
        last - first,
        clipping,
        errors.ctypes.data,
    )
    return errors


def compare(x: np.ndarray, y: np.ndarray) -> DifferenceSums:
    """How far the elements of one array are from those of another one of its shape.

    Both have float32 or narrower floats. The noise is not finite where an element is not finite in both.

    Raises:
        UsageError: the shapes differ.
    """
    one, other = _of_one_shape([x, y])
    found = DifferenceSums()
    library().qc_compare(one.ctypes.data, other.ctypes.data, one.size, found)
    return found


def observe(array: np.ndarray, histogram: bool = False, axis: int | None = None) -> Observed:
    """Range, number and, if wanted, histogram of the finite elements of ``array``.

    Args:
        array: float32, float16 or bfloat16 in any order of bytes, any shape.
        histogram: count the elements in 65536 bins as well.
        axis: find a minimum and a maximum for each index of this axis (negative counts from the end);
            None for the whole array.

    Raises:
        UsageError: the dtype is not supported or the array has no such axis.
    """
    x = _contiguous(array)
    if axis is not None and not -x.ndim <= axis < x.ndim:
        raise UsageError(f"axis {axis} is outside an array of shape {x.shape}")
    shape = () if axis is None else (x.shape[axis],)
    minimum, maximum = np.empty(shape, np.float32), np.empty(shape, np.float32)
    counts = np.empty(2, np.int64)
    bins = np.empty(HISTOGRAM_BINS, np.int64) if histogram else None
    error = Error()
    failed = library().qc_observe(
        _tensor(x),
        x.dtype.name.encode(),
        -1 if axis is None else axis % x.ndim,
        minimum.ctypes.data,
        maximum.ctypes.data,
        counts[:1].ctypes.data,
        counts[1:].ctypes.data,
        None if bins is None else bins.ctypes.data,
        error,
    )
    if failed:
        raise UsageError(error.text.decode())
    return Observed(minimum, maximum, int(counts[0]), int(counts[1]), bins)


def rows_of(shape: tuple[int, ...], features: Observation) -> tuple[int, int, int]:
    """How arrays are seen as rows of features: the numbers of groups, features of each, and positions.

    Raises:
        UsageError: an array of that shape has no such features.
    """
    sizes, error = np.empty(3, np.int64), Error()
    lengths = (ctypes.c_int64 * len(shape))(*shape)
    if library().qc_rows(Tensor(None, lengths, len(shape)), _features(features), sizes.ctypes.data, error):
        raise UsageError(error.text.decode())
    groups, width, positions = sizes.tolist()
    return groups, width, positions


def products(
    arrays: Sequence[np.ndarray], features: Observation, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The sums of the features of arrays side by side, and of the products of each two.

    Args:
        arrays: at least one, as float32, of one shape; NaN and infinity count as zero.
        features: an observation of a Gram matrix.
        positions: which to look at; int64, increasing, at least one.

    Returns:
        Float64, shapes ``(groups, n)`` and ``(groups, n (n + 1) / 2)``, the rows of the upper triangle, for
        ``n`` features of all arrays together.

    Raises:
        UsageError: as for :func:`rows_of`, the shapes differ, or there are no such positions.
    """
    given = _of_one_shape(arrays)
    groups, width, _ = rows_of(given[0].shape, features)
    width *= len(given)
    sums, triangles = np.empty((groups, width)), np.empty((groups, width * (width + 1) // 2))
    chosen = np.ascontiguousarray(positions, np.int64)
    tensors = (Tensor * len(given))(*map(_tensor, given))
    error = Error()
    if library().qc_products(
        tensors,
        len(given),
        _features(features),
        chosen.ctypes.data,
        chosen.size,
        sums.ctypes.data,
        triangles.ctypes.data,
        error,
    ):
        raise UsageError(error.text.decode())
    return sums, triangles


def add_counts(sparse: np.ndarray, histogram: np.ndarray) -> None:
    """Adds a sparse histogram to a dense one.

    Args:
        sparse: as int64 ``(2, n)``, numbers of bins and the count in each.
        histogram: contiguous int64 ``(65536,)``, which is changed.

    Raises:
        UsageError: there is no such bin, or the arrays are no such ones.
    """
    if np.ndim(sparse) != 2 or len(sparse) != 2:
        raise UsageError(f"a sparse histogram has shape (2, n), not {np.shape(sparse)}")
    bins, counts = np.ascontiguousarray(sparse, np.int64)
    if bins.size and not 0 <= bins.min() <= bins.max() < HISTOGRAM_BINS:
        raise UsageError(f"bins are 0 to {HISTOGRAM_BINS - 1}, not {bins.min()} to {bins.max()}")
    _check_changed("histogram", histogram, np.int64, (HISTOGRAM_BINS,))
    library().qc_add_counts(bins.ctypes.data, counts.ctypes.data, bins.size, histogram.ctypes.data)


def add_exact(numbers: np.ndarray, top: np.ndarray, digits: np.ndarray) -> None:
    """Adds a finite number to each of some exact sums, which are changed; see ``exact_sum.py``.

    Args:
        numbers: as float64, of any shape.
        top: contiguous int16, of the same shape.
        digits: contiguous int64 ``(3, *shape)``.

    Raises:
        UsageError: an array that is changed has another shape or dtype.
    """
    x = np.ascontiguousarray(numbers, np.float64).reshape(np.shape(numbers))
    _check_changed("top", top, np.int16, x.shape)
    _check_changed("digits", digits, np.int64, (3, *x.shape))
    library().qc_add_exact(x.ctypes.data, x.size, top.ctypes.data, digits.ctypes.data)


def instruction_sets() -> tuple[str, ...]:
    """The instruction sets that this processor can run the kernels with, best first."""
    names: bytes = library().qc_instruction_sets()
    return tuple(names.decode().split(","))


def use_instruction_set(name: str) -> None:
    """Chooses one of :func:`instruction_sets` for the whole process; results do not depend on it.

    Raises:
        UsageError: there is none of that name.
    """
    if library().qc_use_instruction_set(name.encode()):
        known = ", ".join(instruction_sets())
        raise UsageError(f"instruction set '{name}' cannot be used here; known: {known}")


def _checked_output(out: np.ndarray, x: np.ndarray) -> np.ndarray:
    _check_changed("out", out, x.dtype, x.shape)
    if out.ctypes.data != x.ctypes.data and np.may_share_memory(out, x):
        raise UsageError("out must be the array itself or not overlap it")
    return out


def _check_changed(name: str, array: np.ndarray, dtype: DTypeLike, shape: tuple[int, ...]) -> None:
    """Raises UsageError unless a kernel may write to an array."""
    if (array.dtype, array.shape) != (dtype, shape) or not array.flags.carray:
        raise UsageError(
            f"{name} must be a contiguous, writable {np.dtype(dtype)} array of shape {shape}, "
            f"not a {array.dtype} array of shape {array.shape}"
        )


def _of_one_shape(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays as contiguous float32."""
    found = [np.ascontiguousarray(array, np.float32) for array in arrays]
    if len({array.shape for array in found}) != 1:
        raise UsageError(f"arrays have one shape, not {', '.join(str(array.shape) for array in found)}")
    return found


def _contiguous(array: np.ndarray) -> np.ndarray:
    """An array as the kernels read it: one element behind the other, each in the machine's order of bytes."""
    given = np.asarray(array)
    return np.ascontiguousarray(given, given.dtype.newbyteorder("=")).reshape(given.shape)


def _limits(spec: QuantSpec) -> np.ndarray:
    if spec.format.bits > 16:
        raise UsageError(f"fake quantization is exact for up to 16 bits, not for {spec.format}")
    return np.array(spec.code_range, np.int32)


def _tensor(array: np.ndarray) -> Tensor:
    return Tensor(array.ctypes.data, (ctypes.c_int64 * array.ndim)(*array.shape), array.ndim)


def _features(features: Observation) -> Features:
    patches = features.patches
    if patches is None:
        return Features(0, features.axis, 1, 0, b"NOTSET")
    lists = (
        (ctypes.c_int64 * len(given))(*given) if given else None
        for given in (
            patches.kernel,
            patches.strides,
            patches.dilations,
            patches.pads,
            patches.output_padding,
            patches.output_shape,
        )
    )
    return Features(
        len(patches.kernel),
        -1,
        patches.group,
        patches.transposed,
        patches.auto_pad.encode(),
        *lists,
    )


def _quantizer(encoding: Encoding, rounding: Rounding) -> Quantizer:
    granularity = encoding.spec.granularity
    name, axis, block_size = b"tensor", 0, 0
    if isinstance(granularity, PerChannel):
        name, axis = b"channel", granularity.axis
    elif isinstance(granularity, PerBlock):
        name, axis, block_size = b"block", granularity.axis, granularity.size
    format = encoding.spec.format
    format_name = "int" if isinstance(format, IntFormat) else format.name
    return Quantizer(name, axis, block_size, rounding.value.encode(), format_name.encode())
