"""Scales of blocks as integers times one float for each group of them, by themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .defs import TfEncoding


def grouped_dynamic_quantize(
    input_array: np.ndarray, grouping: Sequence[int], bitwidth: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rounds positive numbers to integers from 1 to ``2**bitwidth``, with a step for each group of them.

    Args:
        input_array: such as the scales of blocks.
        grouping: how many neighbours along each axis form a group; -1 for all.
        bitwidth: of the integers.

    Returns:
        The integers, uint32, in the shape of the array; and the steps, float64, with two axes for each of
        the array: the groups, and 1.
    """
    grouped = _grouped(input_array, grouping)
    steps = grouped.max(axis=tuple(range(1, grouped.ndim, 2)), keepdims=True) / 2**bitwidth
    integers = np.clip(np.round(grouped / steps), 1, 2**bitwidth).astype(np.uint32)
    return integers.reshape(input_array.shape), steps


def compress_encoding_scales(
    encodings: Sequence[TfEncoding],
    encoding_shape: Sequence[int],
    block_grouping: Sequence[int],
    scale_bitwidth: int,
) -> list[TfEncoding]:
    """Encodings with scales that are integers times one float for each group of them.

    Args:
        encodings: in the order of an array of the shape.
        encoding_shape: one length for each axis of the weight.
        block_grouping, scale_bitwidth: as for :func:`grouped_dynamic_quantize`.
    """
    scales = np.reshape([one.delta for one in encodings], encoding_shape)
    integers, steps = grouped_dynamic_quantize(scales, block_grouping, scale_bitwidth)
    deltas = (_grouped(integers, block_grouping) * steps).ravel().tolist()
    return [
        TfEncoding(one.offset * delta, (one.offset + 2**one.bw - 1) * delta, delta, one.offset, one.bw)
        for one, delta in zip(encodings, deltas, strict=True)
    ]


def _grouped(array: np.ndarray, grouping: Sequence[int]) -> np.ndarray:
    """The array with two axes for each: the groups, and their members."""
    sizes = zip(array.shape, grouping, strict=True)
    pairs = [(1, length) if size == -1 else (length // size, size) for length, size in sizes]
    return array.reshape([length for pair in pairs for length in pair])
