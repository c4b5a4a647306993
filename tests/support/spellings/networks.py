"""Recurrent cells, blocks of convolution networks, dense layers and resizing."""

from __future__ import annotations

from functools import partial

import numpy as np

from .spelling import Spelling

IMAGE = "float[2,8,6,6] x"


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


CONSTANTS: dict[str, object] = {
    "w_x": _numbers(8, 32),
    "w_h": _numbers(8, 32),
    "gates_bias": _numbers(32),
    "one": 1.0,
    "three": 3.0,
    "six": 6.0,
    "zero": 0.0,
    "deep": np.ones((8, 1, 3, 3)),
    "point": np.ones((4, 8, 1, 1)),
    "bn8": np.ones(8),
    "bn4": np.ones(4),
    "down": np.ones((4, 8, 1, 1)),
    "up": np.ones((8, 4, 1, 1)),
    "down_bias": np.ones((1, 4, 1, 1)),
    "up_bias": np.ones((1, 8, 1, 1)),
    "flat_bias": np.ones(4),
    "dense_down": np.ones((8, 4)),
    "dense_up": np.ones((4, 8)),
    "b4": np.ones(4),
    "b8": np.ones(8),
    "flat": np.array([2, 8]),
    "tall": np.array([2, 8, 1, 1]),
    "per_channel": np.array([1, -1, 1, 1]),
    "positions": np.array([2, 3]),
    "w": _numbers(8, 5),
    "wt": _numbers(8, 5).T.copy(),
    "b5": _numbers(5),
    "rows": np.array([-1, 8]),
    "stacked": np.array([2, 4, 5]),
    "scales": np.array([1.0, 1.0, 2.0, 2.0], np.float32),
    "sizes": np.array([2, 8, 12, 12]),
    "behind": np.array([3]),
    "behind_each": np.array([3, 5]),
    "behind_width": np.array([4]),
    "twice": np.array([2, 8, 6, 2, 6, 2]),
    "twice_height": np.array([2, 8, 6, 2, 6]),
    "tall_image": np.array([2, 8, 12, 6]),
    "half_large": np.array([1, 1, 1, 2, 1]),
    "large": np.array([2, 8, 12, 12]),
}
_STATE = "float[2,8] x, float[2,8] h, float[2,8] c"
_SUM = "gx = MatMul(x, w_x); gh = MatMul(h, w_h); g0 = Add(gx, gh); g = Add(g0, gates_bias);"
_SPLIT = _SUM + "ip, fp, gp, op = Split<axis = 1, num_outputs = 4>(g);"
_CELL = (
    "i = Sigmoid(ip); f = Sigmoid(fp); u = Tanh(gp); o = Sigmoid(op); a = Mul(f, c); b = Mul(i, u);"
    "cell = Add(a, b); t = Tanh(cell); y = Mul(o, t)"
)
_BEFORE = "MatMul MatMul Add Add Split"
_LSTMS = {
    "TorchScript, dynamo, LSTMCell": (_SPLIT + _CELL, "y cell", _BEFORE),
    "the state is not read further": (_SPLIT + _CELL, "y", _BEFORE),
    "TensorFlow, a forget bias of one": (
        _SPLIT + "f1 = Add(fp, one);" + _CELL.replace("Sigmoid(fp)", "Sigmoid(f1)"),
        "y cell",
        f"{_BEFORE} Add",
    ),
    "Keras, hard gates": (_SPLIT + _CELL.replace("Sigmoid", "HardSigmoid"), "y cell", _BEFORE),
}
_GRU_GATES = "z = Sigmoid(c); n = Tanh(x);"
_GRUS = {
    "TorchScript, dynamo, GRUCell": (
        "r = Sigmoid(rp); z = Sigmoid(zp); m = Mul(nh, r); a = Add(nx, m); n = Tanh(a); d = Sub(h, n);"
        "e = Mul(d, z); y = Add(e, n)"
    ),
    "new state for the update": "z = Sigmoid(zp); n = Tanh(nx); d = Sub(n, h); e = Mul(z, d); y = Add(h, e)",
    "Keras": ("z = Sigmoid(zp); n = Tanh(nx); k = Sub(one, z); a = Mul(z, h); b = Mul(k, n); y = Add(a, b)"),
    "update for the new state": (
        "z = Sigmoid(zp); n = Tanh(nx); k = Sub(one, z); a = Mul(z, n); b = Mul(k, h); y = Add(b, a)"
    ),
    "Paddle, products subtracted": (
        "z = Sigmoid(zp); n = Tanh(nx); a = Mul(z, n); b = Sub(n, a); e = Mul(z, h); y = Add(b, e)"
    ),
}
_GRU_INPUTS = ", ".join(f"float[2,8] {name}" for name in ("h", "rp", "zp", "nx", "nh"))
_DEEP = "d = Conv<group = 8, pads = [1, 1, 1, 1]>(x, deep);"
_BN8, _BN4 = "BatchNormalization({}, bn8, bn8, bn8, bn8)", "BatchNormalization({}, bn4, bn4, bn4, bn4)"
_SEPARABLES = {
    "TorchScript, dynamo, BatchNorm folded": _DEEP + "a = Relu(d); p = Conv(a, point, b4); y = Relu(p)",
    "TensorFlow, Keras, with BatchNorm and ReLU6": (
        f"{_DEEP} n = {_BN8.format('d')}; a = Clip(n, zero, six); p = Conv(a, point); m = {_BN4.format('p')};"
        "y = Clip(m, zero, six)"
    ),
    "MobileNetV2, linear at the end": (
        f"{_DEEP} n = {_BN8.format('d')}; a = Clip(n, zero, six); p = Conv(a, point); y = {_BN4.format('p')}"
    ),
    "EfficientNet, SiLU": (
        _DEEP + "s = Sigmoid(d); a = Mul(d, s); p = Conv(a, point); t = Sigmoid(p); y = Mul(p, t)"
    ),
    "Paddle, HardSwish and biases added": (
        "d = Conv<group = 8, pads = [1, 1, 1, 1]>(x, deep); n = Add(d, up_bias); a = HardSwish(n);"
        "p = Conv(a, point); m = Add(p, down_bias); y = HardSwish(m)"
    ),
    "without activation": _DEEP + "y = Conv(d, point)",
}
_POOLED = "p = GlobalAveragePool(x);"
_EXCITES = {
    "TorchScript, 1 x 1 convolutions": (
        _POOLED + "d = Conv(p, down, b4); r = Relu(d); u = Conv(r, up, b8); g = Sigmoid(u); y = Mul(x, g)"
    ),
    "dynamo, mean and HardSigmoid": (
        "p = ReduceMean<keepdims = 1>(x, positions); d = Conv(p, down); r = Relu(d); u = Conv(r, up);"
        "g = HardSigmoid<alpha = 0.16666667, beta = 0.5>(u); y = Mul(g, x)"
    ),
    "TorchScript, dense layers": (
        _POOLED + "f = Reshape(p, flat); d = Gemm(f, dense_down, b4); s = Sigmoid(d); a = Mul(d, s);"
        "u = Gemm(a, dense_up, b8); g = Sigmoid(u); t = Reshape(g, tall); y = Mul(x, t)"
    ),
    "TensorFlow, MatMul and Add": (
        "p = ReduceMean<keepdims = 0>(x, positions); d0 = MatMul(p, dense_down); d = Add(d0, b4);"
        "r = Relu(d);"
        "u0 = MatMul(r, dense_up); u = Add(u0, b8); g = Sigmoid(u); t = Unsqueeze(g, positions);"
        "y = Mul(x, t)"
    ),
    "MobileNetV3, relu6(x + 3) / 6": (
        _POOLED
        + "d = Conv(p, down); r = Relu(d); u = Conv(r, up); a = Add(u, three); c = Clip(a, zero, six);"
        "g = Div(c, six); y = Mul(x, g)"
    ),
    "Paddle, biases added": (
        _POOLED + "d0 = Conv(p, down); fb = Reshape(flat_bias, per_channel); d = Add(d0, fb); r = Relu(d);"
        "u0 = Conv(r, up); u = Add(u0, up_bias); g = HardSigmoid(u); y = Mul(x, g)"
    ),
}
_DENSES = {
    "TorchScript, Paddle, JAX, three dimensions": "p = MatMul(x, w); y = Add(b5, p)",
    "without bias": "y = MatMul(x, w)",
    "TorchScript, weight not folded": "t = Transpose<perm = [1, 0]>(wt); p = MatMul(x, t); y = Add(p, b5)",
    "dynamo, addmm() of rows": "f = Reshape(x, rows); p = Gemm(f, w, b5); y = Reshape(p, stacked)",
    "TensorFlow, Keras, tensordot()": "f = Reshape(x, rows); p = MatMul(f, w); s = Reshape(p, stacked);"
    "y = Add(s, b5)",
    "bias before the shape": "f = Reshape(x, rows); p = MatMul(f, w); a = Add(p, b5);y = Reshape(a, stacked)",
}
_RESIZES = {
    "TorchScript, TensorFlow, Paddle, by scales": "y = Resize(x, none, scales)",
    "dynamo, interpolate() to a size": "y = Resize(x, none, none, sizes)",
    "dynamo, repeat_interleave() of rows": (
        "u = Unsqueeze(x, behind); e = Expand(u, twice_height); y = Reshape(e, tall_image)"
    ),
    "TorchScript, repeat_interleave() by Tile": (
        "u = Unsqueeze(x, behind); e = Tile(u, half_large); y = Reshape(e, tall_image)"
    ),
    "expand() of both": "u = Unsqueeze(x, behind_each); e = Expand(u, twice); y = Reshape(e, large)",
    "expand() of both, one after the other": (
        "u1 = Unsqueeze(x, behind); u2 = Unsqueeze(u1, last); e = Expand(u2, twice); y = Reshape(e, large)"
    ),
}


def _gru_meaning(source: str) -> str:
    """A step of the op GRU is hard to give these inputs; its formula in the notation of its documentation."""
    reset = "r = Sigmoid(rp); rh = Mul(r, nh); s = Add(nx, rh)" if "GRUCell" in source else "s = Identity(nx)"
    kept, taken = ("n", "h") if source.startswith(("new", "update for")) else ("h", "n")
    return f"""z = Sigmoid(zp); {reset}; n = Tanh(s); k = Sub(one, z);
        a = Mul(z, {kept}); b = Mul(k, {taken}); y = Add(a, b)"""


def _dense_meaning(body: str) -> str:
    bias = ", b5" if "b5" in body else ""
    return f"f = Reshape(x, rows); g = Gemm(f, w{bias}); y = Reshape(g, stacked)"


def _resize_meaning(body: str) -> str:
    sizes = "tall_image" if "tall_image" in body else "large"
    mode = '<coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">'
    return f"y = Resize{mode}(x, none, none, {sizes})"


_network = partial(Spelling, opset=18, constants={**CONSTANTS, "last": np.array([5])})
SPELLINGS = (
    *(
        _network("lstm_cell", source, body, inputs=_STATE, outputs=outputs, outside=outside)
        for source, (body, outputs, outside) in _LSTMS.items()
    ),
    *(
        _network("gru_cell", source, body, inputs=_GRU_INPUTS, meaning=_gru_meaning(source))
        for source, body in _GRUS.items()
    ),
    *(_network("depthwise_separable", source, body, inputs=IMAGE) for source, body in _SEPARABLES.items()),
    *(_network("squeeze_and_excite", source, body, inputs=IMAGE) for source, body in _EXCITES.items()),
    *(
        _network("fully_connected", source, body, meaning=_dense_meaning(body))
        for source, body in _DENSES.items()
    ),
    _network("fully_connected", "two dimensions", "y = Gemm<transB = 1>(x, wt, b5)", inputs="float[4,8] x"),
    *(
        _network("resize", source, body, inputs=IMAGE, meaning=_resize_meaning(body))
        for source, body in _RESIZES.items()
    ),
    _network("resize", "Upsample", "y = Upsample(x, scales)", opset=9, inputs=IMAGE),
)
