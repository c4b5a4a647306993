"""The graph of a simulation in AIMET's words: ops in order, what they read and make, and their quantizers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import NodeProto

from qc.ir.errors import UsageError, nearest
from qc.passes.quantize.quantsim.nodes import Node

from .placement import Placement
from .qc_quantize_op import QcQuantizeOp

OpQuantizers = tuple[list[QcQuantizeOp], list[QcQuantizeOp], dict[str, QcQuantizeOp]]


@dataclass(frozen=True, eq=False)
class Op:
    """An op of the model, or several that the configuration counts as one.

    Attributes:
        name: of the op, or of the last of several.
        type: the type that it counts as.
        inputs, outputs: names of the tensors that it reads and makes, parameters included.
        parameters: names of the trained parameters among its inputs, by kind, such as ``weight``.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: dict[str, str] = field(default_factory=dict)

    @property
    def dotted_name(self) -> str:
        """The name, as AIMET calls it too."""
        return self.name


class ConnectedGraph:
    """The ops of a simulation.

    Attributes:
        ordered_ops: in topological order.
    """

    def __init__(self, placement: Placement) -> None:
        self.ordered_ops = [_op(placement, node) for node in placement.nodes.nodes]

    def get_all_ops(self) -> Mapping[str, Op]:
        """The ops by name."""
        return {op.name: op for op in self.ordered_ops}

    def get_op_from_module_name(self, name: str) -> Op | None:
        """The op of a name; None if there is none."""
        return self.get_all_ops().get(name)


def quantizers_of(placement: Placement, op: Op | NodeProto | str) -> OpQuantizers:
    """The quantizers, on or off, of what an op reads, of what it makes, and of its parameters by kind.

    What another op makes is quantized there, and does not count as read.

    Args:
        op: of :class:`ConnectedGraph`, a node of the model, or its name.

    Raises:
        UsageError: the model has no such op.
    """
    name = op if isinstance(op, str) else op.name
    graph = ConnectedGraph(placement)
    known = graph.get_all_ops()
    if name not in known:
        raise UsageError(f"the model has no op '{name}'{nearest(name, list(known))}")
    found = known[name]
    elsewhere = {made for one in graph.ordered_ops for made in one.outputs} | set(found.parameters.values())
    read = (tensor for tensor in found.inputs if tensor in placement.ops and tensor not in elsewhere)
    made = (tensor for tensor in found.outputs if tensor in placement.ops)
    return (
        [placement.ops[tensor] for tensor in read],
        [placement.ops[tensor] for tensor in made],
        {kind: placement.ops[tensor] for kind, tensor in found.parameters.items()},
    )


def _op(placement: Placement, node: Node) -> Op:
    parameters = {
        parameter.slot: parameter.value.name
        for parameter in placement.nodes.parameters(node)
        if parameter.value.name in placement.ops
    }
    made = tuple(value.name for value in node.made)
    name = node.ops[-1].name or (made[0] if made else node.op_type)
    return Op(
        name, node.op_type, tuple(value.name for value in node.inputs if value is not None), made, parameters
    )
