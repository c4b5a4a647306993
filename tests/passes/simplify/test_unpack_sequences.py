"""Sequences whose tensors are known."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse, random_feeds
from support.pipelines import apply, check, run_model

from qc.ir.onnx.lower import lower


def left(ops: str, opset: int = 18) -> list[str]:
    """The ops of a model behind the pass, which computes what it did."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[4, 6] x, float[4, 6] z, int64 n) => (float[A, B] y) <
        int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64 four = {{4}}, int64 last = {{-1}},
        int64[2] parts = {{1, 3}}
    > {{ {ops} }}""")
    ir, _, _ = apply("unpack-sequences, fold-constants, eliminate-identity, eliminate-dead-code", model)
    made = lower(ir)
    check(made)
    for feed in random_feeds(model):
        feed["n"] = np.array(1)
        np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], atol=1e-6)
    return [node.op_type for node in made.graph.node]


def test_the_pass_folds_nothing_itself() -> None:
    """How large constants may become is for fold-constants, which the pipelines have behind it."""
    model = parse("""<ir_version: 8, opset_import: ["" : 18]>
    g (float[4, 6] x, float[4, 6] z) => (float[4, 6] y) {
        s = SequenceConstruct(x, z) n = SequenceLength(s) f = Cast<to = 1>(n) y = Mul(x, f)
    }""")
    made = lower(apply("unpack-sequences", model)[0])
    assert "Cast" in {node.op_type for node in made.graph.node}


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("s = SplitToSequence(x, two) y = SequenceAt(s, last)", ["Split"]),
        ("s = SplitToSequence<axis = -1>(x, four) y = SequenceAt(s, one)", ["Split"]),
        ("s = SplitToSequence(x, parts) y = SequenceAt(s, zero)", ["Split"]),
        ("s = SplitToSequence(x) y = SequenceAt(s, two)", ["Split"]),
        (
            "s = SplitToSequence<axis = 1, keepdims = 0>(x) "
            "y = ConcatFromSequence<axis = -1, new_axis = 1>(s)",
            [*["Gather"] * 6, *["Unsqueeze"] * 6, "Concat"],
        ),
        ("s = SequenceConstruct(x, z) y = ConcatFromSequence<axis = 1>(s)", ["Concat"]),
        (
            "e = SequenceEmpty() a = SequenceInsert(e, x) b = SequenceInsert(a, z) "
            "c = SequenceInsert(b, z, last) d = SequenceErase(c) f = SequenceInsert(d, x, zero) "
            "y = ConcatFromSequence<axis = 0>(f)",
            ["Concat"],
        ),
        (
            "s = SequenceConstruct(x, z, x) k = SequenceErase(s, one) n2 = SequenceLength(k) "
            "a = SequenceAt(k, one) f = Cast<to = 1>(n2) y = Mul(a, f)",
            ["Mul"],
        ),
    ],
)
def test_what_is_read_of_a_sequence_is_a_tensor(ops: str, expected: list[str]) -> None:
    assert left(ops) == expected


@pytest.mark.parametrize(
    "ops",
    [
        "s = SequenceConstruct(x, z) y = SequenceAt(s, n)",
        "s = SplitToSequence(x, n) y = SequenceAt(s, zero)",
        "e = SequenceConstruct(x, z) s = SequenceInsert(e, x, n) y = SequenceAt(s, zero)",
    ],
)
def test_a_sequence_that_data_decides_about_stays(ops: str) -> None:
    assert any("Sequence" in op for op in left(ops))


def test_a_sequence_of_which_data_takes_one_is_not_split() -> None:
    """It would be an op for each of its tensors, for nothing."""
    assert left("s = SplitToSequence(x, one) y = SequenceAt(s, n)") == ["SplitToSequence", "SequenceAt"]


def test_a_split_of_old_has_its_lengths_as_an_attribute() -> None:
    assert left("s = SplitToSequence(x, two) y = SequenceAt(s, one)", opset=11) == ["Split"]
