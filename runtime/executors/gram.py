"""Gram matrices of arrays that are at hand, on several threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np

from qc.ir.errors import DataError
from qc.ir.executor import Observation

from ..native.kernels import observe, products, rows_of

# Rows that a thread multiplies at once; sums of other pieces would be rounded in other ways.
_PIECE = 4096
# Rows up to which those of several feeds are multiplied at once: each product costs as much as some hundred.
_TOGETHER = 512
_COLUMNS = 32
_GOLDEN = (math.sqrt(5) - 1) / 2


def gram_of(
    feeds: Sequence[Sequence[np.ndarray]], features: Observation, rows: int, threads: int
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Means of features and of their products, and of how many; see :meth:`qc.ir.executor.Executor.gram`."""
    for number, arrays in enumerate(feeds):
        if bad := sum(observe(array).nonfinite for array in arrays):
            raise DataError(f"{bad} values are NaN or infinite on feed {number}")
    runs = list(_runs(feeds, features))
    pieces = list(_pieces([sum(count for _, count in run) for run in runs], rows))
    if not pieces:
        return None

    def multiply(piece: tuple[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        run, positions = piece
        arrays = [arrays for arrays, _ in runs[run]]
        joined = (
            arrays[0] if len(arrays) == 1 else [np.concatenate(parts) for parts in zip(*arrays, strict=True)]
        )
        return products(joined, features, positions)

    with ThreadPoolExecutor(threads) if min(threads, len(pieces)) > 1 else nullcontext() as pool:
        results = (pool.map if pool else map)(multiply, pieces)  # in order, whichever thread is done first
        sums, triangles = next(results)
        for more, products_of_more in results:
            sums += more
            triangles += products_of_more
    total = sum(positions.size for _, positions in pieces)
    return sums / total, _matrices(triangles / total, sums.shape[1]), total


def _matrices(triangles: np.ndarray, size: int) -> np.ndarray:
    """Symmetric matrices of their upper triangles, without tables of places, which would be larger."""
    matrices, start = np.empty((len(triangles), size, size)), 0
    for row in range(size):
        stop = start + size - row
        matrices[:, row, row:] = triangles[:, start:stop]
        start = stop
    # Columns are written some at a time: one alone has each number in another line of the cache.
    for first in range(0, size, _COLUMNS):
        behind = first + _COLUMNS
        for row in range(first, min(behind, size)):
            matrices[:, row:behind, row] = matrices[:, row, row:behind]
        matrices[:, behind:, first:behind] = np.swapaxes(matrices[:, first:behind, behind:], 1, 2)
    return matrices


def _runs(
    feeds: Sequence[Sequence[np.ndarray]], features: Observation
) -> Iterator[list[tuple[Sequence[np.ndarray], int]]]:
    """Feeds that are multiplied at once, each with its rows: few, of shapes that differ in the first axis."""
    run: list[tuple[Sequence[np.ndarray], int]] = []
    held = 0
    for arrays in feeds:
        count = rows_of(arrays[0].shape, features)[2]
        if count == 0:
            continue
        fits = run and features.axis != 0 and arrays[0].shape[1:] == run[0][0][0].shape[1:]
        if run and not (fits and held + count <= _TOGETHER):
            yield run
            run, held = [], 0
        run.append((arrays, count))
        held += count
    if run:
        yield run


def _pieces(counts: Sequence[int], rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """Pieces of the positions to look at, each with the feed that they are in: about ``rows`` in all.

    They are multiples of a step, rounded down, as if all feeds were one. That it is a whole number and the
    golden section spreads them evenly over the columns of pictures, whatever widths and strides are.
    """
    share = sum(counts) / max(rows, 1)
    step = math.floor(share - _GOLDEN) + _GOLDEN if share > 1 + _GOLDEN else 1.0
    start = 0
    for feed, count in enumerate(counts):
        first, last = math.ceil(start / step), math.ceil((start + count) / step)
        chosen = np.floor(np.arange(first, last) * step).astype(np.int64) - start
        chosen = chosen[(chosen >= 0) & (chosen < count)]
        for begin in range(0, chosen.size, _PIECE):
            yield feed, chosen[begin : begin + _PIECE]
        start += count
