"""Activations in the spellings of the exporters."""

from __future__ import annotations

import pytest

from qc.patterns import find_all, supergroups

ACTIVATIONS = supergroups(["hard_swish", "hard_sigmoid", "silu", "gelu", "quick_gelu", "mish", "softplus"])
CONSTANTS = {
    "c05": 0.5,
    "c1": 1.0,
    "c2": 2.0,
    "c3": 3.0,
    "c6": 6.0,
    "c0": 0.0,
    "sixth": 1 / 6,
    "root2": 1.41421356,
    "rough_root2": 1.4142,
    "r2": 0.70710678,
    "k": 0.044715,
    "p": 0.7978845608,
    "pp": 1.5957691216,
    "q": 1.702,
}

ERF = "d = Div(x, root2); e = Erf(d); g = Add(e, c1);"
INNER = "a = Pow(x, c3); b = Mul(a, k); c = Add(x, b); u = Mul(c, p); t = Tanh(u); g = Add(t, c1);"
GELUS = {
    "torchscript": ERF + "m = Mul(x, g); y = Mul(m, c05)",
    "half of x first": ERF + "h = Mul(c05, x); y = Mul(h, g)",
    "half of the gate": ERF + "h = Mul(g, c05); y = Mul(h, x)",
    "operands swapped": "d = Mul(r2, x); e = Erf(d); g = Add(c1, e); m = Mul(g, x); y = Mul(c05, m)",
    "division by two": ERF + "m = Mul(x, g); y = Div(m, c2)",
    "half of the gate by division": ERF + "h = Div(g, c2); y = Mul(x, h)",
    "a rough constant": "d = Div(x, rough_root2); e = Erf(d); g = Add(e, c1); m = Mul(x, g); y = Mul(m, c05)",
    "half of erf plus a half": (
        "d = Div(x, root2); e = Erf(d); f = Mul(e, c05); g = Add(f, c05); y = Mul(x, g)"
    ),
    "tanh": INNER + "m = Mul(x, g); y = Mul(m, c05)",
    "tanh, half of the gate (JAX)": (
        "a = Mul(k, x); b = Mul(x, a); b2 = Mul(x, b); c = Add(x, b2); u = Mul(p, c); t = Tanh(u);"
        "g = Add(c1, t); h = Mul(c05, g); y = Mul(x, h)"
    ),
    "tanh, cube as product": (
        "a = Mul(x, x); b = Mul(a, x); b2 = Mul(b, k); c = Add(b2, x); u = Mul(c, p); t = Tanh(u);"
        "g = Add(c1, t); h = Mul(x, c05); y = Mul(h, g)"
    ),
    "tanh, fast (Hugging Face)": (
        "xp = Mul(x, p); kx = Mul(x, k); kxx = Mul(kx, x); o = Add(kxx, c1); u = Mul(xp, o); t = Tanh(u);"
        "g = Add(t, c1); h = Mul(x, c05); y = Mul(h, g)"
    ),
    "tanh as sigmoid": (
        "a = Pow(x, c3); b = Mul(a, k); c = Add(x, b); u = Mul(c, pp); s = Sigmoid(u); y = Mul(x, s)"
    ),
}
OTHERS = {
    "silu": ["s = Sigmoid(x); y = Mul(x, s)", "s = Sigmoid(x); y = Mul(s, x)"],
    "quick_gelu": ["a = Mul(x, q); s = Sigmoid(a); y = Mul(x, s)"],
    "hard_swish": [
        "y = HardSwish(x)",
        "s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x); y = Mul(x, s)",
        "a = Add(x, c3); r = Clip(a, c0, c6); m = Mul(x, r); y = Div(m, c6)",
        "a = Add(c3, x); r = Clip(a, c0, c6); m = Div(r, c6); y = Mul(m, x)",
        "a = Add(x, c3); r = Clip(a, c0, c6); m = Mul(r, sixth); y = Mul(x, m)",
        "a = Add(x, c3); b = Relu(a); r = Min(b, c6); m = Mul(x, r); y = Mul(m, sixth)",
    ],
    "hard_sigmoid": ["y = HardSigmoid(x)", "a = Add(x, c3); r = Clip(a, c0, c6); y = Div(r, c6)"],
    "mish": [
        "s = Softplus(x); t = Tanh(s); y = Mul(x, t)",
        "e = Exp(x); o = Add(e, c1); s = Log(o); t = Tanh(s); y = Mul(t, x)",
        "y = Mish(x)",
    ],
    "softplus": ["e = Exp(x); o = Add(c1, e); y = Log(o)"],
}
CASES = [("gelu", body) for body in GELUS.values()] + [
    (name, body) for name in OTHERS for body in OTHERS[name]
]


@pytest.mark.parametrize(("name", "body"), CASES)
def test_spelling(graph_of, name, body):
    graph = graph_of(body, opset=18, constants=CONSTANTS)
    (match,) = find_all(graph, ACTIVATIONS)
    assert match.name == name
    assert match["x"].name == "x"
    assert list(match.ops) == graph.ops()


@pytest.mark.parametrize("opset", [6, 10])
def test_hard_swish_with_bounds_as_attributes(graph_of, opset):
    body = "a = Add(x, c3); r = Clip<min = 0.0, max = 6.0>(a); m = Mul(x, r); y = Div(m, c6)"
    (match,) = find_all(graph_of(body, opset=opset, constants=CONSTANTS), ACTIVATIONS)
    assert match.name == "hard_swish"


def test_gelu_as_one_op(graph_of):
    (match,) = find_all(graph_of('y = Gelu<approximate = "tanh">(x)', opset=20), ACTIVATIONS)
    assert match.name == "gelu"


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


def test_a_gate_that_is_an_output_is_not_hidden(graph_of):
    graph = graph_of("s = Sigmoid(x); y = Mul(x, s)", outputs="y s")
    assert find_all(graph, ACTIVATIONS) == []
