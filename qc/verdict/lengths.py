"""Whether a result is as good at lengths of sequences that no sample has.

Attention to few places gives larger numbers than to many, beyond ranges that were seen at one length alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from qc.ir.executor import Feed
from qc.runtime import InputInfo, parse_metric
from qc.runtime.metrics.metric import Sample

from .samples import Score

_SHARE = 8  # of a sequence one of so many parts is left
_LEAST_LENGTH = 2
_LOST_DECIBELS = 6.0  # below which a shorter sequence is no worse than samples may differ
_GOOD_DECIBELS = 20.0


@dataclass(frozen=True)
class Shortened:
    """Outputs at the one length that sequences have in all samples, and of their beginnings.

    Attributes:
        lengths: both, the longer one first.
        sqnr_db: the signal to quantization noise ratio at the worst output, at each.
    """

    lengths: tuple[int, int]
    sqnr_db: tuple[float, float]

    @property
    def is_worse(self) -> bool:
        """Whether so much is lost at the shorter length that it matters."""
        longer, shorter = self.sqnr_db
        return shorter < min(longer - _LOST_DECIBELS, _GOOD_DECIBELS)


class Sequences:
    """The lengths that sequences have in some samples."""

    def __init__(self, inputs: Sequence[InputInfo]) -> None:
        free = {info.name: _free_axes(info) for info in inputs if not info.optional}
        # Two of one input are the sides of a picture, which are not cut at random.
        is_sequence = all(len(axes) <= 1 for axes in free.values())
        self._axes = {name: axes[0] for name, axes in free.items() if axes} if is_sequence else {}
        self._seen: set[int] = set()

    def add(self, feed: Feed) -> None:
        """Takes in one more sample."""
        self._seen.update(feed[name].shape[axis] for name, axis in self._axes.items())

    def beginnings(self, feeds: Iterable[Feed]) -> list[Feed]:
        """The beginnings of some samples; none unless all sequences have the same length."""
        return [self._beginning(feed) for feed in feeds] if self._lengths else []

    def judged(self, whole: Iterable[Sample], beginnings: Iterable[Sample]) -> Shortened | None:
        """How close outputs are at both lengths; None where that cannot be told."""
        found = [_sqnr(samples) for samples in (whole, beginnings)]
        if self._lengths is None or found[0] is None or found[1] is None:
            return None
        return Shortened(self._lengths, (found[0], found[1]))

    @property
    def _lengths(self) -> tuple[int, int] | None:
        if len(self._seen) != 1:
            return None
        (length,) = self._seen
        return (length, length // _SHARE) if length >= _SHARE * _LEAST_LENGTH else None

    def _beginning(self, feed: Feed) -> Feed:
        assert self._lengths is not None
        cut = partial(np.take, indices=np.arange(self._lengths[1]))
        return {
            name: cut(array, axis=self._axes[name]) if name in self._axes else array
            for name, array in feed.items()
        }


def _free_axes(info: InputInfo) -> list[int]:
    """The axes of free lengths but the first, along which samples lie."""
    return [axis for axis, size in enumerate(info.shape or ()) if axis and not isinstance(size, int)]


def _sqnr(samples: Iterable[Sample]) -> float | None:
    score = Score(parse_metric("sqnr"))
    for sample in samples:
        score.add(sample)
    return score.value()
