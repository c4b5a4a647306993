"""Weighted ops with what follows them."""

from __future__ import annotations

from functools import partial

import numpy as np

from .spelling import Spelling

CONSTANTS: dict[str, object] = {
    "kernel": np.ones((4, 8, 1, 1)),
    "mean": np.ones((8, 1, 1)),
    "deviation": np.ones((8, 1, 1)),
    "scale": np.ones((8, 1, 1)),
    "shift": np.ones((8, 1, 1)),
    "shift4": np.ones((4, 1, 1)),
    "scale4": np.ones((4, 1, 1)),
    "bn": np.ones(4),
    "zero": 0.0,
    "six": 6.0,
    "root2": 1.41421356,
    "one": 1.0,
    "half": 0.5,
    "w": np.random.default_rng(0).normal(size=(8, 5)),
    "b": np.linspace(-1, 1, 5),
    "rows": np.array([-1, 8]),
    "stacked": np.array([2, 4, 5]),
}
_GELU = "d = Div({0}, root2); e = Erf(d); g = Add(e, one); m = Mul({0}, g); y = Mul(m, half)"
_IMAGES = {
    "affine": {
        "TensorFlow, Keras, BatchNorm folded": "p = Mul(x, scale); y = Add(p, shift)",
        "TensorFlow, the shift subtracted": "p = Mul(scale, x); y = Sub(p, shift)",
        "dynamo, JAX, BatchNorm written by hand": "d = Sub(x, mean); p = Mul(d, scale); y = Add(p, shift)",
        "TorchScript, BatchNorm written by hand": (
            "d = Sub(x, mean); n = Div(d, deviation); p = Mul(n, scale); y = Add(p, shift)"
        ),
        "pixels normalized, then shifted": "d = Sub(x, mean); n = Div(d, deviation); y = Add(n, shift)",
    },
    "conv_bn_relu": {
        "TorchScript, dynamo, Paddle": (
            "c = Conv(x, kernel); n = BatchNormalization(c, bn, bn, bn, bn); y = Relu(n)"
        ),
    },
    "conv_bn_clip": {
        "ReLU6": "c = Conv(x, kernel); n = BatchNormalization(c, bn, bn, bn, bn); y = Clip(n, zero, six)",
    },
    "conv_relu6": {
        "JAX, ReLU6 by Max and Min": "c = Conv(x, kernel); m = Max(c, zero); y = Min(m, six)",
    },
    "conv_bn_silu": {
        "TorchScript": (
            "c = Conv(x, kernel); n = BatchNormalization(c, bn, bn, bn, bn); s = Sigmoid(n); y = Mul(n, s)"
        ),
    },
    "conv_bias_gelu": {"Paddle": "c = Conv(x, kernel); a = Add(c, shift4);" + _GELU.format("a")},
    "conv_affine": {"TensorFlow": "c = Conv(x, kernel); p = Mul(c, scale4); y = Add(p, shift4)"},
}
_ROWS = {
    "matmul_bias": {
        "TorchScript, dynamo, Paddle, JAX": "p = MatMul(x, w); y = Add(b, p)",
        "TensorFlow, Keras, tensordot()": "f = Reshape(x, rows); p = MatMul(f, w);"
        "s = Reshape(p, stacked); y = Add(s, b)",
    },
    "matmul_bias_gelu": {"TorchScript": "p = MatMul(x, w); a = Add(p, b);" + _GELU.format("a")},
}

_linear = partial(Spelling, opset=17, constants=CONSTANTS)
SPELLINGS = (
    *(
        _linear(group, source, body, inputs="float[2,8,6,6] x")
        for group, bodies in _IMAGES.items()
        for source, body in bodies.items()
    ),
    *(
        _linear(group, source, body, outside="Reshape" if "rows" in body else "")
        for group, bodies in _ROWS.items()
        for source, body in bodies.items()
    ),
)
