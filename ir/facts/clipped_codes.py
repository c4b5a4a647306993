"""Codes that a Clip limits to those of a narrower format, as Brevitas and others write 4-bit grids (QCDQ)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..graph import Op, Value
from ..quant.formats import IntFormat
from ..quant.spec import Encoding, TwoLevelBlock
from .constants import constant_numbers


@dataclass(frozen=True)
class CodeClip:
    """A Clip between codes: the op, what it reads, what it makes, its limits, and the element type."""

    op: Op
    source: Value
    result: Value
    lowest: int
    highest: int
    dtype: np.dtype

    @property
    def format(self) -> IntFormat | None:
        """The format whose codes are the limits, but perhaps for the lowest one; None if there is none."""
        bits = (self.highest + 1).bit_length() - 1 + (self.lowest < 0)
        if not 2 <= bits <= 16:
            return None
        format = IntFormat(bits, self.lowest < 0)
        fits = self.highest == format.highest and self.lowest - format.lowest in (0, int(format.signed))
        return format if fits else None

    @property
    def is_narrow(self) -> bool:
        """Whether the lowest code of the format is left out."""
        return self.format is not None and self.lowest > self.format.lowest

    @property
    def cuts_below(self) -> bool:
        """Whether it limits codes from below; the element type alone may do so."""
        return self.lowest > np.iinfo(self.dtype).min

    @property
    def cuts_above(self) -> bool:
        """Whether it limits codes from above; the element type alone may do so."""
        return self.highest < np.iinfo(self.dtype).max

    def narrowed(self, encoding: Encoding) -> Encoding | None:
        """A grid of integers with these codes alone; None if no format has them."""
        format, spec = self.format, encoding.spec
        is_plain = isinstance(spec.format, IntFormat) and not isinstance(spec.granularity, TwoLevelBlock)
        if format is None or not is_plain or not self.holds(encoding.zero_point):
            return None
        symmetric = bool((encoding.zero_point == format.middle).all())
        spec = replace(spec, format=format, symmetric=symmetric, narrow=self.is_narrow)
        return Encoding(spec, encoding.scale, encoding.zero_point)

    def holds(self, codes: np.ndarray) -> bool:
        """Whether codes are within the limits, so that they stay what they are."""
        return bool((codes >= self.lowest).all() and (codes <= self.highest).all())

    def limited(self, codes: np.ndarray) -> np.ndarray:
        """What it makes of codes."""
        return np.clip(codes, self.lowest, self.highest)


def code_clip(op: Op | None) -> CodeClip | None:
    """How an op limits codes; None if it does something else."""
    if op is None or not op.is_type("Clip") or op.num_inputs != 3:
        return None
    (source, *limits), (result,) = op.inputs, op.outputs
    low, high = map(constant_numbers, limits)
    if source is None or result is None or low is None or high is None:
        return None
    if low.size != 1 or high.size != 1 or low.dtype.kind not in "iu" or low > high:
        return None
    return CodeClip(op, source, result, int(low.item()), int(high.item()), low.dtype)


def readers_of_codes(codes: Value) -> tuple[list[CodeClip], list[Op]]:
    """The Clips that limit codes, and the other ops that read these or what the Clips make."""
    clips, others = [], []
    for op, _ in codes.uses:
        clip = code_clip(op)
        if clip is not None and not clip.result.is_output:
            clips.append(clip)
            others += [use.op for use in clip.result.uses]
        else:
            others.append(op)
    return clips, others
