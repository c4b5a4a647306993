"""Ops that nothing reads go, also in bodies."""

from __future__ import annotations

from support.models import parse
from support.pipelines import apply


def test_dead_code_in_a_branch() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If(c) <
            then_branch = t () => (float[2] r) <float[2] w = {1, 2}> { a = Add(x, w) r = Neg(x) },
            else_branch = e () => (float[2] u) { u = Abs(x) }
        >
    }"""
    ir, _, _ = apply("eliminate-dead-code", parse(text))
    branch = ir.graph.ops()[0].subgraphs["then_branch"]
    assert [op.op_type for op in branch.ops()] == ["Neg"]
    assert branch.value_named("w") is None
