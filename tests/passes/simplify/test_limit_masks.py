"""Masks become small enough for the integers of a target, and Softmax gives what it gave."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper
from support.masks import LENGTH, SPELLINGS, attention, feeds_of, sqnr
from support.models import parse
from support.pipelines import apply, artifact, run_model

import qc
from qc.ir.onnx.protos import walk_nodes
from qc.runtime import open_session, run_session

LOWEST = -3.4028235e38
COMPUTED = [(spelling, LOWEST) for spelling in SPELLINGS if spelling.startswith(("where", "added, computed"))]
INFINITE = [("where", -np.inf), ("where behind a shape", -np.inf)]


def masked(spelling: str, far: float) -> ModelProto:
    """Attention with a mask, which the text of a model cannot spell if it is infinite."""
    model = attention(spelling, max(far, LOWEST))
    for tensor in model.graph.initializer:
        if tensor.name == "far":
            tensor.CopyFrom(numpy_helper.from_array(np.float32(far), "far"))
    return model


def limited(model: ModelProto, target: str = "qnn-htp") -> ModelProto:
    return qc.compile(model, "limit-masks", target=target).model


def constants(model: ModelProto) -> dict[str, float]:
    """The least number of each constant."""
    return {tensor.name: float(numpy_helper.to_array(tensor).min()) for tensor in model.graph.initializer}


@pytest.mark.parametrize("spelling, far", COMPUTED + INFINITE)
def test_float_results_stay_and_every_tensor_gets_a_grid(spelling: str, far: float) -> None:
    model = masked(spelling, far)
    feeds = feeds_of(model, far)
    made = limited(model)
    assert constants(made)["far_limited"] == -512 and "far" not in constants(made)
    for feed in feeds:
        np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])
    result = qc.compile(model, "w8a8", data=feeds, target="qnn-htp", threads=1)
    assert not [remark for remark in result.ir.journal.remarks if "infinity" in remark.reason]
    assert min(sqnr(run_model(model, feed)["y"], run_model(result.model, feed)["y"]) for feed in feeds) > 20


@pytest.mark.parametrize("spelling, far", COMPUTED)
def test_a_row_that_is_all_masked_is_uniform_in_integers(spelling: str, far: float) -> None:
    model = masked(spelling, far)
    feeds = feeds_of(model, far)
    pipeline = "limit-masks,insert-quantizers,calibrate,to-simulation"
    made = artifact(apply(pipeline, model, "qnn-htp", feeds)[1], "simulation")
    feed = {"x": feeds[0]["x"], "m": np.zeros_like(feeds[0]["m"])}
    floats, rounded = run_model(model, feed)["y"], run_model(made, feed)["y"]
    assert np.ptp(floats, axis=2).max() < 1e-5 and np.ptp(rounded, axis=2).max() < 1e-5
    assert sqnr(floats, rounded) > 15


def test_a_target_without_a_limit_keeps_masks() -> None:
    assert constants(limited(masked("where", LOWEST), "ort-cpu"))["far"] == np.float32(LOWEST)


BIASES = {
    "a table whose first row masks": ("int64[2, 4] d", "g = Gather(table, d)\n b = Reshape(g, shape)"),
    "chosen": ("bool[2, 4] d", "b = Where(d, slopes, far)"),
    "constant": ("bool[2, 4] d", "b = Identity(causal)"),
}


@pytest.mark.parametrize("spelling", BIASES)
def test_biases_of_scores_keep_their_numbers_beside_a_mask_in_one_tensor(spelling: str) -> None:
    """Graph transformers look up biases and masks in one table; others choose between slopes and a mask."""
    given, body = BIASES[spelling]
    model = parse(
        f"""g (float[2, 4] s, {given}) => (float[2, 4] y)
        <float[5, 1] table = {{0, 1, -1, 0.5, -0.5}}, int64[2] shape = {{2, 4}},
         float[4] slopes = {{0, -0.5, -1, -1.5}}, float[1] far = {{0}},
         float[2, 4] causal = {{0, -0.5, 1, -10000, 0.25, 1, -10000, -10000}}> {{
        {body}
        w = Add(s, b)
        y = Softmax(w)
    }}"""
    )
    for tensor in model.graph.initializer:
        if tensor.name in ("table", "far"):
            numbers = numpy_helper.to_array(tensor).copy()
            numbers[0] = -np.inf
            tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))
    random = np.random.default_rng(0)
    read = np.array([[0, 1, 2, 3], [1, 0, 4, 2]])
    d = read if "table" in body else read > 0
    feeds = [{"s": random.normal(size=(2, 4)).astype(np.float32), "d": d} for _ in range(4)]
    assert -512 in constants(limited(model)).values() or spelling == "constant"
    result = qc.compile(model, "w8a8", data=feeds, target="qnn-htp", threads=1)
    assert all(op.runs == "integer" for op in qc.check(result.model, "qnn-htp", feeds).counted)
    assert min(sqnr(run_model(model, feed)["y"], run_model(result.model, feed)["y"]) for feed in feeds) > 25


def test_a_table_that_others_read_as_well_keeps_its_range() -> None:
    text = """g (float[2, 4] s, int64[2] d, float[3, 4] z) => (float[2, 4] y, float[3, 4] k)
    <float[3, 4] table = {0, 1, -10000, -10000, 0.5, 0, 0, -10000, 1, 2, 0, 0}> {
        b = Gather(table, d) w = Add(s, b) y = Softmax(w) k = Mul(z, table) }"""
    model, random = parse(text), np.random.default_rng(0)
    draw = [random.normal(size=shape).astype(np.float32) for shape in ((2, 4), (3, 4))]
    feed = {"s": draw[0], "d": np.array([0, 2]), "z": draw[1]}
    result = qc.compile(model, "w8a8", data=[feed], target="qnn-htp", threads=1)
    assert sqnr(run_model(model, feed)["k"], run_model(result.model, feed)["k"]) > 30


def looking_for_nan(far: float, choice: str = "Where(n, zero, a)") -> ModelProto:
    """A mask as PyTorch exports it: rows that it hides as a whole are 0 behind the Softmax."""
    model = parse(
        f"""g (float[2, 4] s, bool[2, 4] m) => (float[2, 4] y) <float far = {{1}}, float zero = {{0}}> {{
        b = Where(m, zero, far)
        w = Add(s, b)
        a = Softmax(w)
        n = IsNaN(a)
        y = {choice}
    }}"""
    )
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32(far), "far"))
    return model


def test_nothing_looks_for_nan_where_no_mask_is_left() -> None:
    """As where DETR sees whole pictures: the HTP gave up a model with an IsNaN."""
    model = parse("""g (float[2, 4] s) => (float[2, 4] y) <float zero = {0}> {
        a = Softmax(s)  n = IsNaN(a)  y = Where(n, zero, a)
    }""")
    result = qc.compile(model, "limit-masks", target="qnn-htp")
    assert [node.op_type for node in result.model.graph.node] == ["Softmax"]
    assert not result.notes


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ("y", "y = Where(n, zero, a)"),
        ("y, float[2, 4] a", "y = Where(n, zero, a)"),
        (
            "y",
            """y = If(c) <
            then_branch = t () => (float[2, 4] r) { l = IsNaN(a) r = Where(l, zero, a) },
            else_branch = e () => (float[2, 4] u) { u = Neg(a) }
            >""",
        ),
    ],
)
def test_what_is_left_without_a_choice_keeps_the_names_of_outputs(outputs: str, text: str) -> None:
    model = parse(f"""g (float[2, 4] s, bool[2, 4] m, bool c) => (float[2, 4] {outputs})
        <float zero = {{0}}, float far = {{-3e38}}> {{
        b = Where(m, s, far)  a = Softmax(b)  n = IsNaN(a)  {text}
    }}""")
    made = qc.compile(model, "limit-masks, eliminate-dead-code", target="qnn-htp").model
    onnx.checker.check_model(made)
    assert [output.name for output in made.graph.output] == [output.name for output in model.graph.output]
    assert not [node for node in walk_nodes(made.graph.node) if node.op_type == "IsNaN"]
    feed = {"s": np.arange(8, dtype=np.float32).reshape(2, 4), "c": np.array(True)}
    feed["m"] = feed["s"] > 1
    before, after = run_model(model, feed), run_model(made, feed)
    assert all(np.array_equal(before[name], after[name]) for name in before)


SECOND_ROW_HIDDEN = {
    "s": np.array([[1, 2, 3, 4], [4, 3, 2, 1]], np.float32),
    "m": np.array([[True, True, False, True], [False] * 4]),
}


@pytest.mark.parametrize("far", [LOWEST, -np.inf])
def test_nothing_looks_for_nan_behind_a_limited_mask_and_a_note_tells_of_rows_that_change(far: float) -> None:
    model = looking_for_nan(far)
    result = qc.compile(model, "limit-masks", target="qnn-htp")
    is_infinite = bool(np.isinf(far))
    assert "far" not in constants(result.model)
    assert [node.op_type for node in result.model.graph.node] == ["Where", "Add", "Softmax"]
    assert any("rows that a mask hides as a whole" in note for note in result.notes) == is_infinite
    before, after = (run_session(open_session(one), SECOND_ROW_HIDDEN)[0] for one in (model, result.model))
    assert np.allclose(before[0], after[0], atol=1e-6)
    assert before[1].any() != is_infinite and np.allclose(after[1].sum(), 1)


@pytest.mark.parametrize(
    "pipeline, choice",
    [("limit-masks{hidden_rows=keep}", "Where(n, zero, a)"), ("limit-masks", "Where(n, a, zero)")],
)
def test_an_infinity_stays_where_it_is_asked_for_or_something_else_is_made_of_the_nan(
    pipeline: str, choice: str
) -> None:
    result = qc.compile(looking_for_nan(-np.inf, choice), pipeline, target="qnn-htp")
    assert "far" in constants(result.model)
    assert any("an IsNaN looks for" in remark.reason for remark in result.ir.journal.remarks)


def test_rows_that_infinity_hides_stay_where_a_finite_mask_is_beside_it() -> None:
    model = parse(
        """g (float[2, 4] s, bool[2, 4] m, bool[2, 4] k) => (float[2, 4] y)
        <float far = {1}, float zero = {0}, float low = {-1000000000}> {
        b = Where(m, zero, far)
        c = Where(k, zero, low)
        v = Add(s, c)
        w = Add(v, b)
        a = Softmax(w)
        n = IsNaN(a)
        y = Where(n, zero, a)
    }"""
    )
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32(-np.inf), "far"))
    result = qc.compile(model, "limit-masks{hidden_rows=keep}", target="qnn-htp")
    assert constants(result.model).keys() == {"far", "zero", "low_limited"}
    feed = SECOND_ROW_HIDDEN | {"k": np.ones((2, 4), bool)}
    assert not run_model(result.model, feed)["y"][1].any()


def test_a_mask_that_is_chosen_among_constants_has_a_grid() -> None:
    model = looking_for_nan(-np.inf)
    feeds = [SECOND_ROW_HIDDEN | {"m": np.array([[True] * 4, [False, True, True, False]])}]
    result = qc.compile(model, "w8a8", data=feeds, target="qnn-htp")
    check = qc.check(result.model, "qnn-htp", feeds)
    assert {op.op_type: op.runs for op in check.counted} == dict.fromkeys(
        ("Where", "Add", "Softmax"), "integer"
    )
    assert check.broken == ()


@pytest.mark.parametrize(
    "body",
    [
        "w = Where(m, s, far)\n a = Softmax(w)\n y = Add(a, w)",
        "w = Where(m, s, far)\n n = Equal(w, far)\n a = Softmax(w)\n y = Where(n, s, a)",
        "b = Where(m, s, far)\n w = Add(s, b)\n y = LogSoftmax(w)",
        "y = Where(m, s, far)",
        "y = Max(s, far)",
    ],
)
def test_what_others_see_as_well_stays(body: str) -> None:
    text = f"g (float[2, 4] s, bool[2, 4] m) => (float[2, 4] y) <float far = {{-1000000000}}> {{ {body} }}"
    assert constants(limited(parse(text))) == {"far": -1e9}


def test_masks_in_bodies_are_limited_too() -> None:
    text = """g (float[2, 12] s, bool[2, 12] m, bool c) => (float[2, 12] y) <float far = {-1000000000}> {
        y = If(c) <
            then_branch = t () => (float[2, 12] p) { w = Where(m, s, far)  p = Softmax(w) },
            else_branch = e () => (float[2, 12] q) { q = Where(m, s, far) }
        >
    }"""
    model = parse(text)
    made = limited(model)
    assert constants(made) == {"far": -1e9}  # the other branch gives it back
    (branch,) = [a.g for a in made.graph.node[0].attribute if a.name == "then_branch"]
    assert [float(numpy_helper.to_array(tensor)) for tensor in branch.initializer] == [-512]
    rng = np.random.default_rng(0)
    for condition in (True, False):
        mask = np.arange(LENGTH) < np.array([[5], [9]])
        feed = {"s": rng.normal(size=(2, LENGTH)).astype(np.float32), "m": mask, "c": np.array(condition)}
        np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])
