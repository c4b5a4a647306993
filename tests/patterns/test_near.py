"""Near matches: supergroups that fit but for a little, what stands in the way, and the remarks about it."""

from __future__ import annotations

import pytest
from support.graph_text import build_model
from support.pipelines import apply

from qc.ir import lift
from qc.ir.journal import NEAR_MATCH
from qc.patterns import Matcher, best_attempts, near_matches, supergroups

CONSTANTS = {
    "two": 2.0,
    "three": 3.0,
    "eps": 1e-5,
    "root2": 1.41421356,
    "c1": 1.0,
    "c05": 0.5,
    "g": [1.0, 2.0] * 4,
    "b": [0.5, 1.0] * 4,
    "w": [[1.0] * 8] * 8,
    "kernel": [[[[1.0]]] * 2] * 2,
    "wide": [[1.0] * 8] * 4,
}
NORM = (
    "m = ReduceMean<axes = [-1]>(x); d = Sub(x, m); q = Pow(d, {power}); v = ReduceMean<axes = [-1]>(q);"
    "e = Add(v, eps); s = Sqrt(e); y = Div(d, s)"
)


def matcher(body, names=None, **options):
    options = {"opset": 13, "constants": CONSTANTS, **options}
    return Matcher(lift(build_model(body, **options)).graph, supergroups(names))


def near(body, **options):
    """The near matches of a graph: the name, the number of ops that fit, and the reason."""
    found = matcher(body, **options)
    return [(each.mismatch.name, len(each.ops), each.mismatch.reason)
            for each in near_matches(found, found.find_all())]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "name", "reason"),
    [
        (NORM.format(power="three"), "layer_norm", "should be the constant 2, but is the constant"),
        (
            "d = Div(x, root2); e = Erf(d); g0 = Add(e, c05); m = Mul(x, g0); y = Mul(m, c05)",
            "gelu",
            "input 1 of Add of 'g0' should be the constant 1, but is the constant 'c05' = 0.5",
        ),
    ],
)
def test_a_little_that_differs(body, name, reason):
    ((found, ops, why),) = near(body)
    assert found == name and ops >= 4
    assert reason in why


def test_all_fits_but_something_outside_reads_what_is_made_inside():
    body = NORM.format(power="two") + "; z = Neg(q)"
    assert near(body, outputs="y z") == [
        ("layer_norm", 7, "'q' (made by Pow) should be used inside only, but is also read by Neg of 'z'")
    ]


def test_all_fits_but_a_check_refuses():
    body = "p = MatMul(x, w); y = Add(p, wide)"
    ((name, ops, reason),) = near(body)
    assert (name, ops) == ("matmul_bias", 2)
    assert "a bias of shape [4, 8] that is not one value per output channel" in reason


def test_what_is_found_is_not_near_and_neither_is_plain_arithmetic():
    assert near(NORM.format(power="two") + "; p = Mul(y, g); z = Add(p, b)", outputs="z") == []
    assert near("a = Add(x, x); b2 = Mul(a, x); y = Sub(b2, a)") == []


def test_the_best_attempts_need_not_be_near():
    (attempt, *_) = best_attempts(matcher("y = Relu(x)", ["conv_relu"]))
    assert attempt.mismatch.expected == "Conv" and attempt.mismatch.matched == 1


def test_a_near_match_leaves_a_remark_with_a_suggestion():
    body = "c = Conv(x, kernel); r = Relu(c); z = Neg(c)"
    model = build_model(body, "r z", "float[1,2,6,6] x", constants=CONSTANTS)
    ir, _, _ = apply("match-supergroups", model)
    (remark,) = [remark for remark in ir.journal.remarks if remark.kind == NEAR_MATCH]
    assert (remark.subject, remark.number) == ("Relu of 'r'", 0)
    assert remark.reason == (
        "conv_relu does not match, though 2 ops fit: 'c' (made by Conv) should be used inside only, "
        "but is also read by Neg of 'z'"
    )
    assert remark.asked_by.startswith("ort-cpu.toml, line ")
    assert remark.suggestion == "compute 'c' a second time for what reads it outside of the conv_relu"
