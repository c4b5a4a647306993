"""Mixed precision: which ops to give more bits first, by what their quantizers do to the outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from qc.compiler.compiled import Compiled
from qc.coverage import multiplied_by
from qc.ir.facts.op_traits import weight_ports
from qc.ir.graph import Op
from qc.ir.quant.formats import IntFormat
from qc.runtime import Data, Simulation, harm, parse_metric
from qc.runtime.evaluation.simulation import OFF, Setting

# Samples on which the quantizers of one op after the other are changed.
_SAMPLES = 4

# What ops cost that multiply nothing, as a share of all multiplications.
_LEAST_COST = 0.01


@dataclass(frozen=True)
class Step:
    """A way to give an op more bits.

    Attributes:
        name: in words.
        rule: what the op gets, as in rules of ``set-precision``.
        setting: the same for its quantizers in a simulation.
        below: it is for weights of fewer bits than these alone; None for all that an op reads and makes.
    """

    name: str
    rule: str
    setting: Setting
    below: int | None = None


WEIGHTS_OF_8_BITS = Step("weights of 8 bits", "weight:int8", 8, below=8)
IN_FLOAT = Step("in float", "off", OFF)


def ranked_rules(
    compiled: Compiled, data: Data, step: Step, threads: int | None, on_run: Callable[[], None]
) -> list[str]:
    """A rule for each op that the step would change, the most useful first.

    What an op's quantizers add to the noise at the outputs is measured in one session by changing those of
    one op at a time, and divided by the share of the multiplications that the op has. Ops without a name
    cannot be told apart in rules and are left out.

    Raises:
        UsageError: no output is a float tensor.
    """
    simulation = _simulation(compiled, threads)
    known = simulation.quantizers
    groups: dict[str, list[str]] = {}
    cost: dict[str, float] = {}
    for op in (op for graph in compiled.ir.graphs() for op in graph.ops()):
        held = [name for name in _quantizers(compiled, op, step.below) if name in known]
        if op.name and held:
            groups[op.name] = list(dict.fromkeys([*groups.get(op.name, ()), *held]))
            cost[op.name] = cost.get(op.name, 0) + multiplied_by(op)
    if not groups:
        return []
    metric = parse_metric("sqnr")
    metric.check(compiled.ir.origin)
    feeds = islice(data, _SAMPLES)
    found = harm(simulation, groups, metric, feeds, setting=step.setting, on_run=on_run)
    before, total = _noise(found.whole), sum(cost.values()) or 1.0
    gains = {name: before - _noise(found.changed[name]) for name in groups}
    useful = {name: gain / (cost[name] / total + _LEAST_COST) for name, gain in gains.items()}
    return [f"op:{name}={step.rule}" for name in sorted(useful, key=lambda name: -useful[name])]


def _simulation(compiled: Compiled, threads: int | None) -> Simulation:
    """One in which every weight can be set: those with chosen codes have the nearest ones instead."""
    ir = compiled.ir
    with ir.transaction.trial():
        for quantizer in ir.quant.quantizers():
            if quantizer.codes is not None:
                ir.quant.drop_codes(ir.quant.sites_of(quantizer)[0].value.original, "to be changed")
        return compiled.open_simulation(settable_weights=True, threads=threads)


def _quantizers(compiled: Compiled, op: Op, below: int | None) -> list[str]:
    """The quantizers of what an op reads and makes, or of its weights of fewer bits, by their names."""
    quant, inputs = compiled.ir.quant, op.graph.op_inputs(op)
    ports = range(len(inputs)) if below is None else weight_ports(op)
    held = [quant.of_use(value, op, port) for port in ports if (value := inputs[port]) is not None]
    if below is None:
        held += [quant.of_value(value) for value in op.graph.op_outputs(op) if value is not None]
    formats = {f"q{one.id}": one.spec.format for one in held if one is not None}
    return [
        name
        for name, format in formats.items()
        if isinstance(format, IntFormat) and (below is None or format.bits < below)
    ]


def _noise(decibels: float) -> float:
    """Noise as a share of the signal."""
    return float(10 ** (-decibels / 10))
