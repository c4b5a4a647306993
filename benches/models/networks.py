"""Float ONNX models with the shapes of well-known networks and seeded random weights, built in seconds.

Their outputs mean nothing; their operators, shapes and value ranges are those of the real networks, so they
serve to measure time and memory. Every model takes ``x``, float32 (1, 3, 224, 224), and gives ``logits``,
float32 (1, 1000), in opset 17. Weights are drawn so that activations stay of the order of one.

Topologies: ResNet-50 v1.5 (He et al., arXiv:1512.03385, stride in the 3x3 convolution), MobileNetV2
(Sandler et al., arXiv:1801.04381), ViT-B/16 (Dosovitskiy et al., arXiv:2010.11929).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = (1, 3, 224, 224)
CLASSES = 1000


def use_batch(size: int) -> None:
    """Models and feeds that are made from now on take so many images at once."""
    global IMAGE
    IMAGE = (size, *IMAGE[1:])


class Builder:
    """Appends nodes to a growing graph; every method takes and returns names of values."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(seed)

    def constant(self, array: np.ndarray | np.generic, hint: str = "constant") -> str:
        """Adds an initializer."""
        name = f"{hint}_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def normal(
        self, shape: tuple[int, ...], deviation: float, mean: float = 0.0, hint: str = "weight"
    ) -> str:
        """Adds an initializer of normally distributed float32 values."""
        values = self.random.standard_normal(shape, np.float32)
        return self.constant(values * np.float32(deviation) + np.float32(mean), hint)

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node with one output."""
        return self.nodes_with(op_type, inputs, 1, attributes)[0]

    def nodes_with(
        self, op_type: str, inputs: tuple[str, ...], outputs: int, attributes: dict[str, Any]
    ) -> list[str]:
        """Adds one node with several outputs."""
        name = f"{op_type}_{len(self.nodes)}"
        results = [f"{name}:{i}" if outputs > 1 else name for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), results, name, **attributes))
        return results

    def model(self, name: str) -> onnx.ModelProto:
        """Closes the graph: the last node gives its only output."""
        self.nodes[-1].output[0] = "logits"
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE)
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])
        graph = helper.make_graph(self.nodes, name, [x], [logits], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class ConvBuilder(Builder):
    """Convolutional networks, with BatchNorm as nodes of its own or already folded."""

    def __init__(self, seed: int, batch_norm: bool) -> None:
        super().__init__(seed)
        self.batch_norm = batch_norm

    def conv(
        self,
        x: str,
        channels: tuple[int, int],
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        gain: float = 2.0,
    ) -> str:
        """Conv with same padding and BatchNorm. ``gain`` is the ratio of output to input power."""
        inputs, outputs = channels
        fan_in = inputs // groups * kernel * kernel
        weight = self.normal((outputs, inputs // groups, kernel, kernel), (gain / fan_in) ** 0.5)
        attributes = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [kernel // 2] * 4,
            "group": groups,
        }
        if not self.batch_norm:
            return self.node("Conv", x, weight, self.normal((outputs,), 0.1, hint="bias"), **attributes)
        y = self.node("Conv", x, weight, **attributes)
        scale = self.normal((outputs,), 0.1, 1.0, "scale")
        bias = self.normal((outputs,), 0.1, hint="bias")
        mean = self.normal((outputs,), 0.1, hint="mean")
        variance = self.constant(self.random.uniform(0.8, 1.25, outputs).astype(np.float32), "variance")
        return self.node("BatchNormalization", y, scale, bias, mean, variance)

    def classifier(self, x: str, channels: int) -> None:
        """Global average pooling and a fully connected layer."""
        x = self.node("Flatten", self.node("GlobalAveragePool", x))
        weight = self.normal((CLASSES, channels), channels**-0.5)
        self.node("Gemm", x, weight, self.normal((CLASSES,), 0.1, hint="bias"), transB=1)


def resnet50(batch_norm: bool = False, seed: int = 0) -> onnx.ModelProto:
    """ResNet-50 v1.5: 53 convolutions, 16 residual additions."""
    b = ConvBuilder(seed, batch_norm)
    x = b.node("Relu", b.conv("x", (3, 64), 7, 2))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = 64
    for width, repeats, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(repeats):
            stride = first_stride if i == 0 else 1
            shortcut = b.conv(x, (inputs, 4 * width), 1, stride, gain=1.0) if i == 0 else x
            y = b.node("Relu", b.conv(x, (inputs, width), 1))
            y = b.node("Relu", b.conv(y, (width, width), 3, stride))
            y = b.conv(y, (width, 4 * width), 1, gain=0.5)
            x = b.node("Relu", b.node("Add", y, shortcut))
            inputs = 4 * width
    b.classifier(x, inputs)
    return b.model("resnet50")


def mobilenet_v2(batch_norm: bool = False, seed: int = 0) -> onnx.ModelProto:
    """MobileNetV2 of width 1: 52 convolutions of which 17 depthwise, Clip(0, 6), 10 residual additions."""
    b = ConvBuilder(seed, batch_norm)
    low, high = b.constant(np.float32(0), "low"), b.constant(np.float32(6), "high")

    def active(x: str, channels: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1) -> str:
        return b.node("Clip", b.conv(x, channels, kernel, stride, groups), low, high)

    x = active("x", (3, 32), 3, 2)
    inputs = 32
    settings = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, outputs, repeats, first_stride in settings:
        for i in range(repeats):
            wide = inputs * expansion
            y = active(x, (inputs, wide), 1) if expansion > 1 else x
            y = active(y, (wide, wide), 3, first_stride if i == 0 else 1, wide)
            y = b.conv(y, (wide, outputs), 1, gain=1.0)
            x = b.node("Add", x, y) if i else y
            inputs = outputs
    b.classifier(active(x, (inputs, 1280), 1), 1280)
    return b.model("mobilenet_v2")


class TransformerBuilder(Builder):
    """The blocks of a vision transformer, as PyTorch exports them: one MatMul for query, key and value."""

    def linear(self, x: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        """MatMul and Add."""
        y = self.node("MatMul", x, self.normal((inputs, outputs), (gain / inputs) ** 0.5))
        return self.node("Add", y, self.normal((outputs,), 0.1, hint="bias"))

    def norm(self, x: str, width: int) -> str:
        """LayerNormalization over the last axis."""
        scale = self.normal((width,), 0.1, 1.0, "scale")
        return self.node("LayerNormalization", x, scale, self.normal((width,), 0.1, hint="bias"), axis=-1)

    def gelu(self, x: str) -> str:
        """GELU written out with Erf."""
        y = self.node("Erf", self.node("Div", x, self.constant(np.float32(2**0.5))))
        y = self.node("Mul", x, self.node("Add", y, self.constant(np.float32(1))))
        return self.node("Mul", y, self.constant(np.float32(0.5)))

    def attention(self, x: str, width: int, heads: int, tokens: int) -> str:
        """Multi-head self-attention of a (1, tokens, width) value."""
        size = width // heads
        qkv = self.linear(x, width, 3 * width, gain=2.0)
        qkv = self.node("Reshape", qkv, self.constant(np.array([IMAGE[0], tokens, 3, heads, size]), "shape"))
        qkv = self.node("Transpose", qkv, perm=[2, 0, 3, 1, 4])
        first = self.constant(np.array([0]), "axis")
        parts = self.nodes_with("Split", (qkv, self.constant(np.array([1, 1, 1]), "split")), 3, {"axis": 0})
        query, key, value = (self.node("Squeeze", part, first) for part in parts)
        query = self.node("Mul", query, self.constant(np.float32(size**-0.5)))
        scores = self.node("MatMul", query, self.node("Transpose", key, perm=[0, 1, 3, 2]))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        mixed = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = self.node("Reshape", mixed, self.constant(np.array([IMAGE[0], tokens, width]), "shape"))
        return self.linear(mixed, width, width)

    def mlp(self, x: str, width: int) -> str:
        """Two linear layers with GELU between; four times as wide inside."""
        return self.linear(self.gelu(self.linear(x, width, 4 * width)), 4 * width, width)


def vit_b16(seed: int = 0) -> onnx.ModelProto:
    """ViT-B/16: 12 blocks of width 768, 12 heads, 197 tokens; LayerNormalization fused, GELU written out."""
    width, heads, patch = 768, 12, 16
    tokens = (IMAGE[2] // patch) ** 2 + 1
    b = TransformerBuilder(seed)
    kernel = b.normal((width, 3, patch, patch), (3 * patch * patch) ** -0.5)
    x = b.node(
        "Conv",
        "x",
        kernel,
        b.normal((width,), 0.1, hint="bias"),
        kernel_shape=[patch] * 2,
        strides=[patch] * 2,
    )
    x = b.node("Reshape", x, b.constant(np.array([IMAGE[0], width, tokens - 1]), "shape"))
    x = b.node("Transpose", x, perm=[0, 2, 1])
    x = b.node("Concat", b.normal((IMAGE[0], 1, width), 0.5, hint="class_token"), x, axis=1)
    x = b.node("Add", x, b.normal((1, tokens, width), 0.3, hint="position"))
    for _ in range(12):
        x = b.node("Add", x, b.attention(b.norm(x, width), width, heads, tokens))
        x = b.node("Add", x, b.mlp(b.norm(x, width), width))
    x = b.node("Gather", b.norm(x, width), b.constant(np.array(0), "index"), axis=1)
    weight = b.normal((CLASSES, width), width**-0.5)
    b.node("Gemm", x, weight, b.normal((CLASSES,), 0.1, hint="bias"), transB=1)
    return b.model("vit_b16")


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": resnet50,
    "mobilenetv2": mobilenet_v2,
    "vit": vit_b16,
}


def feeds(count: int, seed: int = 1) -> Iterator[dict[str, np.ndarray]]:
    """Yields ``count`` feeds of normally distributed pixels, made one at a time."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield {"x": random.standard_normal(IMAGE, np.float32)}
