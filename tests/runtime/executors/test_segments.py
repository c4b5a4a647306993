"""Models cut into segments: tensors are those of the whole, and no op runs once for each layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, numpy_helper
from support.graphs import float_models
from support.models import parse, random_feeds

from qc.ir.errors import UsageError
from qc.runtime import SegmentRunner, expose_tensors, open_session, run_session
from qc.runtime.protos.parts import Cutter

LAYERS = 12


def chain(layers: int = LAYERS, side: int = 8) -> ModelProto:
    """Residual layers: ``h = relu(h @ w + b) + h``, with weights that ONNX Runtime gets as arrays."""
    lines, weights = [], []
    for i in range(layers):
        lines.append(
            f"m{i} = MatMul(h{i}, w{i}) a{i} = Add(m{i}, b{i}) r{i} = Relu(a{i}) h{i + 1} = Add(r{i}, h{i})"
        )
        weights.append(f"float[{side},{side}] w{i}, float[{side}] b{i}")
    interface = f"(float[n,{side}] h0) => (float[n,{side}] h{layers}) <{', '.join(weights)}>"
    return parse(f"chain {interface} {{{' '.join(lines)}}}")


def whole(model: ModelProto, name: str, feed: dict[str, np.ndarray]) -> np.ndarray:
    return run_session(open_session(expose_tensors(model, [name]), threads=1), feed, [name])[0]


@pytest.mark.parametrize("side", [8, 256])
def test_a_chain_visited_layer_by_layer_runs_every_op_once(side: int) -> None:
    model = chain(side=side)
    feeds = random_feeds(model, 2)
    runner = SegmentRunner(model, feeds, threads=1)
    for i in range(LAYERS):
        found = runner.tensors([f"h{i}", f"a{i}"])
        for feed, array in zip(feeds, found[f"a{i}"], strict=True):
            np.testing.assert_allclose(array, whole(model, f"a{i}", feed), rtol=1e-4, atol=1e-4)
    assert runner.ran <= len(model.graph.node)
    assert runner.tensors([f"h{LAYERS}"])[f"h{LAYERS}"][1].shape == feeds[1]["h0"].shape
    assert runner.ran == len(model.graph.node)


def test_a_sequence_may_be_fed() -> None:
    model = parse("""g (seq(float[n, 4]) parts) => (float[k, 4] y) <float[4, 4] w> {
        joined = ConcatFromSequence<axis = 0>(parts)
        y = MatMul(joined, w)
    }""")
    parts = [np.full((2, 4), number, np.float32) for number in (1, 2)]
    runner = SegmentRunner(model, [{"parts": parts}, {"parts": parts[:1]}], threads=1)
    assert [len(array) for array in runner.tensors(["joined"])["joined"]] == [4, 2]
    assert [len(array) for array in runner.tensors(["y"])["y"]] == [4, 2]


def test_layers_that_are_changed_on_the_way_run_twice() -> None:
    """As sequential corrections do: see the result of a layer, change its bias, and go on from there."""
    model = chain()
    feeds = random_feeds(model, 2)
    runner = SegmentRunner(model, feeds, threads=1)
    for i in range(LAYERS):
        runner.tensors([f"a{i}"])
        bias = next(tensor for tensor in model.graph.initializer if tensor.name == f"b{i}")
        corrected = numpy_helper.to_array(bias) - np.float32(0.5)
        bias.CopyFrom(numpy_helper.from_array(corrected, bias.name))
        runner.replace(f"b{i}", corrected)
    last = f"h{LAYERS}"
    for feed, array in zip(feeds, runner.tensors([last])[last], strict=True):
        np.testing.assert_allclose(array, whole(model, last, feed), rtol=1e-4, atol=1e-4)
    assert runner.ran <= 2 * len(model.graph.node)


def test_what_nobody_reads_any_more_is_forgotten() -> None:
    runner = SegmentRunner(chain(), random_feeds(chain(), 1))
    for i in range(1, LAYERS):
        runner.tensors([f"h{i}"])
        assert set(runner._known) <= {"h0", f"h{i - 1}", f"h{i}"}


@settings(max_examples=30, deadline=None)
@given(model=float_models(), data=st.data())
def test_any_order_gives_what_the_whole_model_gives(model: ModelProto, data: st.DataObject) -> None:
    names = [name for node in model.graph.node for name in node.output if name]
    feeds = random_feeds(model, 1)
    runner = SegmentRunner(model, feeds, threads=1)
    for name in data.draw(st.lists(st.sampled_from(names), max_size=5)):
        np.testing.assert_allclose(
            runner.tensors([name])[name][0], whole(model, name, feeds[0]), rtol=1e-3, atol=1e-3
        )


BRANCHES = """
branches (float[2] x, bool c) => (float[2] y) <float[2] w> {
  k = Constant<value_floats = [1.0, 2.0]>()
  a = Mul(x, w)
  b = If(c) <
    then_branch = t () => (float[2] u) { u = Add(a, k) },
    else_branch = e () => (float[2] v) { v = Sub(x, a) }
  >
  y = Relu(b)
}
"""


def test_what_bodies_capture_comes_along() -> None:
    model = parse(BRANCHES)
    feeds = [{"x": np.float32([1, -2]), "c": np.array(choice)} for choice in (True, False)]
    runner = SegmentRunner(model, feeds, threads=1)
    runner.tensors(["a"])
    found = runner.tensors(["y"])["y"]
    for feed, array in zip(feeds, found, strict=True):
        np.testing.assert_array_equal(array, whole(model, "y", feed))
    assert runner.ran == 3


def test_a_node_that_runs_again_makes_all_of_its_results_again() -> None:
    """One of them is still known when another, which was forgotten, is wanted once more."""
    text = """g (float[2] x) => (float[1] y) <float[1] w> {
        a, b = Split<num_outputs = 2>(x)
        scaled = Mul(a, w)
        y = Add(scaled, b)
    }"""
    runner = SegmentRunner(parse(text), [{"x": np.float32([3, 5])}], threads=1)
    for _ in range(2):  # at the second call "a" goes, which nothing is left to read
        runner.tensors(["scaled"])
    runner.replace("w", np.float32([2]))
    assert runner.tensors(["y"])["y"][0].tolist() == [11]


def test_a_segment_has_nothing_of_the_rest() -> None:
    model = chain()
    types = {info.name: info.type for info in model.graph.input}
    segment = Cutter(model).segment(["a3"], {"h3": types["h0"]})
    assert [node.op_type for node in segment.graph.node] == ["MatMul", "Add"]
    assert {tensor.name for tensor in segment.graph.initializer} == {"w3", "b3"}
    assert [info.name for info in segment.graph.input] == ["h3"]


def test_names_and_shapes_that_are_not_there() -> None:
    runner = SegmentRunner(chain(), random_feeds(chain(), 1))
    with pytest.raises(UsageError, match="computes no tensor 'h99'"):
        runner.tensors(["h99"])
    with pytest.raises(UsageError, match=r"no initializer 'b0' of shape \[3\]"):
        runner.replace("b0", np.zeros(3, np.float32))


def test_a_single_number_can_be_replaced() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float s = {2}> { y = Mul(x, s) }")
    runner = SegmentRunner(model, [{"x": np.ones(2, np.float32)}], threads=1)
    assert runner.tensors(["y"])["y"][0].tolist() == [2, 2]
    runner.replace("s", np.float32(3))
    assert runner.tensors(["y"])["y"][0].tolist() == [3, 3]
