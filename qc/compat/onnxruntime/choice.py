"""``op_types_to_quantize``, ``nodes_to_quantize`` and ``nodes_to_exclude``: which ops have quantizers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from qc.ir.errors import UsageError, nearest
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.passes.quantize.insert_quantizers import InsertQuantizers
from qc.passes.quantize.placement.unit import Reason

_NO_OPTION: dict[str, Any] = {"option": False}
_NAMES = ("op_types_to_quantize", "nodes_to_quantize", "nodes_to_exclude")


@dataclass(frozen=True)
class InsertChosenQuantizers(InsertQuantizers):
    """Places quantizers at the ops that a configuration chooses, of the model as it is by then.

    What a device runs as one op, such as a Conv and its Relu, is chosen by its first op: scripts name types
    as ``["Conv", "MatMul"]``, and mean no biases by leaving Add out.

    Attributes:
        op_types_to_quantize, nodes_to_quantize: the only ones, if any are given.
        nodes_to_exclude: names of nodes to leave out.
        constant_matmul_only: products of two computed tensors are left out.
    """

    op_types_to_quantize: tuple[str, ...] = field(default=(), metadata=_NO_OPTION)
    nodes_to_quantize: tuple[str, ...] = field(default=(), metadata=_NO_OPTION)
    nodes_to_exclude: tuple[str, ...] = field(default=(), metadata=_NO_OPTION)
    constant_matmul_only: bool = field(default=False, metadata=_NO_OPTION)

    def left_out(self, model: Model) -> dict[Op, Reason]:
        """Raises UsageError: the model has no node, or no op, of a name that was given."""
        ops = [op for graph in model.graph.walk() for op in graph.ops()]
        self._check_names(model, ops)
        first = {op: region.ops[0] for region in model.regions for op in region.ops}
        reasons = {op: self._reason(op) for op in ops}
        chosen = ((op, reasons[first.get(op, op)]) for op in ops)
        return {op: Reason(f"{why} leaves it out", why) for op, why in chosen if why}

    def _reason(self, op: Op) -> str:
        """The argument that leaves an op out; empty if none does. One with bodies is what they are."""
        if not op.subgraphs:
            if self.op_types_to_quantize and op.op_type not in self.op_types_to_quantize:
                return "op_types_to_quantize"
            if self.nodes_to_quantize and op.name not in self.nodes_to_quantize:
                return "nodes_to_quantize"
        if op.name and op.name in self.nodes_to_exclude:
            return "nodes_to_exclude"
        return "MatMulConstBOnly" if self.constant_matmul_only and _is_product_of_data(op) else ""

    def _check_names(self, model: Model, ops: Collection[Op]) -> None:
        names = [op.name for op in ops if op.name]
        _refuse_strangers("op_types_to_quantize", self.op_types_to_quantize, [op.op_type for op in ops])
        _refuse_strangers("nodes_to_quantize", self.nodes_to_quantize, names)
        given = {node.name for node in model.origin.graph.node}
        for name in self.nodes_to_exclude:
            if name not in given and name not in names:
                raise UsageError(f"nodes_to_exclude: the model has no node '{name}'{nearest(name, names)}")


def placing_at_chosen(
    step: InsertQuantizers, config: Any, constant_matmul_only: bool = False
) -> InsertQuantizers:
    """A step that places quantizers, where a configuration says.

    Args:
        config: has the attributes ``op_types_to_quantize``, ``nodes_to_quantize`` and ``nodes_to_exclude``.

    Raises:
        UsageError: one name where there should be a list of names.
    """
    chosen = {name: getattr(config, name) or () for name in _NAMES}
    for name, given in chosen.items():
        if isinstance(given, str):
            raise UsageError(f"{name} is a list of names, not '{given}'")
    if not any(chosen.values()) and not constant_matmul_only:
        return step
    told: dict[str, Any] = {one.name: getattr(step, one.name) for one in fields(InsertQuantizers)}
    told |= {name: tuple(given) for name, given in chosen.items()}
    return InsertChosenQuantizers(**told, constant_matmul_only=constant_matmul_only)


def _is_product_of_data(op: Op) -> bool:
    factor = op.inputs[1] if op.op_type == "MatMul" else None
    return factor is not None and factor.original.const is None


def _refuse_strangers(argument: str, wanted: Collection[str], known: Iterable[str]) -> None:
    """Raises UsageError if nothing that is wanted is there."""
    known = list(dict.fromkeys(known))
    if wanted and not set(wanted) & set(known):
        name = next(iter(wanted))
        raise UsageError(f"{argument}: the model has no '{name}'{nearest(name, known)}")
