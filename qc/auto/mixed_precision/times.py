"""What choices take beside the float model, by the costs of a target."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from qc.ir.model import Model
from qc.passes import PassContext
from qc.passes.framework.target import Target
from qc.passes.quantize.placement.selection import op_names
from qc.passes.quantize.placement.shapes import estimated_shapes
from qc.passes.quantize.placement.unit import Unit
from qc.passes.quantize.placement.units import UnitMap
from qc.passes.quantize.placement.weighing import Weighing

from .groups import Group


class Times:
    """The estimated times of a model in which some groups run in float and the others in integers.

    Args:
        model: with quantizers.
        groups: of these.
        target: one that has costs.
        context: data and an executor, for shapes that the model leaves free.
    """

    def __init__(self, model: Model, groups: Sequence[Group], target: Target, context: PassContext) -> None:
        assert target.costs is not None
        units = UnitMap(model, target)
        shape_of = estimated_shapes(model, context, target.costs.free_length)
        self._weighing = Weighing(units, target.costs, shape_of, target.name)
        names = op_names(model)
        of_op = {op: number for number, group in enumerate(groups) for op in group.ops}
        self._units: list[list[Unit]] = [[] for _ in groups]
        for unit in units.integer:
            if names[unit.root] in of_op and _reads_grids(model, units, unit):
                self._units[of_op[names[unit.root]]].append(unit)

    def of(self, floats: Collection[int]) -> float:
        """The time beside that of the float model, 1 if nothing that costs is known.

        Args:
            floats: the numbers of the groups that run in float.
        """
        return self._nanoseconds(floats) / self._float if self._float else 1.0

    @cached_property
    def extra(self) -> tuple[float, ...]:
        """What each group takes longer if it alone is in float, beside the float model; 0 if it does not."""
        whole = self.of(())
        return tuple(max(0.0, self.of((number,)) - whole) for number in range(len(self._units)))

    @cached_property
    def _float(self) -> float:
        return self._nanoseconds(range(len(self._units)))

    def _nanoseconds(self, floats: Collection[int]) -> float:
        integer = (units for number, units in enumerate(self._units) if number not in floats)
        return self._weighing.nanoseconds(dict.fromkeys(unit for units in integer for unit in units))


def _reads_grids(model: Model, units: UnitMap, unit: Unit) -> bool:
    """Whether the data of a unit is quantized; weights alone may be, and then it runs in float."""
    data = (one for one in units.inputs(unit) if one.value.original.const is None)
    return any(model.quant.of_use(value, op, port) is not None for value, op, port in data)
