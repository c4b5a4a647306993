"""Scores equal their definitions, however the data is split, and candidates that do not fit are refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from support.folders import FIXTURES

from qc.ir.errors import DataError, ModelError, UsageError
from qc.runtime import OutputScore, evaluate
from qc.runtime.metrics.sums import Sums


def f32(values: object) -> np.ndarray:
    return np.array(values, np.float32)


def make_model(
    nodes: Sequence[NodeProto], outputs: Sequence[str] = ("y",), input_name: str = "x"
) -> ModelProto:
    value = helper.make_tensor_value_info(input_name, TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "test", [value], [ValueInfoProto(name=name) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plus(offset: float) -> ModelProto:
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(f32(offset)))
    return make_model([constant, helper.make_node("Add", ["x", "c"], ["y"])])


def op(op_type: str, input_name: str = "x", **attributes: Any) -> ModelProto:
    return make_model([helper.make_node(op_type, [input_name], ["y"], **attributes)], input_name=input_name)


def only_score(reference: ModelProto, candidate: ModelProto, feeds: Sequence[object]) -> OutputScore:
    data = [{"x": f32(feed)} for feed in feeds]
    result = evaluate(reference, {"candidate": candidate}, data, latency_seconds=0)
    assert result.feeds == len(feeds) and result.rounds == 0 and result.reference is None
    assert result.candidates[0].latency is None
    return result.candidates[0].outputs[0]


vectors = hnp.arrays(np.float32, st.integers(1, 20), elements=st.floats(-100, 100, width=32))


@given(st.lists(vectors, min_size=1, max_size=4))
@settings(deadline=None, max_examples=40)
def test_scores_equal_their_definition_over_all_feeds(feeds: list[np.ndarray]) -> None:
    score = only_score(op("Identity"), op("Round"), feeds)
    x = np.concatenate(feeds).astype(np.float64)
    y = np.rint(x)
    noise = np.sum((x - y) ** 2)
    assert score.elements == x.size and score.equal == np.mean(x == y)
    assert score.max_abs_error == np.abs(x - y).max()
    assert score.sqnr_db is not None and score.cosine is not None
    if noise == 0:
        assert score.sqnr_db == math.inf and score.cosine == 1
        return
    assert score.sqnr_db == pytest.approx(10 * np.log10(np.sum(x**2) / noise))
    if y.any():
        assert score.cosine == pytest.approx(np.dot(x, y) / np.linalg.norm(x) / np.linalg.norm(y))
    else:
        assert math.isnan(score.cosine)


def test_edges_of_the_scores() -> None:
    same = only_score(op("Relu"), op("Relu"), [f32([-1, 2])])
    assert same == OutputScore("y", 2, 1.0, math.inf, 1.0, 0.0)
    from_zero = only_score(plus(0), plus(1), [np.zeros(2)])
    assert (
        from_zero.sqnr_db == -math.inf and math.isnan(from_zero.cosine or 0) and from_zero.max_abs_error == 1
    )
    empty = only_score(op("Relu"), op("Neg"), [np.zeros(0)])
    assert empty == OutputScore("y", 0, 1.0, math.inf, 1.0, 0.0)


def test_nonfinite_outputs() -> None:
    both = only_score(op("Log"), op("Log"), [[-1, 0, 2]])
    assert both.sqnr_db == math.inf and both.equal == 1
    one = only_score(op("Relu"), op("Log"), [[0, 1]])
    assert one.sqnr_db == -math.inf and one.max_abs_error == math.inf and math.isnan(one.cosine or 0)


def test_outputs_that_are_not_floats_are_counted() -> None:
    nodes = [
        helper.make_node("Round", ["x"], ["r"]),
        helper.make_node("Cast", ["r"], ["y"], to=TensorProto.INT64),
    ]
    score = only_score(op("Cast", to=TensorProto.INT64), make_model(nodes), [[0.2, 0.8], [1.4, 3.9]])
    assert score == OutputScore("y", 4, 0.5)


def test_sequences_are_compared_tensor_by_tensor() -> None:
    def pair(op_type: str) -> ModelProto:
        return make_model(
            [
                helper.make_node(op_type, ["x"], ["r"]),
                helper.make_node("SequenceConstruct", ["x", "r"], ["y"]),
            ]
        )

    score = only_score(pair("Identity"), pair("Neg"), [[1, 2]])
    assert score.elements == 4 and score.equal == 0.5 and score.max_abs_error == 4


def test_every_output_has_its_own_score_and_every_model_its_latency() -> None:
    def two(second: str) -> ModelProto:
        nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node(second, ["x"], ["b"])]
        return make_model(nodes, ["a", "b"])

    result = evaluate(
        two("Abs"),
        {"same": two("Abs"), "other": two("Neg")},
        [{"x": f32([1, -2])}],
        latency_seconds=0.01,
        max_rounds=8,
    )
    assert [candidate.name for candidate in result.candidates] == ["same", "other"]
    assert [score.output for score in result.candidates[1].outputs] == ["a", "b"]
    assert result.candidates[0].worst_sqnr_db == math.inf
    assert result.candidates[1].worst_sqnr_db == pytest.approx(10 * math.log10(5 / 4))
    assert 5 <= result.rounds <= 8 and result.threads == 1
    assert result.reference is not None and result.reference.ratio == 1 and result.reference.seconds > 0
    assert all(candidate.latency and candidate.latency.ratio > 0 for candidate in result.candidates)


def test_a_real_model_from_a_path_and_data_that_can_be_read_only_once() -> None:
    path = FIXTURES / "digits_cnn.onnx"
    rounded = onnx.load(path)
    for tensor in rounded.graph.initializer:
        halved = numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32)
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(halved, tensor.name))
    images = np.load(FIXTURES / "digits_test.npz")["image"][:20]
    feeds = ({"image": image[None]} for image in images)
    result = evaluate(path, {"itself": str(path), "float16": rounded}, feeds, latency_seconds=0.01)
    itself, half = result.candidates
    assert result.feeds == 20 and itself.worst_sqnr_db == math.inf
    assert 40 < half.worst_sqnr_db < 100 and half.outputs[0].cosine == pytest.approx(1, abs=1e-4)


def test_candidates_that_do_not_fit_are_refused() -> None:
    x = [{"x": f32([1, 2])}]
    with pytest.raises(UsageError, match="give at least one candidate"):
        evaluate(op("Relu"), {}, x)
    renamed = make_model([helper.make_node("Relu", ["x"], ["z"])], ["z"])
    with pytest.raises(ModelError, match="the candidate 'odd' lacks the output 'y' of the float model"):
        evaluate(op("Relu"), {"odd": renamed}, x)
    with pytest.raises(ModelError, match="the float model takes 'x'"):
        evaluate(op("Relu"), {"odd": op("Relu", "v")}, x)
    scalar = op("ReduceMax", keepdims=0)
    with pytest.raises(
        ModelError, match=r"output 'y' of 'odd' on feed 0 has shape \(\), the reference has \(2,\)"
    ):
        evaluate(op("Relu"), {"odd": scalar}, x)
    with pytest.raises(DataError, match="there is no sample"):
        evaluate(op("Relu"), {"odd": op("Relu")}, [])


def test_large_arrays_are_summed_up_like_small_ones() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 33_001)).astype(np.float32)
    y = x + rng.normal(scale=0.01, size=x.shape).astype(np.float32)
    x[0, 7] = y[0, 7] = np.nan
    x[1, 9] = y[1, 9] = -np.inf
    sums = Sums()
    sums.add_array(x, y)
    kept = np.isfinite(x)
    error = x[kept].astype(float) - y[kept]
    score = sums.score("y")
    assert score.elements == x.size and score.max_abs_error == np.abs(error).max()
    assert score.sqnr_db == pytest.approx(
        10 * np.log10(np.sum(x[kept].astype(float) ** 2) / np.sum(error**2))
    )
    y[2, 33_000] = np.inf
    sums.add_array(x, y)
    assert sums.sqnr_db == -math.inf


def nonzero_after(offset: float) -> ModelProto:
    """The places of the elements that differ from an offset: a result whose length depends on the data."""
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(f32(offset)))
    nodes = [
        constant,
        helper.make_node("Sub", ["x", "c"], ["y"]),
        helper.make_node("NonZero", ["y"], ["places"]),
        helper.make_node("Compress", ["y", "filled"], ["kept"]),
        helper.make_node("Cast", ["y"], ["filled"], to=TensorProto.BOOL),
    ]
    return make_model([*nodes[:3], nodes[4], nodes[3]], ["y", "places", "kept"])


def test_outputs_whose_length_depends_on_the_data_are_compared_where_they_can_be() -> None:
    feeds = [{"x": f32([1, 2])}, {"x": f32([3, 4])}, {"x": f32([0, 5])}]
    metrics = ["sqnr", "sqnr(kept)", "top-1(kept)", "cosine(y)"]
    result = evaluate(
        nonzero_after(0), {"shifted": nonzero_after(1)}, feeds, latency_seconds=0, metrics=metrics
    )
    whole, places, kept = result.candidates[0].outputs
    assert (whole.left_out, places.left_out, kept.left_out) == (0, 2, 2)
    assert whole.elements == 6 and kept.elements == 2 and places.elements == 2
    expected = 10 * math.log10((3**2 + 4**2) / 2)
    assert kept.sqnr_db == pytest.approx(expected) and places.equal == 1
    assert result.metrics[1].candidates == (pytest.approx(expected),)
    never = evaluate(nonzero_after(0), {"shifted": nonzero_after(1)}, feeds[:1], latency_seconds=0)
    assert never.candidates[0].outputs[2].left_out == 1
    assert math.isnan(never.candidates[0].outputs[2].equal) and never.candidates[0].outputs[2].sqnr_db is None
    never = evaluate(
        nonzero_after(0), {"shifted": nonzero_after(1)}, feeds[:1], latency_seconds=0, metrics=metrics[1:]
    )
    assert [math.isnan(metric.candidates[0]) for metric in never.metrics] == [True, True, False]
