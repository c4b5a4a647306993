"""Graphs of any number of ops, to measure what grows with them: chains, and transformers with tiny weights.

The blocks of these are written out as TorchScript exports them: LayerNorm in nine ops, GELU by Erf in five,
attention with three projections, scale, additive mask and Softmax. All blocks read the same few weights, so
those have thousands of readers, and the model stays small beside its nodes. ONNX Runtime can run it.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx
from onnx import TensorProto, helper

from .networks import Builder

BATCH, TOKENS, HEADS, SIZE = 1, 4, 2, 4
WIDTH = HEADS * SIZE
OPS_PER_BLOCK = 50


class LargeTransformer(Builder):
    """Grows a pre-norm transformer block by block."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.make_weights()
        self.split_shape = self.constant(np.array([BATCH, TOKENS, HEADS, SIZE]), "shape")
        self.joined_shape = self.constant(np.array([BATCH, TOKENS, WIDTH]), "shape")
        self.temperature = self.constant(np.float32(SIZE**0.5), "temperature")
        self.numbers = {number: self.constant(np.float32(number)) for number in (2, 1e-5, 2**0.5, 1, 0.5)}

    def make_weights(self) -> None:
        """Those of the blocks that follow."""
        self.scale = self.normal((WIDTH,), 0.1, 1.0, "scale")
        self.bias = self.normal((WIDTH,), 0.1, hint="bias")
        self.square_weight = self.normal((WIDTH, WIDTH), 0.3)
        self.wide_weight = self.normal((WIDTH, 2 * WIDTH), 0.3)
        self.wide_bias = self.normal((2 * WIDTH,), 0.1, hint="bias")
        self.narrow_weight = self.normal((2 * WIDTH, WIDTH), 0.1)

    def norm(self, x: str) -> str:
        """LayerNorm over the last axis, written out: 9 ops."""
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        variance = self.node("ReduceMean", self.node("Pow", centred, self.numbers[2]), axes=[-1])
        deviation = self.node("Sqrt", self.node("Add", variance, self.numbers[1e-5]))
        scaled = self.node("Mul", self.node("Div", centred, deviation), self.scale)
        return self.node("Add", scaled, self.bias)

    def linear(self, x: str, weight: str, bias: str) -> str:
        """MatMul and Add: 2 ops."""
        return self.node("Add", self.node("MatMul", x, weight), bias)

    def gelu(self, x: str) -> str:
        """GELU by Erf: 5 ops."""
        erf = self.node("Erf", self.node("Div", x, self.numbers[2**0.5]))
        return self.node(
            "Mul", self.node("Mul", x, self.node("Add", erf, self.numbers[1])), self.numbers[0.5]
        )

    def attention(self, x: str) -> str:
        """Multi-head attention with an additive mask: 20 ops."""
        query, key, value = (self._head(x, perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = self.node("Div", self.node("MatMul", query, key), self.temperature)
        weights = self.node("Softmax", self.node("Add", scores, "mask"), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.linear(self.node("Reshape", mixed, self.joined_shape), self.square_weight, self.bias)

    def _head(self, x: str, perm: list[int]) -> str:
        projected = self.linear(x, self.square_weight, self.bias)
        return self.node("Transpose", self.node("Reshape", projected, self.split_shape), perm=perm)

    def block(self, x: str) -> str:
        """Attention and a two-layer perceptron, each after a norm and with a residual: 50 ops."""
        x = self.node("Add", x, self.attention(self.norm(x)))
        wide = self.gelu(self.linear(self.norm(x), self.wide_weight, self.wide_bias))
        return self.node("Add", x, self.linear(wide, self.narrow_weight, self.bias))


def transformer(ops: int) -> onnx.ModelProto:
    """A transformer of about that many ops, at least one block (50 ops).

    Inputs: ``x``, float32 (1, 4, 8), and ``mask``, float32 (1, 1, 4, 4). Output: ``y``, like ``x``. Opset 16.
    """
    return model_of_blocks(LargeTransformer(0), max(1, round(ops / OPS_PER_BLOCK)))


def model_of_blocks(builder: LargeTransformer, blocks: int) -> onnx.ModelProto:
    """The model of so many blocks of a builder; its interface is that of :func:`transformer`."""
    x = "x"
    for _ in range(blocks):
        x = builder.block(x)
    builder.nodes[-1].output[0] = "y"
    shapes = {"x": [BATCH, TOKENS, WIDTH], "mask": [BATCH, 1, TOKENS, TOKENS], "y": [BATCH, TOKENS, WIDTH]}
    given, mask, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
    )
    graph = helper.make_graph(builder.nodes, "transformer", [given, mask], [result], builder.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


def chain(length: int, consumers: int = 1) -> onnx.ModelProto:
    """Ops in a row, and then some that all read the last one."""
    names = ["x", *(f"v{i}" for i in range(length))]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in itertools.pairwise(names)]
    results = [f"y{i}" for i in range(consumers)]
    nodes += [helper.make_node("Sigmoid", [names[-1]], [name]) for name in results]
    given, *made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", *results))
    graph = helper.make_graph(nodes, "chain", [given], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
