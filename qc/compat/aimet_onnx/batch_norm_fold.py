"""Folding of batch normalizations, in place as AIMET-ONNX does it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, NodeProto, numpy_helper
from onnxruntime.quantization.onnx_model import ONNXModel

import qc
from qc.ir.errors import listed
from qc.ir.onnx.protos import walk_graphs
from qc.passes.simplify.batch_norms.forward import FORWARD

from .errors import ArgumentError
from .meta.connectedgraph import ConnectedGraph
from .utils import ParamUtils

Pairs = list[tuple[NodeProto, NodeProto]]


@dataclass
class BNLayer:
    """A BatchNormalization that was folded away.

    Attributes:
        bn_layer: its node.
        gamma, beta: its scale and its shift; shape ``(channels,)``.
    """

    bn_layer: NodeProto = field(default_factory=NodeProto)
    gamma: np.ndarray = field(default_factory=lambda: np.ones(()))
    beta: np.ndarray = field(default_factory=lambda: np.zeros(()))


Folded = list[tuple[NodeProto, BNLayer]]


def fold_all_batch_norms_to_weight(model: ModelProto | ONNXModel) -> tuple[Folded, Folded]:
    """Folds every BatchNormalization that it can into the op before it or behind it; the model is changed.

    Weights keep their names. A MatMul becomes a Gemm, which has a bias, also by its name. What was exported
    in training mode is taken for inference, with a UserWarning, as AIMET takes it.

    Returns:
        The pairs of an op, as it is now, and the BatchNormalization behind it that was folded into it; and
        those of an op and the BatchNormalization in front of it.
    """
    proto = model.model if isinstance(model, ONNXModel) else model
    _end_training(proto)
    before, behind = _makers(proto), _readers(proto)
    products = {node.name for node in proto.graph.node if node.op_type == "MatMul"}
    compiled = qc.compile(proto, "fold-batch-norms")
    folded, removed = compiled.float_model, compiled.ir.journal.removed
    went_forward = {tensor for tensor, remark in removed.items() if remark.reason == FORWARD}
    left = {tuple(node.input) for node in folded.graph.node if node.op_type == "BatchNormalization"}
    norms = [node for node in proto.graph.node if node.op_type == "BatchNormalization"]
    gone = [_copy(node) for node in norms if tuple(node.input) not in left]
    forward = [norm for norm in gone if norm.output[0] in went_forward]
    layers = {norm.output[0]: _layer(proto, norm) for norm in gone}
    _name_products(folded, products)
    made = _makers(folded)
    pairs = [
        (_made_by(made, before[norm.input[0]].output[0], norm.output[0]), layers[norm.output[0]])
        for norm in gone
        if norm not in forward
    ]
    pairs_behind = [(_made_by(made, *_results(behind, norm)), layers[norm.output[0]]) for norm in forward]
    proto.CopyFrom(folded)
    return pairs, pairs_behind


def find_all_batch_norms_to_fold(connected_graph: ConnectedGraph) -> tuple[Pairs, Pairs]:
    """What :func:`fold_all_batch_norms_to_weight` would fold, as nodes of the model, which stays as it is.

    Returns:
        The pairs of an op and the BatchNormalization behind it; and those of a BatchNormalization and the op
        behind it, in this order.
    """
    if connected_graph.model is None:
        raise ArgumentError("the graph of a simulation has quantizers; give ConnectedGraph(model)")
    given, proto = connected_graph.model, ModelProto()
    model = given.model if isinstance(given, ONNXModel) else given
    proto.CopyFrom(model)
    before, behind = _makers(model), _readers(model)
    backward, forward = fold_all_batch_norms_to_weight(proto)
    return (
        [(before[norm.input[0]], before[norm.output[0]]) for norm in _nodes(backward)],
        [(before[norm.output[0]], _weighted(behind, norm)) for norm in _nodes(forward)],
    )


fold_all_batch_norms = fold_all_batch_norms_to_weight  # the name for other frameworks


def _end_training(model: ModelProto) -> None:
    """Lets every BatchNormalization use the statistics that it stores, unless its new ones are read."""
    read = {name for graph in walk_graphs(model.graph) for node in graph.node for name in node.input}
    read |= {info.name for info in model.graph.output}
    ended = []
    for node in model.graph.node:
        mode = [one for one in node.attribute if one.name == "training_mode" and one.i]
        more = [name for name in node.output[1:] if name]
        if node.op_type == "BatchNormalization" and (mode or more) and read.isdisjoint(more):
            for one in mode:
                node.attribute.remove(one)
            del node.output[1:]
            ended.append(f"'{node.name or node.output[0]}'")
    if ended:
        warnings.warn(
            f"{listed(ended, 1)}, exported in training mode, would measure mean and variance of the "
            "data: what is stored for inference is used instead",
            UserWarning,
            stacklevel=3,
        )


def _nodes(pairs: Folded) -> list[NodeProto]:
    return [layer.bn_layer for _, layer in pairs]


def _layer(model: ModelProto, norm: NodeProto) -> BNLayer:
    gamma, beta = (ParamUtils.get_param_by_name(model, name) for name in norm.input[1:3])
    assert gamma is not None and beta is not None  # else it could not be folded
    return BNLayer(norm, numpy_helper.to_array(gamma), numpy_helper.to_array(beta))


def _makers(model: ModelProto) -> dict[str, NodeProto]:
    return {output: node for node in model.graph.node for output in node.output}


def _readers(model: ModelProto) -> dict[str, NodeProto]:
    return {node.input[0]: node for node in model.graph.node if node.input}


def _weighted(behind: dict[str, NodeProto], norm: NodeProto) -> NodeProto:
    """The op behind a normalization that takes it in; what only flattens is passed over."""
    node = behind[norm.output[0]]
    return behind[node.output[0]] if node.op_type in ("Flatten", "Reshape") else node


def _results(behind: dict[str, NodeProto], norm: NodeProto) -> list[str]:
    """What the op behind a normalization makes, and what a normalization behind that makes.

    Both may have been folded into the op.
    """
    product = _weighted(behind, norm)
    reader = behind.get(product.output[0])
    return [product.output[0], *(reader.output[:1] if reader is not None else ())]


def _made_by(made: dict[str, NodeProto], *tensors: str) -> NodeProto:
    """The op that makes the first of some tensors that is there."""
    return _copy(next(made[tensor] for tensor in tensors if tensor in made))


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _name_products(model: ModelProto, products: set[str]) -> None:
    """Names what was a MatMul after the Gemm that it has become, and its bias after that."""
    biases = {}
    for node in model.graph.node:
        if node.op_type == "Gemm" and node.name in products:
            name = node.name.replace("MatMul", "Gemm")
            if len(node.input) > 2 and node.input[2].startswith(f"{node.name}.bias"):
                biases[node.input[2]] = node.input[2] = f"{name}.bias"
            node.name = name
    for tensor in model.graph.initializer:
        tensor.name = biases.get(tensor.name, tensor.name)
