"""How far values of a candidate are from those of a reference, summed up over any number of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from qc.ir.errors import ModelError

from ..native import kernels
from ..native.functions import DifferenceSums

_KERNEL_BYTES = 4  # of an element that the kernel knows: those of float32
_CHUNK = 1 << 15  # elements whose float64 copies stay in the cache


@dataclass(frozen=True)
class OutputScore:
    """How one output of a candidate compares with the same output of the reference, over all feeds.

    Elements that are NaN, or the same infinity, in both models count as equal and carry no signal. One that
    is finite in only one of them is an infinite error.

    Attributes:
        output: the name of the graph output.
        elements: how many elements were compared.
        equal: the share of elements that are exactly equal, 0 to 1; the only score of outputs that are not
            floating point. 1 for an output that was always empty; NaN if nothing could be compared.
        sqnr_db: signal to quantization noise ratio ``10 log10(sum(x^2) / sum((x - y)^2))`` in dB, where x is
            the reference; inf if equal, -inf if the error is infinite or x is all zero and y is not. None for
            outputs that are not floating point.
        cosine: cosine of the angle between both outputs, seen as one long vector; NaN if one is all zero and
            the other is not, or not finite. None likewise.
        max_abs_error: the largest absolute difference. None likewise.
        left_out: on how many feeds the output has other sizes than that of the reference, as sizes may depend
            on the data. It counts for nothing there.
    """

    output: str
    elements: int
    equal: float
    sqnr_db: float | None = None
    cosine: float | None = None
    max_abs_error: float | None = None
    left_out: int = 0


@dataclass
class Sums:
    """Running sums over pairs of arrays of one tensor: of the reference and of the candidate."""

    floating: bool = False
    elements: int = 0
    equal: int = 0
    signal: float = 0.0
    noise: float = 0.0
    product: float = 0.0
    energy: float = 0.0
    largest: float = 0.0
    left_out: int = 0

    def add(self, x: Any, y: Any, place: str) -> None:
        """Adds what two models gave for one output: a tensor, or a sequence of them.

        Where they have different sizes they are left out.

        Args:
            place: which output of which model, in words, for messages.

        Raises:
            ModelError: the two cannot be compared, or have different ranks.
        """
        if differ_in_size(x, y):
            self.left_out += 1
            return
        if isinstance(x, list) and isinstance(y, list):
            for one, other in zip(x, y, strict=True):
                self.add(one, other, place)
            return
        if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
            raise ModelError(f"{place} cannot be compared: it is no tensor")
        check_ranks(x, y, place)
        self.add_array(x, y)

    def add_array(self, x: np.ndarray, y: np.ndarray) -> None:
        """Adds an array of the reference and one of the same shape of the candidate."""
        self.elements += x.size
        if not is_floating(x.dtype):
            self.equal += int(np.count_nonzero(x == y))
            return
        self.floating = True
        if x.dtype.itemsize <= _KERNEL_BYTES and y.dtype.itemsize <= _KERNEL_BYTES:
            found = kernels.compare(x, y)
            if math.isfinite(found.noise):
                self._add(found)
                return
        x, y = x.reshape(-1), y.reshape(-1)
        for start in range(0, x.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            self._add_floats(x[part].astype(np.float64), y[part].astype(np.float64))

    def _add_floats(self, x: np.ndarray, y: np.ndarray) -> None:
        with np.errstate(invalid="ignore"):
            error = x - y
            total = float(np.sum(error))
        equal = x == y
        if not math.isfinite(total):  # else every element is finite in both
            equal |= np.isnan(x) & np.isnan(y)
            finite = np.isfinite(x) & np.isfinite(y)
            x, y = np.where(finite, x, 0), np.where(finite, y, 0)
            error = np.where(finite | equal, x - y, np.inf)
        products = (_product(x, x), _product(y, y), _product(x, y), _product(error, error))
        largest = float(np.max(np.abs(error), initial=0))
        self._add(DifferenceSums(*products, largest, int(np.count_nonzero(equal))))

    def _add(self, found: DifferenceSums) -> None:
        self.equal += found.equal
        self.signal += found.signal
        self.energy += found.energy
        self.product += found.product
        self.noise += found.noise
        self.largest = max(self.largest, found.largest)

    def score(self, output: str) -> OutputScore:
        """The scores of everything added."""
        nothing = math.nan if self.left_out else 1.0
        equal = self.equal / self.elements if self.elements else nothing
        if not self.floating:
            return OutputScore(output, self.elements, equal, left_out=self.left_out)
        found = (self.sqnr_db, self.cosine, self.largest)
        return OutputScore(output, self.elements, equal, *found, self.left_out)

    @property
    def sqnr_db(self) -> float:
        """Signal to quantization noise ratio in dB, as in :class:`OutputScore`."""
        if self.noise == 0:
            return math.inf
        if self.signal == 0 or math.isinf(self.noise):
            return -math.inf
        return 10 * math.log10(self.signal / self.noise)

    @property
    def cosine(self) -> float:
        """Cosine similarity, as in :class:`OutputScore`."""
        if self.noise == 0:
            return 1.0
        length = math.sqrt(self.signal) * math.sqrt(self.energy)
        return self.product / length if length and math.isfinite(self.noise) else math.nan


def differ_in_size(x: Any, y: Any) -> bool:
    """Whether two tensors of one rank, or somewhere two sequences, have different sizes."""
    if isinstance(x, list) and isinstance(y, list):
        return len(x) != len(y) or any(map(differ_in_size, x, y))
    are_tensors = isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
    return are_tensors and x.ndim == y.ndim and x.shape != y.shape


def check_ranks(x: Any, y: Any, place: str) -> None:
    """Raises ModelError if what a model gave has another rank than the reference; ``place`` names it."""
    are_tensors = isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
    if are_tensors and x.ndim != y.ndim:
        raise ModelError(f"{place} has shape {y.shape}, the reference has {x.shape}")


def _product(x: np.ndarray, y: np.ndarray) -> float:
    """The inner product on this thread alone: the threads of a BLAS would take processors from the models."""
    return float(np.einsum("i,i->", x, y))


def is_floating(dtype: np.dtype) -> bool:
    """Whether numbers of this dtype are floating point, those of ml_dtypes included."""
    if dtype.kind != "V":
        return dtype.kind == "f"
    try:
        ml_dtypes.finfo(dtype)
    except ValueError:
        return False
    return True
