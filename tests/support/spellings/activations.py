"""Activations."""

from __future__ import annotations

from functools import partial

import numpy as np

from .spelling import Spelling

CONSTANTS: dict[str, object] = {
    "c05": 0.5,
    "c1": 1.0,
    "c2": 2.0,
    "c3": 3.0,
    "c6": 6.0,
    "c0": 0.0,
    "c20": 20.0,
    "low": -1.0,
    "sixth": 1 / 6,
    "fifth": 0.2,
    "root2": 1.41421356,
    "rough_root2": 1.4142,
    "r2": 0.70710678,
    "k": 0.044715,
    "p": 0.7978845608,
    "pp": 1.5957691216,
    "two_over_pi": 0.63661975,
    "q": 1.702,
    "slope": 0.1,
    "slopes": np.full((4, 1), 0.25),
    "negative_slopes": np.full((4, 1), -0.25),
    "flat_slopes": np.full(4, 0.25),
    "column": np.array([-1, 1]),
}
_ERF = "d = Div(x, root2); e = Erf(d); g = Add(e, c1);"
_TANH = "a = Pow(x, c3); b = Mul(a, k); c = Add(x, b); u = Mul(c, p); t = Tanh(u); g = Add(t, c1);"
_SHIFTED = "a = Add(x, c3); r = Clip(a, c0, c6);"
_LOGADDEXP = "m = Max(x, c0); a = Abs(x); n = Neg(a); e = Exp(n); o = Add(e, c1); l = Log(o);"
_LINE = "a = Mul(x, fifth); b = Add(a, c05);"

_BODIES = {
    "gelu": {
        "TorchScript, Paddle": _ERF + "m = Mul(x, g); y = Mul(m, c05)",
        "half of x first": _ERF + "h = Mul(c05, x); y = Mul(h, g)",
        "dynamo, not optimized": _ERF + "h = Mul(c05, g); y = Mul(x, h)",
        "TensorFlow, Keras, operands swapped": (
            "d = Mul(r2, x); e = Erf(d); g = Add(c1, e); m = Mul(g, x); y = Mul(c05, m)"
        ),
        "division by two": _ERF + "m = Mul(x, g); y = Div(m, c2)",
        "half of the gate by division": _ERF + "h = Div(g, c2); y = Mul(x, h)",
        "a rough constant": (
            "d = Div(x, rough_root2); e = Erf(d); g = Add(e, c1); m = Mul(x, g); y = Mul(m, c05)"
        ),
        "half of erf plus a half": (
            "d = Div(x, root2); e = Erf(d); f = Mul(e, c05); g = Add(f, c05); y = Mul(x, g)"
        ),
        "JAX, erfc": (
            "n = Neg(x); d = Mul(n, r2); e = Erf(d); g = Sub(c1, e); h = Mul(c05, x); y = Mul(h, g)"
        ),
        "ONNX, the function body by erf": (
            "h1 = CastLike(c05, x); one = CastLike(c1, x); two = CastLike(c2, x); r = Sqrt(two);"
            "d = Div(x, r);"
            "e = Erf(d); g = Sum(one, e); h = Mul(h1, x); y = Mul(h, g)"
        ),
        "TorchScript, tanh": (
            "a = Mul(x, x); b0 = Mul(x, a); b = Mul(k, b0); c = Add(x, b); u = Mul(p, c); t = Tanh(u);"
            "g = Add(c1, t); m = Mul(x, g); y = Mul(c05, m)"
        ),
        "TorchScript, tanh written by hand": _TANH + "m = Mul(x, g); y = Mul(m, c05)",
        "JAX, tanh, half of the gate": (
            "a = Mul(k, x); b = Mul(x, a); b2 = Mul(x, b); c = Add(x, b2); u = Mul(p, c); t = Tanh(u);"
            "g = Add(c1, t); h = Mul(c05, g); y = Mul(x, h)"
        ),
        "tanh, cube as product": (
            "a = Mul(x, x); b = Mul(a, x); b2 = Mul(b, k); c = Add(b2, x); u = Mul(c, p); t = Tanh(u);"
            "g = Add(c1, t); h = Mul(x, c05); y = Mul(h, g)"
        ),
        "TorchScript, Hugging Face's fast form": (
            "xp = Mul(x, p); kx = Mul(x, k); kxx = Mul(kx, x); o = Add(kxx, c1); u = Mul(xp, o); t = Tanh(u);"
            "g = Add(t, c1); h = Mul(x, c05); y = Mul(h, g)"
        ),
        "tanh as sigmoid": (
            "a = Pow(x, c3); b = Mul(a, k); c = Add(x, b); u = Mul(c, pp); s = Sigmoid(u); y = Mul(x, s)"
        ),
        "ONNX, the function body by tanh": (
            "h1 = CastLike(c05, x); one = CastLike(c1, x); pi = CastLike(two_over_pi, x);"
            "kc = CastLike(k, x);"
            "r = Sqrt(pi); three = CastLike(c3, x); a = Pow(x, three); b = Mul(kc, a); c = Sum(x, b);"
            "u = Mul(r, c); t = Tanh(u); g = Sum(one, t); h = Mul(h1, x); y = Mul(h, g)"
        ),
    },
    "quick_gelu": {"TorchScript": "a = Mul(x, q); s = Sigmoid(a); y = Mul(x, s)"},
    "silu": {
        "TorchScript, dynamo": "s = Sigmoid(x); y = Mul(x, s)",
        "TensorFlow, Keras, JAX, operands swapped": "s = Sigmoid(x); y = Mul(s, x)",
        "Paddle, swish with a factor of one": "a = Mul(x, c1); s = Sigmoid(a); y = Mul(x, s)",
        "by Exp": "n = Neg(x); e = Exp(n); o = Add(c1, e); y = Div(x, o)",
        "ONNX, the function body": "one = CastLike(c1, x); a = Mul(one, x); s = Sigmoid(a); y = Mul(x, s)",
    },
    "sigmoid": {
        "by Exp": "n = Neg(x); e = Exp(n); o = Add(e, c1); y = Reciprocal(o)",
        "by Exp and Div": "n = Neg(x); e = Exp(n); o = Add(c1, e); y = Div(c1, o)",
    },
    "hard_swish": {
        "dynamo, one op": "y = HardSwish(x)",
        "TorchScript before opset 14": "s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x); y = Mul(x, s)",
        "Paddle": _SHIFTED + "m = Mul(x, r); y = Div(m, c6)",
        "gate first": _SHIFTED + "m = Div(r, c6); y = Mul(m, x)",
        "product with the reciprocal": _SHIFTED + "m = Mul(r, sixth); y = Mul(x, m)",
        "TensorFlow, Keras, product of the reciprocal last": _SHIFTED + "m = Mul(x, r); y = Mul(m, sixth)",
        "JAX, Relu and Min": (
            "a = Add(x, c3); b = Relu(a); r = Min(b, c6); m = Mul(x, r); y = Mul(m, sixth)"
        ),
    },
    "hard_sigmoid": {
        "TorchScript, dynamo, Paddle, one op": "y = HardSigmoid(x)",
        "TorchScript, relu6(x + 3) / 6": _SHIFTED + "y = Div(r, c6)",
        "JAX, relu6 by Max and Min": "a = Add(x, c3); f = Max(a, c0); r = Min(f, c6); y = Div(r, c6)",
        "TensorFlow, Keras": _LINE + "y = Clip(b, c0, c1)",
        "ONNX, the function body": (
            "al = CastLike(fifth, x); be = CastLike(c05, x); zero = CastLike(c0, x); one = CastLike(c1, x);"
            "a = Mul(x, al); b = Add(a, be); r = Min(b, one); y = Max(r, zero)"
        ),
    },
    "mish": {
        "TorchScript, dynamo, TensorFlow, Keras, Paddle": "s = Softplus(x); t = Tanh(s); y = Mul(x, t)",
        "JAX, logaddexp": _LOGADDEXP + "s = Add(m, l); t = Tanh(s); y = Mul(x, t)",
        "written by hand": "e = Exp(x); o = Add(e, c1); s = Log(o); t = Tanh(s); y = Mul(t, x)",
        "one op": "y = Mish(x)",
    },
    "softplus": {
        "written by hand": "e = Exp(x); o = Add(c1, e); y = Log(o)",
        "dynamo, the input where it is large": ("s = Softplus(x); o = Greater(x, c20); y = Where(o, x, s)"),
        "JAX, logaddexp": _LOGADDEXP + "y = Add(m, l)",
        "TorchScript, TensorFlow, Keras, Paddle, one op": "y = Softplus(x)",
        "ONNX, the function body": "e = Exp(x); one = CastLike(c1, x); o = Add(e, one); y = Log(o)",
    },
    "relu6": {
        "JAX": "m = Max(x, c0); y = Min(m, c6)",
        "dynamo": "r = Relu(x); y = Min(r, c6)",
        "TorchScript": "r = Relu(x); y = Clip(r, none, c6)",
        "TensorFlow, Keras": "r = Relu(x); y = Clip(r, c0, c6)",
        "Min first": "m = Min(c6, x); y = Max(c0, m)",
        "Min and Relu": "m = Min(x, c6); y = Relu(m)",
    },
    "clip": {
        "JAX": "m = Max(low, x); y = Min(c1, m)",
        "Min first": "m = Min(x, c1); y = Max(m, low)",
    },
    "leaky_relu": {
        "TensorFlow": "a = Mul(slope, x); y = Max(a, x)",
        "dynamo, by sign": "o = Greater(x, c0); a = Mul(x, slope); y = Where(o, x, a)",
        "JAX, by sign": "o = GreaterOrEqual(x, c0); a = Mul(slope, x); y = Where(o, x, a)",
        "TensorFlow, by the negated sign": (
            "l = Less(x, c0); o = Not(l); a = Mul(slope, x); y = Where(o, x, a)"
        ),
        "ONNX, the function body": (
            "al = CastLike(slope, x); zero = CastLike(c0, x); l = Less(x, zero); a = Mul(al, x);"
            "y = Where(l, a, x)"
        ),
    },
    "prelu": {
        "TorchScript, written by hand": "r = Relu(x); n = Neg(x); f = Relu(n); m = Mul(slopes, f);"
        "y = Sub(r, m)",
        "Keras": "r = Relu(x); n = Neg(x); f = Relu(n); m = Mul(f, negative_slopes); y = Add(r, m)",
        "TensorFlow, by the absolute value": (
            "r = Relu(x); a = Abs(x); d = Sub(x, a); m = Mul(slopes, d); h = Mul(m, c05); y = Add(r, h)"
        ),
        "JAX, by sign": "o = GreaterOrEqual(x, c0); a = Mul(slopes, x); y = Where(o, x, a)",
        "Min and Max": "r = Max(x, c0); n = Min(x, c0); m = Mul(slopes, n); y = Add(r, m)",
        "Paddle, slopes in another shape": (
            "sl = Reshape(flat_slopes, column); r = Relu(x); n = Neg(x); f = Relu(n); m = Mul(sl, f);"
            "y = Sub(r, m)"
        ),
    },
}

# Of the activations whose meaning depends on a number; the others have a formula.
_MEANINGS = {
    "hard_sigmoid: TorchScript, dynamo, Paddle, one op": "y = HardSigmoid<alpha = 0.2, beta = 0.5>(x)",
    "hard_sigmoid: TensorFlow, Keras": "y = HardSigmoid<alpha = 0.2, beta = 0.5>(x)",
    "hard_sigmoid: ONNX, the function body": "y = HardSigmoid<alpha = 0.2, beta = 0.5>(x)",
    "hard_sigmoid: TorchScript, relu6(x + 3) / 6": "y = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)",
    "hard_sigmoid: JAX, relu6 by Max and Min": "y = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)",
}

_activation = partial(Spelling, opset=18, constants=CONSTANTS)
SPELLINGS = (
    *(
        _activation(group, source, body, meaning=_MEANINGS.get(f"{group}: {source}", ""))
        for group, bodies in _BODIES.items()
        for source, body in bodies.items()
    ),
    Spelling("gelu", "one op", 'y = Gelu<approximate = "tanh">(x)', 20),
    Spelling("silu", "one op", "y = Swish(x)", 24),
    Spelling("quick_gelu", "one op", "y = Swish<alpha = 1.702>(x)", 24),
)
