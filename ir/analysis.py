"""Analyses: what can be computed from a graph, kept until something that it was computed from changes.

Every change of a model advances the epoch of one aspect. An analysis says which aspects it reads; its result
stands as long as their epochs do. What only decides about quantizers, for instance, leaves the order of the
ops as it is. Only the transaction of a model changes it, so only that advances an epoch.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from .errors import VerificationError

# Aspects of a model.
STRUCTURE = "structure"  # ops, their attributes, values, names, edges, inputs, outputs, regions
TYPES = "types"  # element types and shapes of values
CONSTANTS = "constants"  # which values are initializers, and their data
QUANT = "quant"  # quantizers, where they are and what they hold

ASPECTS = (STRUCTURE, TYPES, CONSTANTS, QUANT)


class Analysed(Protocol):
    """What analyses are about, a graph or a model; they need no more of it than this."""

    @property
    def name(self) -> str:
        """How errors name it."""

    @property
    def epoch(self) -> int:
        """How often its ops, values and edges have changed."""

    @property
    def analyses(self) -> Analyses:
        """The results for its model."""


T = TypeVar("T")
G = TypeVar("G", bound=Analysed)


class Epochs:
    """How often each aspect of a model has changed. An undone change counts as one more."""

    __slots__ = ASPECTS

    def __init__(self) -> None:
        self.structure = self.types = self.constants = self.quant = 0

    def advance(self, *aspects: str) -> None:
        """Tells that something of these aspects has changed."""
        for aspect in aspects:
            setattr(self, aspect, getattr(self, aspect) + 1)

    @property
    def any(self) -> bool:
        """Whether anything has changed at all."""
        return any(getattr(self, aspect) for aspect in ASPECTS)


@dataclass(frozen=True, eq=False)
class Analysis(Generic[G, T]):
    """A function of a graph whose result is kept; made by :func:`analysis`, called like the function.

    The result belongs to everybody who asks for it, so nobody may change it.
    """

    name: str
    compute: Callable[[G], T]
    reads: tuple[str, ...]
    local: bool

    def __call__(self, graph: G) -> T:
        """The result for ``graph`` as it is now."""
        return graph.analyses.get(self, graph)


def analysis(*reads: str, local: bool = False) -> Callable[[Callable[[G], T]], Analysis[G, T]]:
    """Makes an analysis of a function that takes a graph and depends on nothing else.

    Args:
        reads: the aspects of the model that the result depends on.
        local: the result depends on nothing but the ops, values and edges of the graph itself, so changes of
            other graphs, of names and of attributes leave it valid. Only for an analysis of the structure.

    Raises:
        ValueError: an aspect that does not exist, or a local analysis of more than the structure.
    """
    unknown = [aspect for aspect in reads if aspect not in ASPECTS]
    if unknown or not reads:
        raise ValueError(f"an analysis reads one or more of {', '.join(ASPECTS)}, not {unknown}")
    if local and reads != (STRUCTURE,):
        raise ValueError("a local analysis reads the structure only")

    def decorate(function: Callable[[G], T]) -> Analysis[G, T]:
        return Analysis(function.__name__, function, reads, local)

    return decorate


class Lookups(NamedTuple):
    """How often an analysis was computed, how often its kept result was used, and the seconds it took.

    The seconds leave out those of other analyses that it asked for.
    """

    computed: int = 0
    reused: int = 0
    seconds: float = 0.0

    def plus(self, other: Lookups) -> Lookups:
        """Both together."""
        return Lookups(*map(operator.add, self, other))

    def minus(self, other: Lookups) -> Lookups:
        """What was added since ``other``."""
        return Lookups(*map(operator.sub, self, other))


class Analyses:
    """The results of the analyses of one model."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._kept: dict[tuple[Analysis[Any, Any], Analysed], tuple[object, Any]] = {}
        self._counts: dict[str, Lookups] = {}
        self._seconds = 0.0

    @property
    def counts(self) -> Mapping[str, Lookups]:
        """How often each analysis was asked for so far, by its name."""
        return dict(self._counts)

    def counts_since(self, before: Mapping[str, Lookups]) -> dict[str, Lookups]:
        """What was asked for since :attr:`counts` was ``before``."""
        added = {name: count.minus(before.get(name, Lookups())) for name, count in self._counts.items()}
        return {name: count for name, count in added.items() if count.computed or count.reused}

    def get(self, analysis: Analysis[G, T], graph: G) -> T:
        """The result of an analysis for ``graph`` as it is now."""
        stamp = self._stamp(analysis, graph)
        kept = self._kept.get((analysis, graph))
        if kept is not None and kept[0] == stamp:
            self._add(analysis.name, Lookups(reused=1))
            found: T = kept[1]
            return found
        started, inner = time.perf_counter(), self._seconds
        found = analysis.compute(graph)
        own = time.perf_counter() - started - (self._seconds - inner)
        self._seconds += own
        self._add(analysis.name, Lookups(computed=1, seconds=own))
        self._kept[analysis, graph] = stamp, found
        return found

    def check(self) -> None:
        """Computes every result that counts as valid once more.

        Raises:
            VerificationError: one is different now, so something changed and no epoch tells of it.
        """
        for analysis, graph, kept in list(self._valid()):
            if analysis.compute(graph) != kept:
                raise VerificationError(
                    f"the analysis '{analysis.name}' of graph '{graph.name}' is out of date, and no epoch "
                    f"that it reads ({', '.join(analysis.reads)}) has advanced: change models through the "
                    "Rewriter and the QuantTable only"
                )

    def _valid(self) -> Iterator[tuple[Analysis[Any, Any], Analysed, Any]]:
        for (analysis, graph), (stamp, kept) in self._kept.items():
            if stamp == self._stamp(analysis, graph):
                yield analysis, graph, kept

    def _stamp(self, analysis: Analysis[Any, Any], graph: Analysed) -> object:
        if analysis.local:
            return graph.epoch
        return tuple(getattr(self._epochs, aspect) for aspect in analysis.reads)

    def _add(self, name: str, count: Lookups) -> None:
        self._counts[name] = self._counts.get(name, Lookups()).plus(count)
