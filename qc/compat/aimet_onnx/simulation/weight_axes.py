"""Where the scales of a weight lie."""

from __future__ import annotations

from dataclasses import dataclass

from qc.ir.quant.spec import Granularity, PerBlock, PerChannel, PerTensor, TwoLevelBlock

from .. import defs
from ..errors import ArgumentError


@dataclass(frozen=True)
class WeightAxes:
    """The axes of a weight.

    Attributes:
        channel: that of output channels; None if there is none.
        block: that along which blocks lie; None if there is none.
        shape: the shape of the weight.
    """

    channel: int | None = None
    block: int | None = None
    shape: tuple[int, ...] = ()

    def granularity(self, asked: defs.Granularity, current: Granularity) -> Granularity:
        """qc's granularity for one of AIMET; blocks of no size are none, where the current one stays.

        Raises:
            UsageError: the tensor is no weight, or has no axis for it, the blocks do not divide it, or scales
                have no bits.
        """
        if isinstance(asked, defs.PerTensor):
            return PerTensor()
        if isinstance(asked, defs.Blockwise) and not asked.block_size and not isinstance(current, PerBlock):
            return current
        if not self.shape:
            raise ArgumentError("a tensor that is no weight has one scale; use QSpec.per_tensor")
        if self.channel is None:
            raise ArgumentError(f"a weight of shape {list(self.shape)} has no axis of output channels here")
        if not isinstance(asked, defs.Blockwise) or not asked.block_size:
            return PerChannel(self.channel)
        if self.block is None or asked.block_size < 1 or self.shape[self.block] % asked.block_size:
            divided = self.shape[self.block] if self.block is not None else "an axis it has"
            raise ArgumentError(
                f"blocks of {asked.block_size} do not divide the input channels of a weight of shape "
                f"{list(self.shape)}; use a divisor of {divided}"
            )
        if not isinstance(asked, defs.LPBQ):
            return PerBlock(self.block, asked.block_size)
        if asked.scale_bits < 1:
            raise ArgumentError(f"scale_bits is {asked.scale_bits}; it must be at least 1")
        two_level = TwoLevelBlock(self.block, asked.block_size, asked.scale_bits)
        if two_level.channel_axis != self.channel:
            raise ArgumentError(f"blocks of a weight of shape {list(self.shape)} have no scales of channels")
        return two_level

    def scale_shape(self, granularity: Granularity) -> tuple[int, ...]:
        """The shape that the scales of the weight have."""
        if isinstance(granularity, PerChannel):
            return (self.shape[granularity.axis],)
        if isinstance(granularity, PerBlock):
            axis, size = granularity.axis, granularity.size
            return tuple(-(-n // size) if i == axis else n for i, n in enumerate(self.shape))
        return ()
