"""Scales of two-level blocks as QDQ models have them: made by a DequantizeLinear of integers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..graph import Op, Value
from ..quant.spec import PerBlock, TwoLevelBlock
from .constants import constant_data


class TwoLevelScale(NamedTuple):
    """Scales of blocks that are integers times one scale for each channel.

    Attributes:
        op: the DequantizeLinear that makes them.
        scale: the products; float32.
        bits: such that the largest integer of each channel is ``2^bits``; 0 if there is no such number.
        channel_axis: the axis of the channels, counted from the first.
    """

    op: Op
    scale: np.ndarray
    bits: int
    channel_axis: int

    def granularity(self, axis: int, size: int) -> PerBlock:
        """The blocks that have these scales: in two levels if those can be told from the products."""
        two_level = TwoLevelBlock(axis, size, self.bits)
        fits = self.bits and two_level.channel_axis == self.channel_axis
        return two_level if fits else PerBlock(axis, size)


def two_level_scale(value: Value | None) -> TwoLevelScale | None:
    """The levels of a scale; None if no DequantizeLinear of unsigned constants makes it, per channel."""
    op = value.original.producer if value is not None else None
    if op is None or not op.is_type("DequantizeLinear") or op.attribute("block_size", 0):
        return None
    inputs = [constant_data(given) if given is not None else None for given in op.inputs]
    integers, scale, zero_point = (ref.numpy() if ref is not None else None for ref in (*inputs, None)[:3])
    if integers is None or scale is None or integers.dtype.kind != "u" or scale.dtype != np.float32:
        return None
    axis = op.attribute("axis", 1)
    if (zero_point is not None and zero_point.any()) or not -integers.ndim <= axis < integers.ndim:
        return None
    axis %= integers.ndim
    if scale.shape != (integers.shape[axis],):
        return None
    of_channel = scale.reshape([-1 if i == axis else 1 for i in range(integers.ndim)])
    return TwoLevelScale(op, integers.astype(np.float32) * of_channel, _bits(integers, axis), axis)


def _bits(integers: np.ndarray, channel_axis: int) -> int:
    others = tuple(axis for axis in range(integers.ndim) if axis != channel_axis)
    largest = np.unique(integers.max(axis=others, initial=0))
    bits = int(largest[0]).bit_length() - 1
    return bits if len(largest) == 1 and int(largest[0]) == 1 << bits else 0
