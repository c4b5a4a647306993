"""Joins of tensors whose ranges differ so much that one grid keeps little of the small ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import networkx as nx
import numpy as np

from qc.ir.executor import Statistics
from qc.ir.facts.op_traits import is_grid_preserving, joins_grids
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Quantizer, QuantSpec
from qc.ir.quant_table import Site

from ...framework.target import Target
from ..placement.units import UnitMap
from .bias import leave_float

# What an input must have of the grid: 5 bits of it, or all but 3 bits of what it had on a grid of its own.
_STEPS = 32
_SHARE = 1 / 8

_REASON = "made by a join of ranges too different for one grid"

_Group = dict[Value, None]


def separate_joins(
    model: Model,
    target: Target,
    observed: dict[Quantizer, list[Value]],
    statistics: Mapping[Value, Statistics],
) -> Iterator[str]:
    """Leaves joins in float whose grid would cost an input three bits or more, if no op in integers reads it.

    A detector that joins boxes of 0 to 640 with scores of 0 to 1 is the usual case: on the grid of the result
    the scores have less than a step. In float, every input keeps the grid that what makes it wants.

    Args:
        target: says what runs in integers, and which results have fixed ranges.
        observed: the quantizers to calibrate, with their tensors; is brought up to date.
        statistics: of those tensors that no data mover made.

    Yields:
        A note on every join that is left in float.
    """
    joins = _Joins(model, UnitMap(model, target), statistics)
    for joined in joins.groups():
        lost = joins.lost(joined)
        if lost and not any(joins.is_needed(value, joined) for value in joined):
            joins.leave_float(joined, observed)
            yield f"{lost}, so it stays in float; as outputs of their own, all could be integers"


class _Joins:
    """The joins of one model that run in integers, and what their inputs need."""

    def __init__(self, model: Model, units: UnitMap, statistics: Mapping[Value, Statistics]) -> None:
        self._quant = model.quant
        self._units = units
        self._scopes = units.scopes
        self._statistics = statistics
        self._model = model

    def groups(self) -> list[_Group]:
        """The results of joins, each with what joins and data movers make of it, in topological order."""
        graph = nx.Graph()
        for op in self._scopes.ops:
            sources = [value for value in _data(op) if value in graph]
            if (joins_grids(op) and self._units.runs_integer(op)) or (self._units.is_carry(op) and sources):
                for made in op.outputs:
                    if made is not None and self._quant.get(Site(made)) is not None:
                        graph.add_node(made)
                        graph.add_edges_from((made, source) for source in sources)
        place = {value: number for number, value in enumerate(graph)}
        return [
            dict.fromkeys(sorted(found, key=place.__getitem__)) for found in nx.connected_components(graph)
        ]

    def lost(self, joined: _Group) -> str:
        """What the grid of a group takes from its inputs, in words; empty if that is little."""
        format = self._quantizers(joined)[0].spec.format
        ranges = {root: self._range(root) for root in self._roots(joined)}
        widths = {root: max(high, 0.0) - min(low, 0.0) for root, (low, high) in ranges.items()}
        narrow = min((root for root in widths if widths[root]), key=widths.__getitem__, default=None)
        if narrow is None or not isinstance(format, IntFormat):
            return ""
        wide = max(widths, key=widths.__getitem__)
        lows, highs = zip(*ranges.values(), strict=True)
        share = widths[narrow] / (max(0.0, *highs) - min(0.0, *lows))
        steps = share * (2**format.bits - 1)
        if steps >= _STEPS or share >= _SHARE:
            return ""
        (join, *_) = (op for value in joined if (op := value.producer) and joins_grids(op))
        return (
            f"{join.label} joins '{narrow.name}' of {_as_text(ranges[narrow])} and '{wide.name}' of "
            f"{_as_text(ranges[wide])}, on whose grid it has {steps:.2g} steps"
        )

    def is_needed(self, value: Value, joined: _Group) -> bool:
        """Whether what a group makes needs a grid: an op in integers reads it, or nobody can follow it."""
        return bool(self._scopes.onward(value)) or any(
            self._units.runs_integer(op) and not _makes(op, joined) for op, _ in self._scopes.uses(value)
        )

    def leave_float(self, joined: _Group, observed: dict[Quantizer, list[Value]]) -> None:
        """Takes the grids of a group away, and gives each input of it one of its own."""
        shared = self._quantizers(joined)
        sites = [site for quantizer in shared for site in self._quant.sites_of(quantizer)]
        own: dict[Value, Quantizer] = {}
        given_up = dict.fromkeys(self._read_by(joined))
        for site in sites:
            root = self._root(site.value.original)
            if site.value in joined or not self._has_grid(root, joined):
                given_up[site] = None
            elif site not in given_up:
                self._quant.remove(site, _REASON)
                given = own.get(root) or self._spec(root, shared[0].spec)
                own[root] = self._quant.place(site, given, "its own, as the join stays float")
        leave_float(self._model, given_up, _REASON)
        observed.update((quantizer, []) for quantizer in own.values())
        for quantizer in list(observed):
            held = (site.value.original for site in self._quant.sites_of(quantizer))
            observed[quantizer] = list(dict.fromkeys(held))
            if not observed[quantizer]:
                del observed[quantizer]

    # -- internals ----------------------------------------------------------------------------------

    def _quantizers(self, joined: _Group) -> list[Quantizer]:
        held = (self._quant.get(Site(value)) for value in joined)
        return list(dict.fromkeys(quantizer for quantizer in held if quantizer is not None))

    def _read_by(self, joined: _Group) -> Iterator[Site]:
        """The sites where joins and data movers of a group alone see a grid."""
        for op in filter(None, (value.producer for value in joined)):
            for port, value in enumerate(op.inputs):
                if value is not None and self._quant.get(site := Site(value, op, port)) is not None:
                    yield site

    def _roots(self, joined: _Group) -> dict[Value, None]:
        """What the inputs of a group were moved from."""
        makers = (value.producer for value in joined)
        inputs = (value for op in makers if op is not None for value in _data(op) if value not in joined)
        return dict.fromkeys(map(self._root, inputs))

    def _root(self, value: Value) -> Value:
        """What data movers on a grid made a tensor from."""
        while (op := value.producer) is not None and is_grid_preserving(op):
            source = op.inputs[0]
            if value in self._statistics or source is None:
                break
            value = source.original
        return value

    def _range(self, root: Value) -> tuple[float, float]:
        if root.const is not None:
            array = root.const.numpy()
            array = array[np.isfinite(array)]  # infinity stays float
            return (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        fixed = [one.spec.fixed_range for one in self._quant.quantizers_on(root) if one.spec.fixed_range]
        seen = self._statistics.get(root)
        if fixed and seen is None:
            return fixed[0]
        return (float(seen.minimum), float(seen.maximum)) if seen is not None and seen.count else (0.0, 0.0)

    def _has_grid(self, root: Value, joined: _Group) -> bool:
        """Whether a tensor needs a grid without the join: made in integers, or read by others in integers."""
        producer = root.producer
        readers = (op for op, _ in self._scopes.uses(root) if not _makes(op, joined))
        return self._units.runs_integer(producer) or any(map(self._units.runs_integer, readers))

    def _spec(self, root: Value, shared: QuantSpec) -> QuantSpec:
        producer = root.producer
        limits = self._units.unit_of(producer).rule.range_in(shared.format) if producer is not None else None
        return replace(shared, fixed_range=limits)


def _makes(op: Op, values: _Group) -> bool:
    return any(made in values for made in op.outputs if made is not None)


def _data(op: Op) -> list[Value]:
    """What the numbers of the result of a join or of a data mover come from."""
    inputs = op.inputs if joins_grids(op) else op.inputs[:1]
    return [value.original for value in inputs if value is not None and value.is_float]


def _as_text(ends: tuple[float, float]) -> str:
    return "{:.3g} to {:.3g}".format(*ends)
