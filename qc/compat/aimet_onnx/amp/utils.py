"""How often the layers of a simulation multiply, and what that costs in a candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ..common.amp.utils import Candidate, candidate_cost
from ..meta.connectedgraph import ConnectedGraph
from ..meta.operations import Op
from ..simulation.quantized_model import QuantizedModel
from .quantizer_groups import QuantizerGroup

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class LayerSizes:
    """The sizes of a layer.

    Attributes:
        weight_shape: of its weight.
        output_shape: batch, channels, and two sizes of the places where the weight is applied.
    """

    weight_shape: list[int]
    output_shape: tuple[int, ...]


def find_layer_database_for_mac_calculation(sim: QuantizedModel) -> dict[str, LayerSizes]:
    """The convolutions and products by constant weights, by the names of the ops."""
    found = {}
    for op in sim.connected_graph.ordered_ops:
        weight = next((one for one, kind in op.parameters.values() if kind == "weight"), None)
        if op.type in _LAYERS and weight is not None and weight.shape and op.outputs:
            found[op.name] = LayerSizes(list(weight.shape), _places(op, len(weight.shape)))
    return found


def _places(op: Op, axes: int) -> tuple[int, ...]:
    """The sizes of a result as those of a convolution in two dimensions."""
    known = op.inputs[0].shape if op.type == "ConvTranspose" else op.outputs[0].shape
    shape = [max(size, 1) for size in known or [1, 1]]  # what is not known counts once
    if axes > 2:
        return shape[0], shape[1], shape[2] if len(shape) > 2 else 1, prod(shape[3:])
    return 1, shape[-1], prod(shape[:-1]), 1


def create_mac_dict(sim: QuantizedModel) -> dict[str, int]:
    """How often each layer multiplies, by the name of the op."""
    layers = find_layer_database_for_mac_calculation(sim)
    return {name: prod(one.output_shape[2:]) * prod(one.weight_shape) for name, one in layers.items()}


def find_param_name_to_parent_name_dict(connected_graph: ConnectedGraph) -> dict[str, str]:
    """The names of the ops that have the weights, by the names of these."""
    return {
        product.name: op.name
        for op in connected_graph.ordered_ops
        for product, kind in op.parameters.values()
        if kind == "weight"
    }


def get_quantizer_to_op_type_dict(sim: QuantizedModel) -> dict[str, list[str]]:
    """The type of the op that makes a tensor, or else of the one that reads it, by the name of the tensor."""
    found: dict[str, list[str]] = {}
    for op in sim.connected_graph.ordered_ops:
        for product in op.inputs:
            found.setdefault(product.name, [op.type])
        for product in op.outputs:
            found[product.name] = [op.type]
    return {name: types for name, types in found.items() if name in sim.qc_quantize_op_dict}


def calculate_running_bit_ops(
    mac_dict: Mapping[str, int],
    quantizer_group: QuantizerGroup,
    param_name_to_parent_name_dict: Mapping[str, str],
    op_bw_dict: dict[str, Candidate],
    max_candidate: Candidate,
    new_candidate: Candidate,
    running_bit_ops: float,
) -> float:
    """What all multiplications cost when a group has another candidate.

    Args:
        mac_dict: how often each op multiplies.
        param_name_to_parent_name_dict: the op of each weight.
        op_bw_dict: what ops have now; it is brought up to date. Others have ``max_candidate``.
        running_bit_ops: what all cost now.
    """
    activation, parameter = new_candidate
    for name in quantizer_group.parameter_quantizers:
        op = param_name_to_parent_name_dict.get(name)
        if op not in mac_dict or op is None:
            continue
        before = op_bw_dict.get(op, max_candidate)
        after = activation if quantizer_group.activation_quantizers else before[0], parameter
        running_bit_ops += mac_dict[op] * (candidate_cost(*after) - candidate_cost(*before))
        op_bw_dict[op] = after
    return running_bit_ops


def find_bit_ops_reduction(
    quantizer_group: QuantizerGroup,
    mac_dict: Mapping[str, int],
    param_name_to_parent_dict: Mapping[str, str],
    max_candidate: Candidate,
    candidate: Candidate,
) -> float:
    """What a candidate saves in one group."""
    known: dict[str, Candidate] = {}
    arguments = mac_dict, quantizer_group, param_name_to_parent_dict, known
    return -calculate_running_bit_ops(*arguments, max_candidate, candidate, 0)
