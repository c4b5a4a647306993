"""LayerNorm, RMSNorm and relatives in the spellings of the exporters, and what must not be taken for one."""

from __future__ import annotations

import re

import numpy as np
import pytest

from qc.patterns import find_all, match_at, supergroups

NORMS = supergroups(["layer_norm", "rms_norm", "l2_norm", "softmax"])
CONSTANTS = {
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
    "last": np.array([-1]),
    "g": np.ones(8),
    "b": np.zeros(8),
    "shape": np.array([2, 4, 1]),
}
CENTRE = "m = ReduceMean<axes = [-1]>(x); d = Sub(x, m);"
VARIANCE = "q = Pow(d, two); v = ReduceMean<axes = [-1]>(q);"
ROOT = "e = Add(v, eps); s = Sqrt(e);"
AFFINE = "p = Mul(n, g); y = Add(p, b)"


def found(graph_of, body, opset=17, constants=None, **options):
    graph = graph_of(body, opset=opset, constants={**CONSTANTS, **(constants or {})}, **options)
    return graph, find_all(graph, NORMS)


def parameters(match):
    """The constants that the match took for scale and bias."""
    return {match[name].name for name in ("scale", "bias") if name in match.captures}


def read_parameters(body):
    """The constants ``g`` and ``b`` as far as the text reads them."""
    return {"g", "b"}.intersection(re.findall(r"\w+", body))


def only(graph_of, body, opset=17, **options):
    """The only match, which has to cover every op but constants."""
    graph, matches = found(graph_of, body, opset, **options)
    assert len(matches) == 1, [str(match) for match in matches]
    ops = [each for each in graph.ops() if each.op_type != "Constant"]
    assert list(matches[0].ops) == ops
    return matches[0]


LAYER_NORMS = {
    "torchscript": (CENTRE + VARIANCE + ROOT + "n = Div(d, s);" + AFFINE, 14),
    "scale on the other side": (CENTRE + VARIANCE + ROOT + "n = Div(d, s); p = Mul(g, n); y = Add(b, p)", 14),
    "axes as input": (
        "m = ReduceMean(x, last); d = Sub(x, m); q = Pow(d, two); v = ReduceMean(q, last);"
        + ROOT
        + "n = Div(d, s);"
        + AFFINE,
        18,
    ),
    "constants in Constant ops": (
        "a = Constant<value_ints = [-1]>(); t = Constant<value_float = 2.0>(); m = ReduceMean(x, a);"
        "c = Constant<value_float = 1e-5>(); d = Sub(x, m); q = Pow(d, t); v = ReduceMean(q, a);"
        "e = Add(c, v); s = Sqrt(e); n = Div(d, s);" + AFFINE,
        18,
    ),
    "axes of another sign": (
        "m = ReduceMean<axes = [2]>(x); d = Sub(x, m);" + VARIANCE + ROOT + "n = Div(d, s);" + AFFINE,
        13,
    ),
    "square as product": (
        CENTRE + "q = Mul(d, d); v = ReduceMean<axes = [-1]>(q);" + ROOT + "n = Div(d, s);" + AFFINE,
        13,
    ),
    "difference computed twice": (
        CENTRE
        + "d2 = Sub(x, m); q = Pow(d2, two); v = ReduceMean<axes = [-1]>(q);"
        + ROOT
        + "n = Div(d, s);"
        + AFFINE,
        11,
    ),
    "mean and difference computed twice": (
        CENTRE + "m2 = ReduceMean<axes = [-1]>(x); d2 = Sub(x, m2); q = Pow(d2, two);"
        "v = ReduceMean<axes = [-1]>(q);" + ROOT + "n = Div(d, s);" + AFFINE,
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
    "power of a half": (
        CENTRE + VARIANCE + "e = Add(eps, v); s = Pow(e, one_half); n = Div(d, s);" + AFFINE,
        13,
    ),
    "epsilon after the root": (
        CENTRE + VARIANCE + "r = Sqrt(v); s = Add(r, eps); n = Div(d, s);" + AFFINE,
        13,
    ),
    "scale first": (CENTRE + VARIANCE + ROOT + "n = Mul(d, g); p = Div(n, s); y = Add(p, b)", 13),
    "scale into the reciprocal (Keras)": (
        CENTRE + VARIANCE + ROOT + "r = Reciprocal(s); n = Mul(r, g); p = Mul(n, d); y = Add(p, b)",
        13,
    ),
    "folded (TensorFlow batchnorm)": (
        CENTRE + VARIANCE + ROOT + "r = Reciprocal(s); w = Mul(r, g); xw = Mul(x, w); mw = Mul(m, w);"
        "o = Sub(b, mw); y = Add(xw, o)",
        13,
    ),
    "mean as sum (JAX)": (
        "t = ReduceSum<keepdims = 1>(x, last); m = Mul(t, eighth); d = Sub(x, m); q = Mul(d, d);"
        "u = ReduceSum<keepdims = 1>(q, last); v = Div(u, eight);" + ROOT + "n = Div(d, s);" + AFFINE,
        13,
    ),
    "difference of means (JAX)": (
        "t = ReduceSum<keepdims = 0>(x, last); m = Mul(t, eighth); q = Mul(x, x);"
        "u = ReduceSum<keepdims = 0>(q, last); w = Mul(u, eighth); mm = Mul(m, m); v0 = Sub(w, mm);"
        "v1 = Max(zero, v0); v2 = Reshape(v1, shape); v = Expand(v2, shape); e = Add(v, eps); s = Sqrt(e);"
        "r = Reciprocal(s); rg = Mul(r, g); m1 = Reshape(m, shape); m2 = Expand(m1, shape); d = Sub(x, m2);"
        "p = Mul(d, rg); y = Add(p, b)",
        13,
    ),
    "difference of means, dimensions kept": (
        "m = ReduceMean<axes = [-1]>(x); q = Mul(x, x); w = ReduceMean<axes = [-1]>(q); mm = Pow(m, two);"
        "v = Sub(w, mm);" + ROOT + "d = Sub(x, m); n = Div(d, s);" + AFFINE,
        13,
    ),
    "dropped dimension put back": (
        "m0 = ReduceMean<axes = [-1], keepdims = 0>(x); m = Unsqueeze(m0, last); d = Sub(x, m);"
        + VARIANCE
        + ROOT
        + "n = Div(d, s);"
        + AFFINE,
        13,
    ),
    "half precision": (
        "c = Cast<to = 1>(x); m = ReduceMean<axes = [-1]>(c); d = Sub(c, m);"
        + VARIANCE
        + ROOT
        + "n0 = Div(d, s); n = Cast<to = 10>(n0);"
        + AFFINE,
        13,
    ),
    "without bias": (CENTRE + VARIANCE + ROOT + "n = Div(d, s); y = Mul(n, g)", 13),
    "without scale": (CENTRE + VARIANCE + ROOT + "n = Div(d, s); y = Add(n, b)", 13),
    "without scale and bias": (CENTRE + VARIANCE + ROOT + "y = Div(d, s)", 13),
    "one op": ("y = LayerNormalization<axis = -1>(x, g, b)", 17),
    "one op without bias": ("y = LayerNormalization(x, g)", 17),
}


@pytest.mark.parametrize("spelling", LAYER_NORMS)
def test_layer_norm(graph_of, spelling):
    body, opset = LAYER_NORMS[spelling]
    match = only(graph_of, body, opset)
    assert match.name == "layer_norm"
    assert match["x"].name == "x"
    assert parameters(match) == read_parameters(body)


RMS_NORMS = {
    "power and division": (
        "q = Pow(x, two); v = ReduceMean<axes = [-1]>(q); e = Add(v, eps); s = Sqrt(e); y = Div(x, s)"
    ),
    "product with the reciprocal": (
        "q = Mul(x, x); v = ReduceMean<axes = [-1]>(q); e = Add(eps, v); s = Sqrt(e); r = Reciprocal(s);"
        "n = Mul(r, x); y = Mul(g, n)"
    ),
    "one divided by the root": (
        "q = Pow(x, two); v = ReduceMean<axes = [-1]>(q); e = Add(v, eps); s = Sqrt(e); r = Div(one, s);"
        "n = Mul(x, r); y = Mul(n, g)"
    ),
    "half precision (Llama)": (
        "c = Cast<to = 1>(x); q = Pow(c, two); v = ReduceMean<axes = [-1]>(q); e = Add(v, eps); s = Sqrt(e);"
        "r = Div(one, s); n0 = Mul(c, r); n = Cast<to = 10>(n0); y = Mul(g, n)"
    ),
    "widened twice (T5)": (
        "c = Cast<to = 1>(x); q = Pow(c, two); v = ReduceMean<axes = [-1]>(q); e = Add(v, eps); s = Sqrt(e);"
        "r = Div(one, s); c2 = Cast<to = 1>(x); n0 = Mul(c2, r); n = Cast<to = 10>(n0); y = Mul(g, n)"
    ),
}


@pytest.mark.parametrize("spelling", RMS_NORMS)
def test_rms_norm(graph_of, spelling):
    body = RMS_NORMS[spelling]
    kind = "float16[2,4,8] x" if "Cast" in body else "float[2,4,8] x"
    match = only(graph_of, body, inputs=kind)
    assert match.name == "rms_norm"
    assert match["x"].name == "x"
    assert parameters(match) == read_parameters(body)


def test_rms_norm_as_one_op(graph_of):
    assert only(graph_of, "y = RMSNormalization(x, g)", 23).name == "rms_norm"


@pytest.mark.parametrize(
    "body",
    [
        "n = ReduceL2<axes = [-1]>(x); c = Clip(n, tiny); s = Expand(c, shape); y = Div(x, s)",
        "n = ReduceL2<axes = [-1]>(x); c = Max(n, tiny); y = Div(x, c)",
        "q = Mul(x, x); t = ReduceSum(q, last); e = Max(t, tiny); s = Sqrt(e); r = Reciprocal(s);"
        "y = Mul(x, r)",
        "y = LpNormalization<axis = -1, p = 2>(x)",
    ],
)
def test_l2_norm(graph_of, body):
    assert only(graph_of, body).name == "l2_norm"


def test_softmax_written_out(graph_of):
    body = "m = ReduceMax<axes = [-1]>(x); d = Sub(x, m); e = Exp(d); t = ReduceSum(e, last); y = Div(e, t)"
    assert only(graph_of, body, 13).name == "softmax"


# -- what stays outside ------------------------------------------------------------------------------

PLAIN = CENTRE + VARIANCE + ROOT + "n = Div(d, s);"


def summary(matches):
    return [(match.name, match.root.op_type, sorted(match.captures)) for match in matches]


def test_a_residual_is_no_bias(graph_of):
    _, matches = found(graph_of, PLAIN + "p = Mul(n, g); y = Add(p, x)")
    assert summary(matches) == [("layer_norm", "Mul", ["epsilon", "scale", "x"])]


def test_a_computed_scale_and_shift_are_no_parameters(graph_of):
    inputs = "float[2,4,8] x, float[8] scale, float[8] shift"
    _, matches = found(graph_of, PLAIN + "p = Mul(n, scale); y = Add(p, shift)", inputs=inputs)
    assert summary(matches) == [("layer_norm", "Div", ["epsilon", "x"])]


def test_a_gate_after_an_rms_norm_is_no_scale(graph_of):
    body = RMS_NORMS["power and division"].replace("y = Div", "n = Div") + "; y = Mul(n, gate)"
    _, matches = found(graph_of, body, inputs="float[2,4,8] x, float[2,4,8] gate")
    assert summary(matches) == [("rms_norm", "Div", ["epsilon", "x"])]


def test_a_position_embedding_is_no_bias(graph_of):
    _, matches = found(graph_of, PLAIN + "y = Add(n, positions)", constants={"positions": np.ones((1, 4, 8))})
    assert summary(matches) == [("layer_norm", "Div", ["epsilon", "x"])]


def test_a_scale_along_another_axis_is_no_scale(graph_of):
    graph, matches = found(graph_of, PLAIN + "y = Mul(n, channels)", constants={"channels": np.ones((4, 1))})
    assert summary(matches) == [("layer_norm", "Div", ["epsilon", "x"])]
    (layer_norm,) = supergroups(["layer_norm"])
    assert "a scale of shape [4, 1] for a norm over the axes [2]" in str(
        match_at(layer_norm, graph.ops()[-1])
    )


def test_a_normalized_value_that_is_an_output_stays_visible(graph_of):
    _, matches = found(graph_of, PLAIN + AFFINE, outputs="y n")
    assert summary(matches) == [("layer_norm", "Div", ["epsilon", "x"])]
    assert matches[0].result.name == "n"


@pytest.mark.parametrize("exposed", ["m", "d", "v", "s"])
def test_nothing_inside_a_norm_is_an_output(graph_of, exposed):
    graph, matches = found(graph_of, PLAIN + AFFINE, outputs=f"y {exposed}")
    hidden = [each for match in matches for each in match.inner]
    assert graph.value_named(exposed) not in hidden
    assert "layer_norm" not in [match.name for match in matches]


def test_an_rms_norm_inside_a_layer_norm_is_not_reported(graph_of):
    assert only(graph_of, PLAIN + AFFINE).name == "layer_norm"


def test_unequal_axes_make_no_layer_norm(graph_of):
    variance = VARIANCE.replace("[-1]", "[1]")
    _, matches = found(graph_of, CENTRE + variance + ROOT + "y = Div(d, s)")
    assert [match.name for match in matches] == ["rms_norm"], "the inner part alone, on the difference"


def test_a_dropped_dimension_that_is_not_put_back_makes_no_norm(graph_of):
    body = "m = ReduceMean<axes = [-1], keepdims = 0>(x); d = Sub(x, m);" + VARIANCE + ROOT + "y = Div(d, s)"
    _, matches = found(graph_of, body, inputs="float[8,8,8] x")
    assert [match.name for match in matches] == ["rms_norm"], "the inner part alone, on the difference"


def test_the_value_that_is_divided_must_be_the_one_that_was_squared(graph_of):
    _, matches = found(graph_of, CENTRE + VARIANCE + ROOT + "y = Div(x, s)")
    assert matches == []


def test_inner_values_are_those_that_need_no_quantizer(graph_of):
    match = only(graph_of, PLAIN + AFFINE)
    assert sorted(each.name for each in match.inner) == sorted(
        ["m", "d", "q", "two", "v", "e", "eps", "s", "n", "p"]
    )
