"""What the grid of some tensors has to cover, where a mask that only Softmax sees may saturate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qc.ir.executor import Statistics
from qc.ir.facts.dataflow import makes_masks, mask_parts, masked_scores
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.scopes import Scopes, scopes_of
from qc.ir.graph import Value
from qc.ir.model import Model

from .masks import masked_below, top_of_mask
from .ranges import finite_data

Range = tuple[float, float]


@dataclass(frozen=True)
class Covered:
    """What a grid has to cover.

    Attributes:
        seen: what the data showed, without masked numbers; None if it showed nothing.
        constants: the ranges of constants on the same grid, without masked numbers.
        mask: the largest masked number; None if nothing is masked.
        room: how far below the rest a mask has to lie, besides what Softmax needs.
    """

    seen: Statistics | None
    constants: tuple[Range, ...]
    mask: float | None = None
    room: float = 0.0

    def __bool__(self) -> bool:
        return self.seen is not None or bool(self.constants)


class CoveredRanges:
    """Finds what grids have to cover.

    Args:
        model: the model that is calibrated.
        statistics: what was seen of its tensors, by the originals.
    """

    def __init__(self, model: Model, statistics: Mapping[Value, Statistics]) -> None:
        self._masked, self._parts = masked_scores(model.graph), mask_parts(model.graph)
        self._scopes: Scopes = scopes_of(model.graph)
        self._statistics = statistics

    def of(self, values: Sequence[Value]) -> Covered:
        """What a grid that all of ``values`` share has to cover."""
        seen = _merged(values, self._statistics)
        constants = [finite_data(value) for value in values if value.const is not None]
        mask = self._top_of_mask(values, seen, constants)
        if mask is None:
            return _covered(seen, constants)
        above = [array[array > mask] for array in constants]
        covered = _covered(seen.above(mask) if seen is not None else None, [one for one in above if one.size])
        if self._masked.issuperset(values):
            return replace(covered, mask=mask)
        room = self._room_for_scores(values, covered)
        return _covered(seen, constants) if room is None else replace(covered, mask=mask, room=room)

    def _top_of_mask(
        self, values: Sequence[Value], seen: Statistics | None, constants: Sequence[np.ndarray]
    ) -> float | None:
        if not all(self._masks_only(value) for value in values):
            return None
        if seen is not None:
            return top_of_mask(seen)
        return masked_below(np.concatenate([array.ravel() for array in constants])) if constants else None

    def _masks_only(self, value: Value) -> bool:
        """Whether a tensor is a part of masked scores and of nothing else."""
        if value.const is None:
            return value in self._parts
        uses = list(self._scopes.uses(value))
        return bool(uses) and all(makes_masks(use, self._parts) for use in uses)

    def _room_for_scores(self, values: Sequence[Value], covered: Covered) -> float | None:
        """By how much scores that something is added to may differ; None if nothing is known of the sums.

        A mask that lies so far below the rest is hidden, whatever scores it is added to: a score is a sum
        less what was added.
        """
        sums = [_span(self._seen_above_mask(value)) for value in self._sums(values)]
        own = _span(covered.seen) if covered.seen is not None else 0.0
        own = max(own or 0.0, *(high - low for low, high in covered.constants), 0.0)
        known = [span for span in sums if span is not None]
        return max(known) + own if known and len(known) == len(sums) else None

    def _sums(self, values: Sequence[Value]) -> Iterator[Value]:
        """The masked scores that values become a part of."""
        pending, known = list(values), set(values)
        for value in pending:
            for use in self._scopes.uses(value):
                for result in use.op.outputs[:1]:
                    if result is None or result in known:
                        continue
                    known.add(result)
                    if result in self._masked and not is_grid_preserving(use.op):
                        yield result
                    elif result in self._parts:
                        pending.append(result)

    def _seen_above_mask(self, value: Value) -> Statistics | None:
        seen = self._statistics.get(value.original)
        mask = top_of_mask(seen) if seen is not None else None
        return seen if seen is None or mask is None else seen.above(mask)


def _covered(seen: Statistics | None, constants: Sequence[np.ndarray]) -> Covered:
    ranges = [(float(one.min()), float(one.max())) if one.size else (0.0, 0.0) for one in constants]
    return Covered(seen if seen is not None and seen.count else None, tuple(ranges))


def _span(seen: Statistics | None) -> float | None:
    """How far apart the least and the largest number are; None if there are none."""
    return float(np.max(seen.maximum) - np.min(seen.minimum)) if seen is not None and seen.count else None


def _merged(values: Sequence[Value], statistics: Mapping[Value, Statistics]) -> Statistics | None:
    """What was seen of some tensors together."""
    merged: Statistics | None = None
    for value in values:
        if value in statistics:
            merged = statistics[value] if merged is None else merged.merge(statistics[value])
    return merged
