"""What is no activation though it looks like one; how activations are written is in support.spellings."""

from __future__ import annotations

import pytest
from support.spellings.activations import CONSTANTS

from qc.patterns import find_all, supergroups

ACTIVATIONS = supergroups(
    [
        "relu6",
        "clip",
        "leaky_relu",
        "prelu",
        "hard_swish",
        "hard_sigmoid",
        "sigmoid",
        "silu",
        "gelu",
        "quick_gelu",
    ]
)


@pytest.mark.parametrize("opset", [6, 10])
def test_hard_swish_with_bounds_as_attributes(graph_of, opset):
    body = "a = Add(x, c3); r = Clip<min = 0.0, max = 6.0>(a); m = Mul(x, r); y = Div(m, c6)"
    (match,) = find_all(graph_of(body, opset=opset, constants=CONSTANTS), ACTIVATIONS)
    assert match.name == "hard_swish"


@pytest.mark.parametrize(
    "body",
    [
        "s = Sigmoid(x); y = Mul(z, s)",
        "s = HardSigmoid(x); y = Mul(x, s)",
        "s = Tanh(x); y = Mul(x, s)",
        "d = Div(x, c2); e = Erf(d); g = Add(e, c1); m = Mul(x, g); y = Mul(m, c05)",
        "d = Div(x, root2); e = Erf(d); g = Add(e, c1); m = Mul(z, g); y = Mul(m, c05)",
        "a = Add(x, c3); r = Clip(a, c0, c3); m = Mul(x, r); y = Div(m, c6)",
    ],
)
def test_what_only_looks_alike(graph_of, body):
    graph = graph_of(body, inputs="float[8] x, float[8] z", opset=18, constants=CONSTANTS)
    found = [match.name for match in find_all(graph, ACTIVATIONS)]
    assert found in ([], ["hard_sigmoid"]), "HardSigmoid with its default slope is one op, not a HardSwish"


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("a = Mul(x, c2); y = Max(x, a)", None),
        ("o = Greater(x, c1); a = Mul(x, slope); y = Where(o, x, a)", None),
        ("o = Greater(z, c0); a = Mul(x, slope); y = Where(o, x, a)", None),
        ("o = Greater(x, c0); a = Mul(x, slope); y = Where(o, a, x)", None),
        ("r = Relu(x); n = Min(z, c0); m = Mul(slopes, n); y = Add(r, m)", None),
        ("m = Max(x, c0); y = Min(m, c3)", "clip"),
        ("m = Max(x, z); y = Min(m, c6)", None),
        ("e = Exp(x); o = Add(e, c1); y = Reciprocal(o)", None),
        ("y = Clip(x, c0, c6)", None),
        ("y = Sigmoid(x)", None),
    ],
)
def test_relatives_of_relu_and_sigmoid_that_only_look_alike(graph_of, body, name):
    graph = graph_of(body, inputs="float[4,4] x, float[4,4] z", opset=18, constants=CONSTANTS)
    assert [match.name for match in find_all(graph, ACTIVATIONS)] == ([name] if name else [])


def test_a_gate_that_is_an_output_is_not_hidden(graph_of):
    graph = graph_of("s = Sigmoid(x); y = Mul(x, s)", outputs="y s")
    assert find_all(graph, ACTIVATIONS) == []
