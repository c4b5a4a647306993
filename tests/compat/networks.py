"""Small networks with the names that exporters give, and data for them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import ModelProto
from support.graph_text import build_model

Feed = dict[str, np.ndarray]


def network() -> ModelProto:
    """A convolution with bias and Relu, a Flatten, and a matrix product with a bias."""
    random = np.random.default_rng(0)
    body = """
    c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, conv_weight, conv_bias)
    r = Relu(c)
    f = Flatten(r)
    y = Gemm(f, fc_weight, fc_bias)
    """
    shapes = {"conv_weight": (4, 3, 3, 3), "conv_bias": (4,), "fc_weight": (64, 10), "fc_bias": (10,)}
    constants = {name: random.normal(size=shape) for name, shape in shapes.items()}
    proto = typed(build_model(body, inputs="float[1,3,4,4] x", constants=constants))
    for node, name in zip(proto.graph.node, ("conv", "relu", "flatten", "fc"), strict=True):
        node.name = name
        node.input[:] = [name.replace("_", ".") for name in node.input]
    for tensor in proto.graph.initializer:
        tensor.name = tensor.name.replace("_", ".")
    return proto


def feeds(count: int = 4) -> list[Feed]:
    """Random inputs of the network."""
    return [
        {"x": np.random.default_rng(i).normal(size=(1, 3, 4, 4)).astype(np.float32)} for i in range(count)
    ]


def typed(model: ModelProto) -> ModelProto:
    """The model with types of its outputs, which the ONNX checker wants."""
    return onnx.shape_inference.infer_shapes(model)
