"""Compares two encodings files: which tensors they have in common, and where the grids differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .record import Document, TensorRecord


@dataclass(frozen=True)
class GridDifference:
    """One tensor whose grids differ.

    Attributes:
        name: the tensor.
        what: what differs: ``format``, ``granularity``, ``scale`` or ``zero point``.
        detail: how, in words.
        relative: the largest relative difference of the scales; 0 if they cannot be compared.
    """

    name: str
    what: str
    detail: str
    relative: float = 0.0


@dataclass(frozen=True)
class Comparison:
    """What two documents have in common.

    Attributes:
        equal: tensors with the same grid in both.
        different: tensors with another grid.
        only_first, only_second: tensors that one of them lacks.
    """

    equal: tuple[str, ...]
    different: tuple[GridDifference, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both say the same."""
        return not (self.different or self.only_first or self.only_second)


def compare(first: Document, second: Document, tolerance: float = 0.0) -> Comparison:
    """Compares two documents of any versions, tensor by tensor, in the order of the first.

    Scales of blocks are compared output channel by output channel. Version 0.6.1 lists them in the order of
    the tensor instead: if one document does, axes must be known (:func:`qc.passes.encodings.located`).

    Args:
        tolerance: relative difference of scales that counts as equal.
    """
    a, b = first.by_name(), second.by_name()
    common = [name for name in a if name in b]
    different = [found for name in common if (found := difference(a[name], b[name], tolerance)) is not None]
    names = {found.name for found in different}
    return Comparison(
        equal=tuple(name for name in common if name not in names),
        different=tuple(different),
        only_first=tuple(name for name in a if name not in b),
        only_second=tuple(name for name in b if name not in a),
    )


def difference(a: TensorRecord, b: TensorRecord, tolerance: float = 0.0) -> GridDifference | None:
    """The first difference of two records of one tensor; None if they are the same grid."""
    return next(_differences(a, b, tolerance), None)


def _differences(a: TensorRecord, b: TensorRecord, tolerance: float) -> Iterator[GridDifference]:
    if _kind(a) != _kind(b):
        yield GridDifference(a.name, "format", f"{_kind(a)} against {_kind(b)}")
    if not (a.has_scale and b.has_scale):
        return
    in_memory = a.as_stored or b.as_stored  # then both are compared in the order of the tensor
    ours, theirs = _scales(a, in_memory), _scales(b, in_memory)
    if ours.size != theirs.size:
        yield GridDifference(a.name, "granularity", f"{ours.size} scales against {theirs.size}")
        return
    if ours.size > 1 and None not in (a.axis, b.axis) and a.axis != b.axis:
        yield GridDifference(a.name, "axis", f"scales along axis {a.axis} against {b.axis}")
        return
    if ours.size > 1 and None not in (a.block_size, b.block_size) and a.block_size != b.block_size:
        yield GridDifference(a.name, "blocks", f"blocks of {a.block_size} against {b.block_size}")
        return
    relative = np.abs(ours / theirs - 1.0)
    worst = int(np.argmax(relative))
    if relative[worst] > tolerance:
        place = f" (number {worst} of {ours.size})" if ours.size > 1 else ""
        detail = f"{ours[worst]:.9g} against {theirs[worst]:.9g}{place}"
        yield GridDifference(a.name, "scale", detail, float(relative[worst]))
    if a.is_integer and b.is_integer and _size(a.offset) == _size(b.offset):
        offsets = _ordered(a, a.offset, in_memory), _ordered(b, b.offset, in_memory)
        if not np.array_equal(*offsets):
            first = int(np.argmax(offsets[0] != offsets[1]))
            yield GridDifference(
                a.name,
                "zero point",
                f"{-offsets[0][first]:g} against {-offsets[1][first]:g} above the lowest code",
            )


def _kind(record: TensorRecord) -> str:
    """The format without the convention of its codes: ``8-bit integer``."""
    return f"{record.format.bits}-bit integer" if record.is_integer else str(record.format)


def _ordered(record: TensorRecord, numbers: np.ndarray, in_memory: bool) -> np.ndarray:
    return np.ravel(numbers) if in_memory else record.by_channel(numbers)


def _scales(record: TensorRecord, in_memory: bool) -> np.ndarray:
    """The scale of every channel or block, in one dimension."""
    if record.block_scales is None:
        return _ordered(record, record.scale, in_memory)
    integers = record.block_scales
    if integers.ndim == 1:
        per_channel = np.repeat(record.scale, integers.size // record.scale.size)
        return np.asarray(integers * per_channel)
    channel = 1 if record.axis == 0 else 0
    shape = [-1 if axis == channel else 1 for axis in range(integers.ndim)]
    return _ordered(record, integers * record.scale.reshape(shape), in_memory)


def _size(array: np.ndarray) -> int:
    return int(np.asarray(array).size)
