"""Small models, one for each kind of operator that quantizers are placed around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

_IMAGE = {"x": (1, 4, 6, 6)}
_ROWS = {"x": (3, 8)}
_WORDS = {"x": (2, 4, 8)}
_SEQUENCE = {"x": (5, 2, 8)}
# What is not random among the constants
_NUMBERS: Mapping[str, np.ndarray] = {
    "flat": np.array([1, 32]),
    "first": np.array([1]),
    "begin": np.array([0]),
    "end": np.array([2]),
    "margins": np.array([0, 1, 0, 1]),
    "two": np.float32(2),
    "epsilon": np.float32(1e-5),
    "root": np.float32(2.83),
    "low": np.float32(0),
    "high": np.float32(6),
    "scales": np.array([1, 1, 2, 2], np.float32),
    "variance": np.array([0.5, 1.0, 1.5, 2.0], np.float32),
}

# Nodes, inputs, the shapes of weights, outputs
_TEXTS: Mapping[str, tuple[str, Mapping[str, Sequence[int]], Mapping[str, Sequence[int]], str]] = {
    "convolution": (
        "c = Conv<pads=[1,1,1,1]>(x, w, b); r = Relu(c); y = Conv(r, v, d)",
        _IMAGE,
        {"w": (8, 4, 3, 3), "b": (8,), "v": (4, 8, 1, 1), "d": (4,)},
        "y",
    ),
    "product": (
        "m = MatMul(x, w); a = Add(m, b); r = Relu(a); g = Gemm<transB=1>(r, v, d); y = MatMul(g, u)",
        _ROWS,
        {"w": (8, 16), "b": (16,), "v": (8, 16), "d": (8,), "u": (8, 4)},
        "y",
    ),
    "movement": (
        "c = Conv(x, w, b); p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c);"
        "t = Transpose<perm=[0,2,3,1]>(p); q = Reshape(t, flat); one, other = Split<axis=1>(q);"
        "m = Mul(one, other); f = Flatten(m);"
        "y = Gemm(f, v, d)",
        _IMAGE,
        {"w": (8, 4, 3, 3), "b": (8,), "v": (16, 8), "d": (8,)},
        "y",
    ),
    "parts": (
        "a = Add(x, w); n = LayerNormalization(a, g, h); s = Slice(n, begin, end, begin);"
        "p = Pad(s, margins); m = Gemm(p, v); y = PRelu(m, u)",
        {"x": (4, 8)},
        {"w": (4, 8), "g": (8,), "h": (8,), "v": (10, 4), "u": (4,)},
        "y",
    ),
    "concat": (
        "c = Conv<pads=[1,1,1,1]>(x, w, b); s = Sigmoid(x); j = Concat<axis=1>(c, s, k); y = Conv(j, v)",
        _IMAGE,
        {"w": (4, 4, 3, 3), "b": (4,), "k": (1, 4, 6, 6), "v": (4, 12, 1, 1)},
        "y",
    ),
    "lstm": (
        "l, h, c = LSTM<hidden_size=4>(x, w, r, b); q = Squeeze(l, first); y = MatMul(q, v)",
        _SEQUENCE,
        {"w": (1, 16, 8), "r": (1, 16, 4), "b": (1, 32), "v": (4, 4)},
        "y h",
    ),
    "gru": (
        "l, h = GRU<hidden_size=4>(x, w, r, b); q = Squeeze(l, first); y = MatMul(q, v)",
        _SEQUENCE,
        {"w": (1, 12, 8), "r": (1, 12, 4), "b": (1, 24), "v": (4, 4)},
        "y h",
    ),
    "transposed": (
        "c = ConvTranspose(x, w, b); r = Relu(c); d = ConvTranspose<group=2>(r, v); y = Sigmoid(d)",
        {"x": (1, 4, 5, 5)},
        {"w": (4, 8, 3, 3), "b": (8,), "v": (8, 2, 2, 2)},
        "y",
    ),
    "norms": (
        "n = LayerNormalization(x, g, h); m = MatMul(n, w); i = InstanceNormalization(m, e, f);"
        "o = BatchNormalization(i, e, f, k, variance); y = Softmax(o)",
        _WORDS,
        {"g": (8,), "h": (8,), "w": (8, 8), "e": (4,), "f": (4,), "k": (4,)},
        "y",
    ),
    "decomposed": (
        "u = ReduceMean<axes=[-1]>(x); d = Sub(x, u); p = Pow(d, two); v = ReduceMean<axes=[-1]>(p);"
        "e = Add(v, epsilon); q = Sqrt(e); n = Div(d, q); s = Mul(n, g); o = Add(s, h); y = MatMul(o, w)",
        _WORDS,
        {"g": (8,), "h": (8,), "w": (8, 8)},
        "y",
    ),
    "outputs": (
        "c = Conv<pads=[1,1,1,1]>(x, w, b); r = Relu(c); z = Conv(r, v); y = Add(z, x); t = Tanh(r)",
        _IMAGE,
        {"w": (8, 4, 3, 3), "b": (8,), "v": (4, 8, 1, 1)},
        "y c t",
    ),
    "depthwise": (
        "c = Conv<group=4, pads=[1,1,1,1]>(x, w, b); r = Relu(c); k = Clip(r, low, high);"
        'p = AveragePool<kernel_shape=[2,2]>(k); y = Resize(p, "", scales)',
        _IMAGE,
        {"w": (4, 1, 3, 3), "b": (4,)},
        "y",
    ),
    "attention": (
        "q = MatMul(x, w); k = MatMul(x, v); u = MatMul(x, e); t = Transpose<perm=[0,2,1]>(k);"
        "a = MatMul(q, t); s = Div(a, root); p = Softmax(s); o = MatMul(p, u);"
        "f = MatMul(o, g); h = Add(f, b); y = Add(h, x)",
        _WORDS,
        {"w": (8, 8), "v": (8, 8), "e": (8, 8), "g": (8, 8), "b": (8,)},
        "y",
    ),
}


def operators(seed: int = 0) -> dict[str, onnx.ModelProto]:
    """The models by name, with weights drawn from a seed."""
    return {name: _model(*text, seed) for name, text in _TEXTS.items()}


def feeds_of(model: onnx.ModelProto, count: int = 3) -> list[dict[str, np.ndarray]]:
    """Random inputs."""
    random = np.random.default_rng(5)
    shapes = {
        given.name: [dim.dim_value for dim in given.type.tensor_type.shape.dim] for given in model.graph.input
    }
    return [
        {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(count)
    ]


def _model(
    body: str,
    inputs: Mapping[str, Sequence[int]],
    weights: Mapping[str, Sequence[int]],
    outputs: str,
    seed: int,
) -> onnx.ModelProto:
    given = ", ".join(f"float[{', '.join(map(str, shape))}] {name}" for name, shape in inputs.items())
    made = ", ".join(f"float {name}" for name in outputs.split())
    nodes = body.replace('""', "none").replace(";", "\n")
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> operators ({given}) => ({made}) {{ {nodes} }}'
    )
    random = np.random.default_rng(seed)
    read = {name for node in model.graph.node for name in node.input}
    constants = {name: random.normal(size=shape) for name, shape in weights.items()}
    constants |= {name: array for name, array in _NUMBERS.items() if name in read}
    for name, array in constants.items():
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
        node.input[:] = ["" if name == "none" else name for name in node.input]
    for info in model.graph.output:
        info.ClearField("type")
    return onnx.shape_inference.infer_shapes(model)
