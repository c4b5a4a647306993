"""Groups: the quantizers that must change together, since the ops that read them run in one precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import networkx as nx

from qc.coverage import multiplied_by, repetitions
from qc.ir.facts.op_traits import is_trained
from qc.ir.facts.scopes import distinct_names
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Quantizer
from qc.passes.framework.target import Target
from qc.passes.quantize.placement.selection import op_names
from qc.passes.quantize.placement.unit import Unit
from qc.passes.quantize.placement.units import UnitMap

from .candidates import Candidate


@dataclass(frozen=True)
class Held:
    """A quantizer of a group.

    Attributes:
        id: its number.
        tensor: a tensor that it rounds, by the name that rules know.
        bits: its width now.
        is_weight: whether it rounds a trained parameter.
        has_codes: whether an algorithm chose its codes.
    """

    id: int
    tensor: str
    bits: int
    is_weight: bool
    has_codes: bool

    @property
    def name(self) -> str:
        """What a simulation calls it."""
        return f"q{self.id}"


@dataclass(frozen=True)
class Group:
    """Quantizers that change together.

    Attributes:
        name: the first op that reads one of them.
        ops: all that do, as rules call them (``op:NAME``).
        quantizers: of weights and of activations; biases follow from these.
        weights: how many numbers of weights these round.
        operations: how often its ops multiply; an op that sums no products counts each number that it makes.
    """

    name: str
    ops: tuple[str, ...]
    quantizers: tuple[Held, ...]
    weights: int
    operations: int

    def rules(self, candidate: Candidate) -> list[str]:
        """The rules of ``set-precision`` that give the group a precision where it has another."""
        if candidate.is_float:
            setting = "off" if candidate.weight_bits == 32 else candidate.name
            return [f"op:{op}={setting}" for op in self.ops]
        return [
            f"tensor:{one.tensor}={'w' if one.is_weight else 'a'}{bits}"
            for one in self.quantizers
            if (bits := bits_of(candidate, one)) != one.bits
        ]


def bits_of(candidate: Candidate, held: Held) -> int:
    """The width that a candidate gives to a quantizer."""
    return candidate.weight_bits if held.is_weight else candidate.activation_bits


def find_groups(model: Model, target: Target) -> list[Group]:
    """The groups of a model with quantizers, in the order of its ops; each quantizer is in one of them.

    But those of tables are in none, of which rows are looked up that are floats: they keep their width.

    A quantizer belongs to the ops that read in integers what it rounds, or if there are none, to the op that
    makes that. All that such an op reads must have one precision, so groups are what hangs together by ops.
    """
    return _Grouping(model, UnitMap(model, target)).groups()


class _Grouping:
    def __init__(self, model: Model, units: UnitMap) -> None:
        self._quant = model.quant
        self._names = distinct_names(model)
        self._op_names = op_names(model)
        running = [unit for unit in units.units if unit in units.integer or _holds_grids(unit)]
        self._read = {unit: [*self._reading(unit)] for unit in running}
        read = {quantizer for held in self._read.values() for quantizer in held}
        for unit, held in self._read.items():
            made = (self._quant.of_value(value) for value in units.outputs(unit))
            held += [one for one in made if one is not None and one not in read and _is_settable(one)]

    def groups(self) -> list[Group]:
        together: nx.Graph = nx.Graph()
        for number, (unit, held) in enumerate(self._read.items()):
            for quantizer in held:
                together.add_edge(number, quantizer)
            for op in unit.ops if held else ():
                together.add_edge(
                    number, self._op_names[op]
                )  # two ops of one name cannot be told apart by rules
        units = list(self._read)
        found = []
        for members in nx.connected_components(together):
            numbers = sorted(one for one in members if isinstance(one, int))
            found.append((numbers, [units[number] for number in numbers]))
        return [self._group(members) for _, members in sorted(found, key=lambda one: one[0])]

    def _group(self, units: list[Unit]) -> Group:
        quantizers = dict.fromkeys(one for unit in units for one in self._read[unit])
        held = tuple(map(self._held, quantizers))
        ops = [op for unit in units for op in unit.ops]
        sites = {site.value.original for one in quantizers for site in self._quant.sites_of(one)}
        weights = sum(_size(value) for value in sites if is_trained(value))
        return Group(
            self._op_names[units[0].root],
            tuple(dict.fromkeys(map(self._op_names.__getitem__, ops))),
            held,
            weights,
            sum(map(_operations, ops)),
        )

    def _held(self, quantizer: Quantizer) -> Held:
        value = self._quant.sites_of(quantizer)[0].value.original
        name = self._names.get(value, value.name)
        assert isinstance(quantizer.spec.format, IntFormat)
        bits, has_codes = quantizer.spec.format.bits, quantizer.codes is not None
        return Held(quantizer.id, name, bits, is_trained(value), has_codes)

    def _reading(self, unit: Unit) -> Iterator[Quantizer]:
        for op in unit.ops:
            for port, value in enumerate(op.inputs):
                held = self._quant.of_use(value, op, port) if value is not None else None
                if held is not None and _is_settable(held) and not self._is_table(op):
                    yield held

    def _is_table(self, op: Op) -> bool:
        """Whether an op looks up rows of a constant, which are floats from there on."""
        data, result = op.inputs[0], op.outputs[0]
        is_lookup = op.is_type("Gather") and data is not None and data.original.const is not None
        return is_lookup and result is not None and not self._quant.touches(result)


def _holds_grids(unit: Unit) -> bool:
    """Whether a unit that is no integer op runs on grids all the same: it moves data, or stores weights."""
    return unit.rule.runs in ("carry", "weights")


def _is_settable(quantizer: Quantizer) -> bool:
    """Whether a width can be chosen: those of biases follow."""
    return isinstance(quantizer.spec.format, IntFormat) and not quantizer.spec.derived


def _operations(op: Op) -> int:
    made = (value for value in op.outputs if value is not None)
    return repetitions(op.graph) * (multiplied_by(op) or sum(map(_size, made)))


def _size(value: Value) -> int:
    return prod(n if isinstance(n, int) else 1 for n in value.type.shape or ())
