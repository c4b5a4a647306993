"""One format for all that an op reads and makes, on devices that compute in nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qc.ir.facts.dataflow import is_plain_float
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Quantizer, QuantSpec
from qc.ir.quant_table import Site

from ...framework.target import Target
from ..placement.units import UnitMap


def unify_formats(model: Model, target: Target) -> None:
    """Rounds what an op reads in another width than its result has once more, to that width, for this op.

    A device without kernels for a mixture of widths computes such an op in float, or not at all. The width
    of the result holds: it is wide if a rule wants so of the op, or of what reads it. What is wide and read
    by a narrow op loses bits there alone. Results whose range the target fixes have that of their width.
    """
    if not target.models.one_format:
        return
    units = UnitMap(model, target)
    placed: dict[tuple[Value, QuantSpec], Quantizer] = {}
    for op in units.scopes.ops:
        _fit_range(model, units, op)
        wanted = None if is_grid_preserving(op) else _width_of(model, units.unit_of(op).root)
        for site, held in _read(model, units, op):
            if wanted is None or not isinstance(held.spec.format, IntFormat):
                continue
            if held.spec.format.bits == wanted:
                continue
            format = replace(held.spec.format, bits=wanted)
            spec = replace(held.spec, format=format, fixed_range=None)
            if model.quant.get(site) is not None:
                model.quant.remove(site, "in another width than the result")
            shared = placed.get((site.value.original, spec), spec)
            reason = f"in the width that {op.label} computes in"
            placed[site.value.original, spec] = model.quant.place(site, shared, reason)


def _fit_range(model: Model, units: UnitMap, op: Op) -> None:
    rule, result = units.unit_of(op).rule, next(iter(op.outputs), None)
    held = model.quant.of_value(result) if result is not None and rule.output_ranges else None
    if held is not None and not held.frozen:
        spec = replace(held.spec, fixed_range=rule.range_in(held.spec.format))
        if spec != held.spec:
            model.quant.respec(held, spec, "the range that the target has in this width")


def _width_of(model: Model, op: Op) -> int | None:
    """The bits of the result of an op, and if that has no grid, most that it reads; None if all is float."""
    values = [value for value in op.outputs if value is not None and is_plain_float(value)]
    if not values:
        ports = enumerate(op.inputs)
        found = [model.quant.of_use(value, op, port) for port, value in ports if value is not None]
    else:
        found = [model.quant.of_value(value) for value in values]
    formats = [one.spec.format for one in found if one is not None]
    return max((one.bits for one in formats if isinstance(one, IntFormat)), default=None)


def _read(model: Model, units: UnitMap, op: Op) -> Iterator[tuple[Site, Quantizer]]:
    """Where an op reads data in integers: no weights, biases or constants with a format of their own."""
    unit = units.unit_of(op)
    for port, value in enumerate(op.inputs):
        if value is None or not is_plain_float(value):
            continue
        is_constant = value.original.const is not None
        is_trained = units.is_weight(unit, op, port) or units.is_bias(unit, value, op, port)
        if is_constant and (is_trained or unit.rule.constant is not None):
            continue
        held = model.quant.of_use(value, op, port)
        if held is not None and isinstance(held.spec.format, IntFormat) and not held.spec.derived:
            yield Site(value, op, port), held
