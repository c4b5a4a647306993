"""Questions about the graph of a model."""

from __future__ import annotations

from .connectedgraph import ConnectedGraph
from .operations import Op

ActivationTypes = ["Relu", "Clip", "Sigmoid", "Tanh", "PRelu", "Softmax"]


def get_op_given_param_name(connected_graph: ConnectedGraph, param_name: str) -> Op | None:
    """The first op that a parameter belongs to; None if there is none."""
    return next((op for op in connected_graph.ordered_ops if param_name in op.parameters), None)


def get_param_shape_using_connected_graph(
    connected_graph: ConnectedGraph, param_name: str
) -> list[int] | None:
    """The sizes of a parameter; None if there is none of that name."""
    op = get_op_given_param_name(connected_graph, param_name)
    return op.parameters[param_name][0].shape if op is not None else None


def get_module_act_func_pair(graph: ConnectedGraph) -> dict[str, str]:
    """The activations right behind ops: the names of the ops, and the types of the activations."""
    behind = {op.name: op.output_ops[0].type for op in graph.ordered_ops if op.output_ops}
    return {name: kind for name, kind in behind.items() if kind in ActivationTypes}
