"""Softmax, attention and rotary embedding."""

from __future__ import annotations

from functools import partial

import numpy as np

from .spelling import Spelling

HEADS = "float[1,2,4,8] q, float[1,2,4,8] k, float[1,2,4,8] v"
MASKED = f"{HEADS}, float[1,1,4,4] mask"
_ANGLES = np.linspace(0, 3, 16).reshape(4, 4)
CONSTANTS: dict[str, object] = {
    "scale": 0.353553,
    "root_scale": 0.594604,
    "temperature": 2.828427,
    "cap": 50.0,
    "one": 1.0,
    "zero": 0.0,
    "low": -10000.0,
    "lowest": np.array([-np.inf]),
    "large": 1e9,
    "causal": np.triu(np.full((4, 4), -1e9), 1),
    "relative": np.ones((1, 2, 4, 4)),
    "last": np.array([-1]),
    "cos": np.concatenate([np.cos(_ANGLES), np.cos(_ANGLES)], 1),
    "sin": np.concatenate([np.sin(_ANGLES), np.sin(_ANGLES)], 1),
    "paired_cos": np.cos(_ANGLES).repeat(2, 1),
    "paired_sin": np.sin(_ANGLES).repeat(2, 1),
    "cos_cache": np.cos(_ANGLES)[None],
    "sin_cache": np.sin(_ANGLES)[None],
    "half_cos": np.cos(_ANGLES),
    "half_sin": np.sin(_ANGLES),
    "at_0": np.array([0]),
    "at_1": np.array([1]),
    "at_2": np.array([2]),
    "at_4": np.array([4]),
    "minus_2": np.array([-2]),
    "end": np.array([2**63 - 1]),
    "axis": np.array([3]),
    "pick_0": np.array(0),
    "pick_1": np.array(1),
    "pairs": np.array([1, 2, 4, 4, 2]),
    "joined": np.array([1, 2, 4, 8]),
}
_SCORES = "kt = Transpose<perm = [0, 1, 3, 2]>(k); s = MatMul(q, kt);"
_SUMMED = "m = ReduceMax<axes = [-1]>({x}); d = Sub({x}, m); e = Exp(d); t = ReduceSum(e, last);"

_SOFTMAXES = {
    "TorchScript, written by hand": _SUMMED.format(x="x") + "y = Div(e, t)",
    "product with the reciprocal": _SUMMED.format(x="x") + "r = Reciprocal(t); y = Mul(e, r)",
    "JAX, dimensions put back": (
        "m0 = ReduceMax<axes = [-1], keepdims = 0>(x); m1 = Max(m0, lowest); m2 = Reshape(m1, column);"
        "m = Expand(m2, whole); d = Sub(x, m); e = Exp(d); t0 = ReduceSum<keepdims = 0>(e, last);"
        "t = Reshape(t0, column); y = Div(e, t)"
    ),
    "everything computed twice": (
        "m = ReduceMax<axes = [-1]>(x); d = Sub(x, m); e = Exp(d); m2 = ReduceMax<axes = [-1]>(x);"
        "d2 = Sub(x, m2); e2 = Exp(d2); t = ReduceSum(e2, last); y = Div(e, t)"
    ),
    "without maximum": "e = Exp(x); t = ReduceSum(e, last); y = Div(e, t)",
    "by ReduceLogSumExp": "l = ReduceLogSumExp<axes = [-1]>(x); d = Sub(x, l); y = Exp(d)",
}
_MASKED_SOFTMAXES = {
    "TorchScript, dynamo, Paddle, mask added": ("a = Add(x, mask); y = Softmax(a)", "float[2,4,8] mask", ""),
    "Keras, BERT, mask multiplied by a large number": (
        "n = Sub(one, mask); f = Mul(n, low); a = Add(x, f); y = Softmax(a)",
        "float[2,4,8] mask",
        "Sub Mul",
    ),
    "TensorFlow, large numbers subtracted": (
        "f = Mul(mask, large); a = Sub(x, f); y = Softmax(a)",
        "float[2,4,8] mask",
        "Mul",
    ),
    "TorchScript, masked_fill()": ("a = Where(mask, low, x); y = Softmax(a)", "bool[2,4,8] mask", ""),
    "JAX, where()": (
        "a = Where(mask, x, low);" + _SUMMED.format(x="a") + "y = Div(e, t)",
        "bool[2,4,8] mask",
        "",
    ),
}
_ATTENTIONS = {
    "TorchScript, scale on q": (
        "qs = Mul(q, scale);" + _SCORES.replace("(q,", "(qs,") + "w = Softmax(s)",
        "",
    ),
    "TorchScript, scores divided": (_SCORES + "c = Div(s, temperature); w = Softmax(c)", ""),
    "scale on the scores": (_SCORES + "c = Mul(scale, s); w = Softmax(c)", ""),
    "dynamo, scale on q and k": (
        "qs = Mul(q, root_scale); kt = Transpose<perm = [0, 1, 3, 2]>(k); ks = Mul(kt, root_scale);"
        "s = MatMul(qs, ks); w = Softmax(s)",
        "",
    ),
    "written by hand, scale on k before it is transposed": (
        "ks = Mul(k, scale);" + _SCORES.replace("(k)", "(ks)") + "w = Softmax(s)",
        "",
    ),
    "TorchScript, scale computed from the shape": (
        "dims = Shape(q); size = Slice(dims, last, end); f = Cast<to = 1>(size); r = Sqrt(f);"
        "c = Div(one, r);"
        "root = Sqrt(c); qs = Mul(q, root); kt = Transpose<perm = [0, 1, 3, 2]>(k); ks = Mul(kt, root);"
        "s = MatMul(qs, ks); w = Softmax(s)",
        "Shape Slice Cast Sqrt Div Sqrt",
    ),
    "T5, without scale and with a position bias": (_SCORES + "a = Add(s, relative); w = Softmax(a)", ""),
    "Swin, position bias and mask": (
        _SCORES + "c = Mul(s, scale); a = Add(c, relative); b = Add(a, mask); w = Softmax(b)",
        "",
    ),
    "TorchScript, causal mask": (_SCORES + "c = Mul(s, scale); a = Add(c, causal); w = Softmax(a)", ""),
    "mask added": (_SCORES + "c = Div(s, temperature); a = Add(mask, c); w = Softmax(a)", ""),
    "TorchScript, masked_fill()": (
        _SCORES + "c = Mul(s, scale); o = Equal(mask, zero); a = Where(o, low, c); w = Softmax(a)",
        "Equal",
    ),
    "dynamo, mask of booleans": (
        "qs = Mul(q, root_scale); kt = Transpose<perm = [0, 1, 3, 2]>(k); ks = Mul(kt, root_scale);"
        "o = Equal(mask, zero); f = Where(o, zero, lowest); s = MatMul(qs, ks); a = Add(s, f);"
        "w0 = Softmax(a); n = IsNaN(w0); w = Where(n, zero, w0)",
        "Equal Where",
    ),
    "Gemma, scores capped": (
        _SCORES + "c = Mul(s, scale); d = Div(c, cap); t = Tanh(d); p = Mul(t, cap); a = Add(p, mask);"
        "w = Softmax(a)",
        "",
    ),
    "half precision": (
        _SCORES + "c = Mul(s, scale); f = Cast<to = 1>(c); w0 = Softmax(f); w = Cast<to = 1>(w0)",
        "",
    ),
    "with Dropout": (_SCORES + "c = Mul(s, scale); w0 = Softmax(c); w = Dropout(w0)", ""),
    "Paddle, Identity for Dropout": (_SCORES + "c = Mul(s, scale); w0 = Softmax(c); w = Identity(w0)", ""),
    "TensorFlow, Softmax written out": (
        "c = Mul(q, scale);" + _SCORES.replace("(q,", "(c,") + _SUMMED.format(x="s") + "w = Div(e, t)",
        "",
    ),
}
_ROTATED = "n = Neg(b); j = Concat<axis = -1>(n, a); p = Mul(x, cos); r = Mul(j, sin); y = Add(p, r)"
_HALVES = "a = Slice(x, at_0, at_4, axis); b = Slice(x, at_4, end, axis);"
_EVERY_SECOND = "a = Slice(x, at_0, end, axis, at_2); b = Slice(x, at_1, end, axis, at_2);"
_REAL = "p = Mul(a, half_cos); r = Mul(b, half_sin); u = Sub(p, r);"
_IMAGINARY = "l = Mul(b, half_cos); o = Mul(a, half_sin); w = Add(l, o);"
_STACKED = "u1 = Unsqueeze(u, last); w1 = Unsqueeze(w, last); z = Concat<axis = -1>(u1, w1);"
_SIZED = (
    "dims = Shape(z); f = Slice(dims, at_0, minus_2, at_0); c = Concat<axis = 0>(f, last); y = Reshape(z, c)"
)
_ROTARIES = {
    "TorchScript, halves by Slice": (_HALVES + _ROTATED, ""),
    "JAX, Equinox, halves by Split": ("a, b = Split<axis = -1, num_outputs = 2>(x);" + _ROTATED, ""),
    "dynamo, halves by chunk()": (
        "a, b = Split<axis = -1, num_outputs = 2>(x);" + _REAL + _IMAGINARY + "y = Concat<axis = -1>(u, w)",
        "",
    ),
    "dynamo, every second element": (
        _EVERY_SECOND + _REAL + _IMAGINARY + _STACKED + "y = Reshape(z, joined)",
        "",
    ),
    "TorchScript, every second element, free dimensions": (
        _EVERY_SECOND + _REAL + _IMAGINARY + _STACKED + _SIZED,
        "",
    ),
    "dynamo, GPT-J": (
        _EVERY_SECOND + "n = Neg(b); n1 = Unsqueeze(n, last); a1 = Unsqueeze(a, last);"
        "z = Concat<axis = -1>(n1, a1); j = Reshape(z, joined); p = Mul(x, paired_cos);"
        "r = Mul(j, paired_sin); y = Add(p, r)",
        "",
    ),
    "dynamo, pairs by Gather": (
        "xp = Reshape(x, pairs); a = Gather<axis = 4>(xp, pick_0); b = Gather<axis = 4>(xp, pick_1);"
        + _REAL
        + _IMAGINARY
        + _STACKED
        + "y = Reshape(z, joined)",
        "Reshape",
    ),
    "dynamo, pairs by unbind()": (
        "xp = Reshape(x, pairs); a0, b0 = Split<axis = -1, num_outputs = 2>(xp); a = Squeeze(a0, last);"
        "b = Squeeze(b0, last);" + _REAL + _IMAGINARY + _STACKED + "y = Reshape(z, joined)",
        "Reshape",
    ),
    "one op": ("y = RotaryEmbedding(x, cos_cache, sin_cache)", ""),
}

_HALVES_TURNED = "y = RotaryEmbedding(x, cos_cache, sin_cache)"
_PAIRS_TURNED = "y = RotaryEmbedding<interleaved = 1>(x, cos_cache, sin_cache)"


def _attention_meaning(source: str, body: str) -> str:
    """The op Attention with what is added to the scores; nothing where a condition on the mask decides."""
    if "Equal" in body or "Swin" in source:
        return ""
    added = next((name for name in ("mask", "causal", "relative") if name in body), "none")
    numbers = ["scale = 1.0"] * source.startswith("T5") + ["softcap = 50.0"] * source.startswith("Gemma")
    return f"y = Attention{'<' * bool(numbers)}{', '.join(numbers)}{'>' * bool(numbers)}(q, k, v, {added})"


_softmax = partial(
    Spelling, constants={**CONSTANTS, "column": np.array([2, 4, 1]), "whole": np.array([2, 4, 8])}, opset=13
)
_attention = partial(Spelling, "scaled_dot_product_attention", constants=CONSTANTS)
_rotary = partial(Spelling, "rotary_embedding", constants=CONSTANTS, inputs="float[1,2,4,8] x")
SPELLINGS = (
    *(_softmax("softmax", source, body) for source, body in _SOFTMAXES.items()),
    *(
        _softmax("masked_softmax", source, body, inputs=f"float[2,4,8] x, {mask}", outside=outside)
        for source, (body, mask, outside) in _MASKED_SOFTMAXES.items()
    ),
    *(
        _attention(
            source,
            f"{body}; y = MatMul(w, v)",
            opset=17,
            inputs=MASKED,
            outside=outside,
            meaning=_attention_meaning(source, body),
        )
        for source, (body, outside) in _ATTENTIONS.items()
    ),
    _attention(
        "einsum",
        's = Einsum<equation = "bhqd,bhkd->bhqk">(q, k); c = Mul(s, scale); w = Softmax(c);'
        'y = Einsum<equation = "bhqk,bhkd->bhqd">(w, v)',
        inputs=HEADS,
    ),
    _attention(
        "JAX, einsum and Softmax written out",
        'qs = Mul(q, scale); s = Einsum<equation = "bqhd,bkhd->bhqk">(qs, k);'
        + _SUMMED.format(x="s")
        + 'w = Div(e, t); y = Einsum<equation = "bhqk,bkhd->bqhd">(w, v)',
        inputs=HEADS,
    ),
    _attention(
        "Keras, MultiHeadAttention",
        'qs = Mul(q, scale); s = Einsum<equation = "aecd,abcd->acbe">(k, qs); w = Softmax(s);'
        'y = Einsum<equation = "acbe,aecd->abcd">(w, v)',
        inputs=HEADS,
    ),
    _attention(
        "YOLO11, weights transposed",
        "qt = Transpose<perm = [0, 1, 3, 2]>(q); s = MatMul(qt, k); c = Mul(s, scale); w = Softmax(c);"
        "wt = Transpose<perm = [0, 1, 3, 2]>(w); y = MatMul(v, wt)",
        inputs=HEADS,
        outside="Transpose",
    ),
    _attention("one op", "y = Attention(q, k, v)", 23, HEADS),
    *(
        _rotary(
            source,
            body,
            opset=23 if "one" in source else 18,
            outside=outside,
            meaning=_HALVES_TURNED if "halves" in source else _PAIRS_TURNED,
        )
        for source, (body, outside) in _ROTARIES.items()
    ),
)
