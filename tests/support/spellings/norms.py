"""LayerNorm, RMSNorm and division by the length."""

from __future__ import annotations

from functools import partial

import numpy as np

from .spelling import Spelling

CONSTANTS: dict[str, object] = {
    "two": 2.0,
    "one": 1.0,
    "zero": 0.0,
    "minus_one": -1.0,
    "minus_half": -0.5,
    "one_half": 0.5,
    "eps": 1e-5,
    "tiny": 1e-12,
    "eighth": 0.125,
    "eight": 8.0,
    "seven": 7.0,
    "root_eighth": 8**-0.5,
    "last": np.array([-1]),
    "second": np.array([1]),
    "positions": np.array([0, 2, 3]),
    "folded": np.array([1, 8, 8, 1]),
    "from": np.array(2),
    "step": np.array(1),
    "g": np.ones(8),
    "b": np.zeros(8),
    "half_g": np.ones(8, np.float16),
    "half_b": np.zeros(8, np.float16),
    "shape": np.array([2, 4, 1]),
    "flat": np.array([-1]),
    "rows": np.array([2, 4, 8]),
    "ones": np.ones(4),
    "zeros": np.zeros(4),
    "ones_of_8": np.ones(8),
    "zeros_of_8": np.zeros(8),
}
CENTRE = "m = ReduceMean<axes = [-1]>(x); d = Sub(x, m);"
VARIANCE = "q = Pow(d, two); v = ReduceMean<axes = [-1]>(q);"
ROOT = "e = Add(v, eps); s = Sqrt(e);"
DIVIDED = "n = Div(d, s);"
AFFINE = "p = Mul(n, g); y = Add(p, b)"
_HALF_AFFINE = "p = Mul(n, half_g); y = Add(p, half_b)"
PLAIN = CENTRE + VARIANCE + ROOT + DIVIDED

_LAYER_NORMS = {
    "TorchScript": (PLAIN + AFFINE, 14),
    "TorchScript, written by hand with the scale on the left": (
        PLAIN + "p = Mul(g, n); y = Add(b, p)",
        14,
    ),
    "TorchScript, var() of PyTorch": (
        "m = ReduceMean<axes = [-1]>(x); m2 = ReduceMean<axes = [-1]>(x); d2 = Sub(x, m2); q = Mul(d2, d2);"
        "v = ReduceMean<axes = [-1]>(q); d = Sub(x, m); w = Mul(g, d); e = Add(v, eps); s = Sqrt(e);"
        "r = Div(one, s); n = Mul(w, r); y = Add(n, b)",
        14,
    ),
    "TorchScript, half precision": (
        "m = ReduceMean<axes = [-1]>(x); d0 = Sub(x, m); d = Cast<to = 1>(d0);"
        + VARIANCE
        + ROOT
        + "n0 = Div(d, s); n = Cast<to = 10>(n0);"
        + _HALF_AFFINE,
        14,
    ),
    "dynamo, axes as input": (
        "m = ReduceMean<keepdims = 1, noop_with_empty_axes = 0>(x, last); d = Sub(x, m); q = Pow(d, two);"
        "v = ReduceMean<keepdims = 1, noop_with_empty_axes = 0>(q, last);" + ROOT + "n = Div(d, s);" + AFFINE,
        18,
    ),
    "dynamo, var() of PyTorch": (
        "m = ReduceMean(x, last); m2 = ReduceMean(x, last); d2 = Sub(x, m2); q = Mul(d2, d2);"
        "v0 = ReduceMean<keepdims = 0>(q, last); v = Reshape<allowzero = 0>(v0, shape); d = Sub(x, m);"
        "w = Mul(g, d); e = Add(v, eps); s = Sqrt(e); r = Reciprocal(s); n = Mul(w, r); y = Add(n, b)",
        18,
    ),
    "dynamo, unbiased std() of PyTorch": (
        "m = ReduceMean(x, last); d = Sub(x, m); w = Mul(g, d); m2 = ReduceMean(x, last); d2 = Sub(x, m2);"
        "q = Mul(d2, d2); v0 = ReduceMean<keepdims = 0>(q, last); v1 = Mul(v0, eight); v2 = Div(v1, seven);"
        "v = Reshape(v2, shape); s = Sqrt(v); e = Add(s, eps); n = Div(w, e); y = Add(n, b)",
        18,
    ),
    "dynamo, the epsilon dropped because it is tiny": (
        CENTRE + VARIANCE + "s = Sqrt(v);" + DIVIDED + AFFINE,
        13,
    ),
    "constants in Constant ops": (
        "a = Constant<value_ints = [-1]>(); t = Constant<value_float = 2.0>(); m = ReduceMean(x, a);"
        "c = Constant<value_float = 1e-5>(); d = Sub(x, m); q = Pow(d, t); v = ReduceMean(q, a);"
        "e = Add(c, v); s = Sqrt(e); n = Div(d, s);" + AFFINE,
        18,
    ),
    "axes of another sign": (
        "m = ReduceMean<axes = [2]>(x); d = Sub(x, m);" + VARIANCE + ROOT + DIVIDED + AFFINE,
        13,
    ),
    "square as product": (
        CENTRE + "q = Mul(d, d); v = ReduceMean<axes = [-1]>(q);" + ROOT + DIVIDED + AFFINE,
        13,
    ),
    "difference computed twice": (
        CENTRE
        + "d2 = Sub(x, m); q = Pow(d2, two); v = ReduceMean<axes = [-1]>(q);"
        + ROOT
        + DIVIDED
        + AFFINE,
        11,
    ),
    "product with the reciprocal": (
        CENTRE + VARIANCE + ROOT + "r = Reciprocal(s); n = Mul(d, r);" + AFFINE,
        13,
    ),
    "one divided by the root": (CENTRE + VARIANCE + ROOT + "r = Div(one, s); n = Mul(r, d);" + AFFINE, 13),
    "power of minus a half": (
        CENTRE + VARIANCE + "e = Add(v, eps); r = Pow(e, minus_half); n = Mul(d, r);" + AFFINE,
        13,
    ),
    "power of a half": (CENTRE + VARIANCE + "e = Add(eps, v); s = Pow(e, one_half);" + DIVIDED + AFFINE, 13),
    "epsilon after the root": (CENTRE + VARIANCE + "r = Sqrt(v); s = Add(r, eps);" + DIVIDED + AFFINE, 13),
    "scale first": (CENTRE + VARIANCE + ROOT + "n = Mul(d, g); p = Div(n, s); y = Add(p, b)", 13),
    "TensorFlow, rsqrt": (
        CENTRE + "q = Mul(d, d); v = ReduceMean<axes = [-1]>(q);" + ROOT + "r = Reciprocal(s); n = Mul(d, r);"
        "p = Mul(n, g); y = Add(p, b)",
        13,
    ),
    "Keras, scale into the reciprocal": (
        CENTRE + VARIANCE + ROOT + "r = Reciprocal(s); n = Mul(r, g); p = Mul(n, d); y = Add(p, b)",
        13,
    ),
    "TensorFlow, batch_normalization() of moments": (
        CENTRE + VARIANCE + ROOT + "r = Reciprocal(s); w = Mul(r, g); xw = Mul(x, w); mw = Mul(m, w);"
        "o = Sub(b, mw); y = Add(xw, o)",
        13,
    ),
    "tf2onnx, means over the last of three axes as pools": (
        "m = GlobalAveragePool(x); d = Sub(x, m); q = Mul(d, d); v = GlobalAveragePool(q);"
        + ROOT
        + "r = Reciprocal(s); w = Mul(r, g); xw = Mul(x, w); mw = Mul(m, w); o = Sub(b, mw); y = Add(xw, o)",
        13,
    ),
    "Keras 3, the mean negated": (
        CENTRE + VARIANCE + ROOT + "r = Reciprocal(s); w = Mul(r, g); xw = Mul(x, w); k = Neg(m);"
        "mw = Mul(k, w); o = Add(mw, b); y = Add(xw, o)",
        13,
    ),
    "TensorFlow, batch_normalization() without scale": (
        CENTRE + VARIANCE + ROOT + "w = Reciprocal(s); xw = Mul(x, w); mw = Mul(m, w); o = Sub(b, mw);"
        "y = Add(xw, o)",
        13,
    ),
    "Keras, without scale and bias": (
        CENTRE + VARIANCE + ROOT + "w = Reciprocal(s); xw = Mul(x, w); nm = Neg(m); o = Mul(nm, w);"
        "y = Add(xw, o)",
        13,
    ),
    "tf2onnx, through InstanceNormalization": (
        "n = InstanceNormalization<epsilon = 0.00001>(x, ones, zeros);" + AFFINE,
        13,
    ),
    "JAX, mean as sum": (
        "t = ReduceSum<keepdims = 1>(x, last); m = Mul(t, eighth); d = Sub(x, m); q = Mul(d, d);"
        "u = ReduceSum<keepdims = 1>(q, last); v = Div(u, eight);" + ROOT + DIVIDED + AFFINE,
        13,
    ),
    "JAX, difference of means": (
        "t = ReduceSum<keepdims = 0>(x, last); m = Mul(t, eighth); q = Mul(x, x);"
        "u = ReduceSum<keepdims = 0>(q, last); w = Mul(u, eighth); mm = Mul(m, m); v0 = Sub(w, mm);"
        "v1 = Max(zero, v0); v2 = Reshape(v1, shape); v = Expand(v2, shape); e = Add(v, eps); s = Sqrt(e);"
        "r = Reciprocal(s); rg = Mul(r, g); m1 = Reshape(m, shape); m2 = Expand(m1, shape); d = Sub(x, m2);"
        "p = Mul(d, rg); y = Add(p, b)",
        13,
    ),
    "difference of means, dimensions kept": (
        "m = ReduceMean<axes = [-1]>(x); q = Mul(x, x); w = ReduceMean<axes = [-1]>(q); mm = Pow(m, two);"
        "v = Sub(w, mm);" + ROOT + "d = Sub(x, m);" + DIVIDED + AFFINE,
        13,
    ),
    "dropped dimension put back": (
        "m0 = ReduceMean<axes = [-1], keepdims = 0>(x); m = Unsqueeze(m0, last); d = Sub(x, m);"
        + VARIANCE
        + ROOT
        + DIVIDED
        + AFFINE,
        13,
    ),
    "half precision": (
        "c = Cast<to = 1>(x); m = ReduceMean<axes = [-1]>(c); d = Sub(c, m);"
        + VARIANCE
        + ROOT
        + "n0 = Div(d, s); n = Cast<to = 10>(n0);"
        + _HALF_AFFINE,
        13,
    ),
    "Paddle, parameters in another shape": (
        PLAIN + "gr = Reshape(g, flat); br = Reshape(b, flat); p = Mul(n, gr); y = Add(p, br)",
        13,
    ),
    "without bias": (PLAIN + "y = Mul(n, g)", 13),
    "without scale": (PLAIN + "y = Add(n, b)", 13),
    "without scale and bias": (CENTRE + VARIANCE + ROOT + "y = Div(d, s)", 13),
    "one op": ("y = LayerNormalization<axis = -1>(x, g, b)", 17),
    "one op without bias": ("y = LayerNormalization(x, g)", 17),
}
_ONE_POWER = "q = Pow(x, two); v = ReduceMean<axes = [-1]>(q); e = Add(v, eps); s = Sqrt(e);"
_RMS_NORMS = {
    "power and division": _ONE_POWER + "y = Div(x, s)",
    "Paddle, product with the reciprocal": (
        "q = Mul(x, x); v = ReduceMean<axes = [-1]>(q); e = Add(eps, v); s = Sqrt(e); r = Reciprocal(s);"
        "n = Mul(r, x); y = Mul(g, n)"
    ),
    "one divided by the root": _ONE_POWER + "r = Div(one, s); n = Mul(x, r); y = Mul(n, g)",
    "TorchScript, Llama in half precision": (
        "c = Cast<to = 1>(x); q = Pow(c, two); v = ReduceMean<axes = [-1]>(q); e = Add(v, eps); s = Sqrt(e);"
        "r = Div(one, s); n0 = Mul(c, r); n = Cast<to = 10>(n0); y = Mul(half_g, n)"
    ),
    "TorchScript, T5 widened twice": (
        "c = Cast<to = 1>(x); q = Pow(c, two); v = ReduceMean<axes = [-1]>(q); e = Add(v, eps); s = Sqrt(e);"
        "r = Div(one, s); c2 = Cast<to = 1>(x); n0 = Mul(c2, r); n = Cast<to = 10>(n0); y = Mul(half_g, n)"
    ),
    "TorchScript, by the length": (
        "l = ReduceL2<axes = [-1], keepdims = 1>(x); w = Mul(l, root_eighth); e = Add(w, tiny);"
        "n = Div(x, e); y = Mul(n, g)"
    ),
    "JAX, Equinox with a bias": _ONE_POWER + "n = Div(x, s); p = Mul(n, g); y = Add(p, b)",
    "JAX, mean as sum": (
        "q = Mul(x, x); u = ReduceSum<keepdims = 1>(q, last); v = Mul(u, eighth); e = Add(v, eps);"
        "s = Sqrt(e); r = Reciprocal(s); n = Mul(x, r); y = Mul(n, g)"
    ),
    "dynamo, axes as input": (
        "q = Pow(x, two); v = ReduceMean<keepdims = 1, noop_with_empty_axes = 0>(q, last); e = Add(v, eps);"
        "s = Sqrt(e); r = Reciprocal(s); n = Mul(x, r); y = Mul(n, g)"
    ),
    "TensorFlow, Keras rsqrt": (
        "q = Mul(x, x); v = ReduceMean<axes = [-1], keepdims = 1>(q); e = Add(v, eps); s = Sqrt(e);"
        "r = Reciprocal(s); w = Mul(r, g); y = Mul(x, w)"
    ),
}
_LENGTHS = {
    "TorchScript, normalize()": (
        "n = ReduceL2<axes = [-1]>(x); c = Clip(n, tiny); s = Expand(c, shape); y = Div(x, s)"
    ),
    "Max instead of Clip": "n = ReduceL2<axes = [-1]>(x); c = Max(n, tiny); y = Div(x, c)",
    "dynamo, normalize()": (
        "n = ReduceL2<keepdims = 1, noop_with_empty_axes = 0>(x, last); c = Clip(n, tiny);"
        "s = Expand(c, shape); y = Div(x, s)"
    ),
    "TensorFlow, Keras, l2_normalize()": (
        "q = Mul(x, x); t = ReduceSum(q, last); e = Max(t, tiny); s = Sqrt(e); r = Reciprocal(s);"
        "y = Mul(x, r)"
    ),
    "JAX, dimension put back": (
        "q = Mul(x, x); t = ReduceSum<keepdims = 0>(q, last); r = Sqrt(t); s = Reshape(r, shape);"
        "y = Div(x, s)"
    ),
    "Paddle, p_norm": (
        "a = Abs(x); q = Pow(a, two); t = ReduceSum<keepdims = 1>(q, last); s = Pow(t, one_half);"
        "y = Div(x, s)"
    ),
    "with a scale": "n = ReduceL2<axes = [-1]>(x); c = Clip(n, tiny); d = Div(x, c); y = Mul(d, g)",
    "one op": "y = LpNormalization<axis = -1, p = 2>(x)",
}

_FLOAT, _HALF = "float[2,4,8] x", "float16[2,4,8] x"
_norm = partial(Spelling, constants=CONSTANTS)


def _opset(body: str) -> int:
    """18 where all reductions have their axes as input, 13 elsewhere."""
    return 18 if "noop_with_empty_axes" in body else 13


SPELLINGS = (
    *(
        _norm("layer_norm", source, body, opset, _HALF if "half_g" in body else _FLOAT)
        for source, (body, opset) in _LAYER_NORMS.items()
    ),
    _norm(
        "layer_norm",
        "Keras, through BatchNormalization in training mode",
        "rows_in = Reshape(x, folded); m = ReduceMean<axes = [0, 2, 3], keepdims = 1>(rows_in);"
        "ms = Squeeze(m, positions); d = Sub(rows_in, m);"
        "t = ReduceSumSquare<axes = [0, 2, 3], keepdims = 0>(d); dims = Shape(rows_in);"
        "picked = Gather(dims, positions); size = ReduceProd<axes = [0], keepdims = 0>(picked);"
        "count = Cast<to = 1>(size); v = Div(t, count);"
        "n0 = BatchNormalization(rows_in, ones_of_8, zeros_of_8, ms, v); n = Reshape(n0, rows);" + AFFINE,
        13,
        outside="Reshape Shape Gather ReduceProd Cast",
    ),
    _norm(
        "layer_norm",
        "ONNX, the function body",
        "X2D = Flatten<axis = 2>(x); XU = Cast<to = 1>(X2D); m = ReduceMean(XU, second); sq = Mul(XU, XU);"
        "ms = ReduceMean(sq, second); mm = Mul(m, m); v = Sub(ms, mm); ec = Cast<to = 1>(eps);"
        "e = Add(v, ec);"
        "s = Sqrt(e); d = Sub(XU, m); n = Div(d, s); nt = Cast<to = 1>(n); w = Flatten<axis = 0>(scale);"
        "p = Mul(nt, w); dims = Shape(x); y = Reshape(p, dims); r = Reciprocal(s);"
        "mean = Reshape(m, shape); deviation = Reshape(r, shape)",
        18,
        inputs="float[2,4,8] x, float[8] scale",
        outputs="y mean deviation",
        outside="Flatten Cast Flatten Mul Shape Reshape Reciprocal Reshape Reshape",
    ),
    *(
        _norm("rms_norm", source, body, _opset(body), _HALF if "half_g" in body else _FLOAT)
        for source, body in _RMS_NORMS.items()
    ),
    _norm("rms_norm", "one op", "y = RMSNormalization(x, g)", 23),
    _norm(
        "rms_norm",
        "ONNX, the function body with computed axes",
        "dims = Shape(x); rank = Size(dims); axes = Range(from, rank, step); XU = Cast<to = 1>(x);"
        "q = Mul(XU, XU); v = ReduceMean(q, axes); ec = Cast<to = 1>(eps); e = Add(v, ec); s = Sqrt(e);"
        "n = Div(XU, s); nt = Cast<to = 1>(n); y = Mul(nt, g)",
        18,
        outside="Shape Size Range",
    ),
    *(_norm("l2_norm", source, body, _opset(body)) for source, body in _LENGTHS.items()),
)
