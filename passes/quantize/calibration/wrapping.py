"""Grids of joins on devices whose codes wrap around."""

from __future__ import annotations

from functools import partial

from qc.ir.facts.op_traits import joins_grids
from qc.ir.graph import Op
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, Quantizer, QuantSpec

from ...framework.target import Target
from ..placement.units import UnitMap
from .calibration import Calibration, CalibrationPass
from .covered import Range


def hold_what_is_joined(calibration: Calibration, target: Target) -> None:
    """Lets the grid of what a join makes hold the grids of what it reads, where codes beyond wrap around.

    The search for a range may clip the result more than each of its parts.

    Args:
        calibration: whose quantizers have their grids.
        target: says which joins wrap (``wraps``).
    """
    units = UnitMap(calibration.model, target)
    for op in units.scopes.ops:
        if joins_grids(op) and units.unit_of(op).rule.wraps and units.runs_integer(op):
            _hold(calibration, op)


def _hold(calibration: Calibration, op: Op) -> None:
    quant, result = calibration.model.quant, op.outputs[0]
    made = quant.of_value(result) if result is not None else None
    if made is None or made.is_fixed or not _has_integers(made):
        return
    ports = enumerate(op.inputs)
    read = (quant.of_use(value, op, port) for port, value in ports if value is not None)
    parts = [_range(one) for one in read if one is not None and one is not made and _has_integers(one)]
    low, high = _range(made)
    lowest, highest = (
        min((part[0] for part in parts), default=low),
        max((part[1] for part in parts), default=high),
    )
    if lowest < low or highest > high:
        wider = min(low, lowest), max(high, highest)
        reason = f"codes beyond it wrap around in {op.label}"
        calibration.set(made, partial(_around, calibration.grids, wider), reason)


def _around(grids: CalibrationPass, wanted: Range, spec: QuantSpec) -> Encoding:
    """A grid that holds a range wholly, also where the zero point moves an end of it."""
    made, step = grids.of_range(spec, *wanted), (wanted[1] - wanted[0]) / 2**spec.format.bits
    low = wanted[0] - step * (float(made.minimum) > wanted[0])
    high = wanted[1] + step * (float(made.maximum) < wanted[1])
    return grids.of_range(spec, low, high)


def _has_integers(quantizer: Quantizer) -> bool:
    return quantizer.encoding is not None and isinstance(quantizer.spec.format, IntFormat)


def _range(quantizer: Quantizer) -> Range:
    assert quantizer.encoding is not None
    return float(quantizer.encoding.minimum.min()), float(quantizer.encoding.maximum.max())
