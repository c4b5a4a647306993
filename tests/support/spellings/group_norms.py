"""InstanceNorm and GroupNorm."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from .spelling import Spelling

_SCALE, _BIAS = np.linspace(0.5, 2, 8), np.linspace(-1, 1, 8)
CONSTANTS: dict[str, object] = {
    "eps": 1e-5,
    "two": 2.0,
    "zero": 0.0,
    "scale": _SCALE,
    "bias": _BIAS,
    "ones": np.ones(8),
    "zeros": np.zeros(8),
    "group_ones": np.ones(4),
    "group_zeros": np.zeros(4),
    "scale_nchw": _SCALE.reshape(8, 1, 1),
    "bias_nchw": _BIAS.reshape(8, 1, 1),
    "scale_grouped": _SCALE.reshape(1, 1, 1, 4, 2),
    "bias_grouped": _BIAS.reshape(1, 1, 1, 4, 2),
    "grouped": np.array([0, 4, -1]),
    "grouped_nhwc": np.array([2, 6, 6, 4, 2]),
    "whole": np.array([2, 8, 6, 6]),
    "whole_nhwc": np.array([2, 6, 6, 8]),
    "group_axes": np.array([1, 2, 4]),
    "stretched": np.array([2, 4, 2]),
    "per_channel": np.array([2, 1, 1, 8]),
    "behind": np.array([1, 2]),
    "last": np.array([-1]),
    "each": np.array([1, -1, 1]),
    "rows": np.array([0, 0, -1]),
    "halves": np.array([2, 2, 4, 6, 6]),
}
_NCHW, _NHWC = "float[2,8,6,6] x", "float[2,6,6,8] x"
_INSTANCES = "y = InstanceNormalization(x, scale, bias)"
_GROUPS = "y = GroupNormalization<num_groups = 4>(x, scale, bias)"
_norm = partial(Spelling, constants=CONSTANTS, inputs=_NCHW)
_AROUND = "gx = Reshape(x, grouped); i = InstanceNormalization(gx, group_ones, group_zeros);"
_MOMENTS = (
    "m = ReduceMean<axes = {axes}, keepdims = 1>({x}); d = Sub({x}, m); q = Mul(d, d);"
    "v = ReduceMean<axes = {axes}, keepdims = 1>(q); e = Add(v, eps); s = Sqrt(e);"
)


def _channels_last(meaning: str) -> str:
    """The same with the channels in the last dimension of ``x`` and ``y``."""
    inside = meaning.replace("(x", "(t").replace("y =", "n =")
    return f"t = Transpose<perm = [0, 3, 1, 2]>(x); {inside}; y = Transpose<perm = [0, 2, 3, 1]>(n)"


def _bare(meaning: str) -> str:
    """The same without parameters."""
    return meaning.replace("scale, bias", "ones, zeros")


def _with_meaning(spelling: Spelling) -> Spelling:
    meaning = _INSTANCES if spelling.group == "instance_norm" else _GROUPS
    if "function body" in spelling.source:
        meaning = meaning.replace("num_groups = 4", "num_groups = 2")
    if "without parameters" in spelling.source:
        meaning = _bare(meaning)
    return replace(spelling, meaning=_channels_last(meaning) if spelling.inputs == _NHWC else meaning)


_SPELLINGS = (
    _norm(
        "instance_norm", "TorchScript, dynamo, Paddle, one op", "y = InstanceNormalization(x, scale, bias)"
    ),
    _norm(
        "instance_norm",
        "parameters behind it",
        "n = InstanceNormalization(x, ones, zeros); p = Mul(n, scale_nchw); y = Add(p, bias_nchw)",
    ),
    _norm(
        "instance_norm",
        "TensorFlow, Keras, moments over the positions of NHWC",
        _MOMENTS.format(axes="[1, 2]", x="x")
        + "r = Reciprocal(s); w = Mul(r, scale); xw = Mul(x, w); mw = Mul(m, w); o = Sub(bias, mw);"
        "y = Add(xw, o)",
        13,
        inputs=_NHWC,
    ),
    _norm(
        "instance_norm",
        "TensorFlow, moments over the positions of NCHW",
        _MOMENTS.format(axes="[2, 3]", x="x")
        + "n = Div(d, s); p = Mul(n, scale_nchw); y = Add(p, bias_nchw)",
        13,
    ),
    _norm(
        "instance_norm",
        "JAX, Flax, difference of means",
        "m = ReduceMean<axes = [1, 2], keepdims = 1>(x); q = Mul(x, x);"
        "u = ReduceMean<axes = [1, 2], keepdims = 1>(q); mm = Mul(m, m); v0 = Sub(u, mm); v = Max(zero, v0);"
        "e = Add(v, eps); s = Sqrt(e); r = Reciprocal(s); w = Mul(r, scale); d = Sub(x, m); n = Mul(d, w);"
        "y = Add(n, bias)",
        13,
        inputs=_NHWC,
    ),
    _norm(
        "instance_norm",
        "moments, without parameters",
        _MOMENTS.format(axes="[2, 3]", x="x") + "y = Div(d, s)",
        13,
    ),
    _norm(
        "group_norm",
        "TorchScript",
        _AROUND + "dims = Shape(x); n = Reshape(i, dims); p = Mul(n, scale_nchw); y = Add(p, bias_nchw)",
        14,
        outside="Shape",
    ),
    _norm(
        "group_norm",
        "dynamo",
        _AROUND + "n = Reshape<allowzero = 0>(i, whole); p = Mul(n, scale_nchw); y = Add(p, bias_nchw)",
        18,
    ),
    _norm("group_norm", "without parameters", _AROUND + "y = Reshape(i, whole)", 18),
    _norm(
        "group_norm",
        "Paddle, dimensions of the parameters added in the graph",
        _AROUND
        + "n = Reshape(i, whole); us = Unsqueeze(scale, behind); ub = Unsqueeze(bias, behind);"
        + "p = Mul(n, us); y = Add(p, ub)",
        13,
    ),
    _norm(
        "group_norm",
        "Keras, parameters in the shape of groups",
        "gx = Reshape(x, grouped_nhwc);"
        + _MOMENTS.format(axes="[1, 2, 4]", x="gx")
        + "r = Reciprocal(s); w = Mul(r, scale_grouped); xw = Mul(gx, w); mw = Mul(m, w);"
        + "o = Sub(bias_grouped, mw); n = Add(xw, o); y = Reshape(n, whole_nhwc)",
        13,
        inputs=_NHWC,
    ),
    _norm(
        "group_norm",
        "JAX, Flax with statistics that are brought to the shape of x",
        "gx = Reshape(x, grouped_nhwc); t = ReduceMean<axes = [1, 2, 4], keepdims = 0>(gx); q = Mul(gx, gx);"
        "u = ReduceMean<axes = [1, 2, 4], keepdims = 0>(q); mm = Mul(t, t); v = Sub(u, mm);"
        "t1 = Unsqueeze(t, last); t2 = Expand(t1, stretched); m = Reshape(t2, per_channel);"
        "v1 = Unsqueeze(v, last); v2 = Expand(v1, stretched); v3 = Reshape(v2, per_channel);"
        "e = Add(v3, eps); s = Sqrt(e); r = Reciprocal(s); w = Mul(r, scale); d = Sub(x, m);"
        "n = Mul(d, w); y = Add(n, bias)",
        13,
        inputs=_NHWC,
    ),
    _norm(
        "group_norm",
        "ONNX, the function body",
        "g1 = Reshape(x, halves); gx = Reshape(g1, rows); m = ReduceMean<axes = [2]>(gx); q = Mul(gx, gx);"
        "u = ReduceMean<axes = [2]>(q); mm = Mul(m, m); v = Sub(u, mm); e = Add(v, eps); s = Sqrt(e);"
        "d = Sub(gx, m); n = Div(d, s); n1 = Reshape(n, whole); n2 = Reshape(n1, rows);"
        "n3 = Cast<to = 1>(n2); sc = Cast<to = 1>(scale); sr = Reshape(sc, each); bc = Cast<to = 1>(bias);"
        "br = Reshape(bc, each); p = Mul(sr, n3); a = Add(p, br); y = Reshape(a, whole)",
        17,
    ),
    _norm("group_norm", "one op", "y = GroupNormalization<num_groups = 4>(x, scale, bias)", 21),
)
SPELLINGS = tuple(map(_with_meaning, _SPELLINGS))
