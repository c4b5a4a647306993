"""Branches that take the place of their If."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse
from support.pipelines import apply, run_model

from qc.ir import lift
from qc.ir.body_rewriter import BodyRewriter
from qc.ir.onnx.lower import lower, serialize
from qc.ir.text import print_model
from qc.ir.verifier import verify

# Names that both branches have, results that the branch only hands on, and bodies that capture through it.
MODEL = """g (float[2] x, bool b) => (float[2] y, float[2] same, float[2] given, float[2] twice)
<bool yes = {1}, bool no = {0}, float[2] w = {2, 3}> {
    k = Relu(x)
    y, same, given, twice = If(CONDITION) <
        then_branch = t () => (float[2] r, float[2] k0, float[2] own, float[2] r2) {
            m = Add(k, w)
            r = If(b) <
                then_branch = i () => (float[2] p) { p = Mul(k, m) },
                else_branch = j () => (float[2] p) { p = Sub(k, w) }
            >
            k0 = Identity(k)
            own = Identity(w)
            r2 = Identity(r)
        },
        else_branch = e () => (float[2] r, float[2] x0, float[2] v, float[2] r2)
        <float[2] v = {5, 6}> {
            m = Sub(x, w)
            r = Neg(m)
            x0 = Abs(k)
            r2 = Exp(r)
        }
    >
}"""


@pytest.mark.parametrize("condition", ["yes", "no"])
@pytest.mark.parametrize("inner", [True, False])
def test_a_branch_computes_what_the_if_did(condition: str, inner: bool) -> None:
    model = parse(MODEL.replace("CONDITION", condition))
    folded = lower(apply("fold-constants", model)[0])
    assert sum(node.op_type == "If" for node in folded.graph.node) == (condition == "yes")
    feed = {"x": np.array([-1.5, 2.5], np.float32), "b": np.array(inner)}
    before, after = run_model(model, feed), run_model(folded, feed)
    for name, expected in before.items():
        np.testing.assert_array_equal(after[name], expected, name)


def test_names_of_others_are_left_to_them() -> None:
    text = """g (float[2] x, bool c) => (float[2] y, float[2] z) <bool yes = {1}> {
        y = If(yes) <then_branch = t () => (float[2] r) { m = Neg(x)  r = Abs(m) },
                     else_branch = e () => (float[2] r) { r = Abs(x) }>
        z = If(c) <then_branch = t () => (float[2] r) { m = Neg(y)  r = Abs(m) },
                   else_branch = e () => (float[2] r) { r = Abs(y) }>
    }"""
    folded = lower(apply("fold-constants", parse(text))[0])
    assert [list(node.output) for node in folded.graph.node] == [["m_1"], ["y"], ["z"]]
    feed = {"x": np.array([-1.5, 2.5], np.float32), "c": np.array(True)}
    np.testing.assert_array_equal(run_model(folded, feed)["z"], [1.5, 2.5])


def test_taking_a_branch_can_be_taken_back() -> None:
    model = lift(parse(MODEL.replace("CONDITION", "yes")))
    before = print_model(model), serialize(lower(model)), sorted(model.names)
    (op,) = [op for op in model.graph.ops() if op.is_type("If")]
    rewriter = BodyRewriter(model)
    with rewriter.trial():
        rewriter.inline_branch(op, op.subgraphs["then_branch"])
        verify(model)
        assert not [inner for inner in model.graph.ops() if inner is op]
    verify(model)
    assert (print_model(model), serialize(lower(model)), sorted(model.names)) == before
