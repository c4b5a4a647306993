"""Masks of attention do not ruin the range of scores."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from support.masks import LENGTH, SPELLINGS, attention, feeds_of, sqnr
from support.models import parse
from support.pipelines import apply, artifact, run_model
from support.placement import of_value, value

import qc
from qc.ir import lift
from qc.ir.executor import Observation
from qc.ir.facts.dataflow import infinite_values, masked_scores
from qc.ir.quant.spec import QuantSpec
from qc.passes.quantize.calibration.masks import clipped_to_mask, lowest_with_mask, top_of_mask
from qc.runtime.statistics.tensor import TensorStatistics


@pytest.mark.parametrize("passes", ["insert", "quantsim"])
@pytest.mark.parametrize("far", [-1e4, -1e9, -3.4028235e38])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_masked_attention_is_as_good_as_any(spelling: str, far: float, passes: str) -> None:
    model = attention(spelling, far)
    feeds = feeds_of(model, far)
    place = "insert-quantizers,tie-quantizers" if passes == "insert" else "configure-quantizers"
    ir, context, _ = apply(f"{place},calibrate,insert-qdq,to-simulation", model, "npu", feeds)
    grid = of_value(ir, "w") or of_value(ir, "u")  # which Transpose only moves
    assert grid is not None and grid.encoding is not None
    assert -60 < grid.encoding.minimum < -20 and grid.encoding.maximum < 40
    assert any("mask" in remark.reason for remark in ir.journal.remarks if remark.subject.startswith("'"))
    assert any("a mask reaches far below the scores" in note for note in context.notes)
    for name in ("qdq", "simulation"):
        made = artifact(context, name)
        found = [(run_model(model, feed)["y"], run_model(made, feed)["y"]) for feed in feeds]
        assert min(sqnr(*pair) for pair in found) > 20


@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_default_pipeline_on_both_targets(spelling: str, target: str) -> None:
    model = attention(spelling, -1e4)
    feeds = feeds_of(model, -1e4)
    result = qc.compile(model, "w8a8", data=feeds, target=target, threads=1)
    found = [(run_model(model, feed)["y"], run_model(result.model, feed)["y"]) for feed in feeds]
    assert min(sqnr(*pair) for pair in found) > 20


@pytest.mark.parametrize("method", ["percentile", "entropy", "mse", "sqnr", "moving-average", "tf_enhanced"])
def test_every_method_leaves_the_mask_out(method: str) -> None:
    model = attention("added, computed", -1e4)
    calibrate = "calibrate-as-aimet" if method == "tf_enhanced" else "calibrate"
    pipeline = f"insert-quantizers,{calibrate}{{method={method}}},to-simulation"
    feeds = feeds_of(model, -1e4)
    ir, context, _ = apply(pipeline, model, "npu", feeds)
    grid = of_value(ir, "w")
    assert grid is not None and grid.encoding is not None and -60 < grid.encoding.minimum < -5
    made = artifact(context, "simulation")
    assert min(sqnr(run_model(model, feed)["y"], run_model(made, feed)["y"]) for feed in feeds) > 10


def test_a_row_that_is_all_masked_stays_uniform() -> None:
    model = attention("where", -1e9)
    feeds = feeds_of(model, -1e9)
    context = apply("insert-quantizers,calibrate,to-simulation", model, "npu", feeds)[1]
    feed = {"x": feeds[0]["x"], "m": np.zeros((2, 1, 1, LENGTH), bool)}
    floats, rounded = run_model(model, feed)["y"], run_model(artifact(context, "simulation"), feed)["y"]
    assert np.ptp(floats, axis=2).max() < 1e-5 and np.ptp(rounded, axis=2).max() < 1e-5
    assert sqnr(floats, rounded) > 15


@pytest.mark.parametrize(
    "body, seen_by_softmax_only",
    [
        ("w = Add(s, m)\n a = Softmax(w)\n y = Relu(a)", True),
        ("w = Add(s, m)\n c = Concat<axis=0>(w, s)\n a = Softmax(c)\n y = Relu(a)", True),
        ("w = Add(s, m)\n y = Softmax(w)\n z = Relu(w)", False),
        ("w = Add(s, m)\n y = LogSoftmax(w)", False),
        ("w = Add(s, m)\n b = Add(w, s)\n y = Softmax(b)", False),
        ("w = Mul(s, m)\n y = Softmax(w)", False),
        ("w = Where(n, far, s)\n y = Max(w, s)", False),
    ],
)
def test_which_tensors_count_as_masked_scores(body: str, seen_by_softmax_only: bool) -> None:
    text = f"g (float[2, 4] s, float[2, 4] m, bool[2, 4] n) => (float y) <float far = {{-1e9}}> {{ {body} }}"
    model = lift(parse(text.replace("-1e9", "-1000000000")))
    assert (value(model, "w") in masked_scores(model.graph)) is seen_by_softmax_only


def test_an_output_of_the_model_keeps_its_range() -> None:
    body = "w = Add(s, m)\n y = Softmax(w)"
    model = lift(parse(f"g (float[2, 4] s, float[2, 4] m) => (float[2, 4] w, float[2, 4] y) {{ {body} }}"))
    assert not masked_scores(model.graph)


def test_a_true_infinity_has_no_grid() -> None:
    model = attention("where", -1.0)
    far = next(tensor for tensor in model.graph.initializer if tensor.name == "far")
    far.float_data[:], far.raw_data = [], np.float32(-np.inf).tobytes()
    ir = lift(model)
    assert value(ir, "w") in infinite_values(ir.graph)
    for passes in ("insert-quantizers", "configure-quantizers"):
        placed = qc.compile(model, passes, target="npu", allow_unquantized=True).ir
        for name in ("far", "w"):  # the mask and the masked scores
            assert not placed.quant.sites_on(value(placed, name))
            assert re.search("can hold (NaN, or )?infinity", str(placed.quant.why_not(value(placed, name))))


@pytest.mark.parametrize("target", ["ort-cpu", "npu", "qnn-htp"])
@pytest.mark.parametrize("fill", [np.nan, -np.inf])
@pytest.mark.parametrize("fixed", [(), ("N=3",)])
def test_a_mask_whose_shape_only_a_run_knows(fixed: tuple[str, ...], fill: float, target: str) -> None:
    """What ConstantOfShape fills then is a constant as well: infinity and NaN have no grid."""
    filled = "s = Shape(h)\n f = ConstantOfShape<value = float[1] {7.0}>(s)"
    body = f"h = MatMul(x, w)\n {filled}\n y = Where(m, h, f)"
    model = parse(f"g (float[N, 4] x, bool[N, 4] m) => (float[N, 4] y) <float[4, 4] w> {{ {body} }}")
    node = next(node for node in model.graph.node if node.op_type == "ConstantOfShape")
    node.attribute[0].t.CopyFrom(numpy_helper.from_array(np.array([fill], np.float32)))
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    feeds = [{"x": x, "m": x > -0.6}]
    result = qc.compile(model, "w8a8", data=feeds, target=target, threads=1, fix_shapes=fixed)
    expected, found = run_model(model, feeds[0])["y"], run_model(result.model, feeds[0])["y"]
    assert (np.isfinite(found) == np.isfinite(expected)).all()
    assert sqnr(*(array[feeds[0]["m"]] for array in (expected, found))) > 25
    assert not result.ir.quant.sites_on(value(result.ir, "y"))


numbers = st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40)


@given(numbers, st.lists(st.floats(-(2.0**127), -2000, width=32), max_size=10))
def test_what_counts_as_a_mask(scores: list[float], masked: list[float]) -> None:
    """All that is far below, and nothing else; where there is no such thing nothing changes."""
    array = np.array(scores + masked, np.float32)
    statistics = TensorStatistics.from_array(array, Observation("histogram"))
    top = top_of_mask(statistics)
    spec = QuantSpec.of("uint8")
    if not masked:
        assert top is None
        np.testing.assert_array_equal(clipped_to_mask(array, spec), array)
        return
    assert top is not None
    if max(masked) - top < 1:  # the widest gap is the one between the scores and the mask
        kept = statistics.above(top)
        assert kept.count == len(scores)
        assert min(scores) - 1 <= kept.minimum <= min(scores) and kept.maximum == np.float32(max(scores))
        clipped = clipped_to_mask(array, spec)
        np.testing.assert_array_equal(clipped[: len(scores)], array[: len(scores)])
        assert (clipped[len(scores) :] == np.float32(lowest_with_mask(np.float32(min(scores)), spec))).all()


def test_masked_scores_stay_float_beside_16_bit_floats() -> None:
    """There the mask would become infinite, and a row that is all masked NaN."""
    model = attention("where", -1e9)
    feeds = feeds_of(model, -1e9)
    feed = {"x": feeds[0]["x"], "m": np.zeros((2, 1, 1, LENGTH), bool)}
    rule = "set-precision{rules=['Where=float16','Softmax=float16']}"
    for place in ("insert-quantizers{activation=float16}", f"insert-quantizers,{rule}"):
        ir, context, _ = apply(f"{place},calibrate,insert-qdq", model, "npu", feeds)
        grid = of_value(ir, "w")
        assert grid is None or str(grid.spec.format) == "uint8"
        assert np.isfinite(run_model(artifact(context, "qdq"), feed)["y"]).all()


@pytest.mark.parametrize("pipeline", ["w8a8", "w8a16"])
@pytest.mark.parametrize("far", [-1e4, -1e9, -3.4028235e38])
def test_a_mask_that_is_an_input_has_a_near_end(pipeline: str, far: float) -> None:
    """Beside -1e9 sums of integers lost the scores on the HTP."""
    model = parse("""g (float[4, 8] q, float[8, 8] k, float[4, 8] mask) => (float[4, 8] y) {
        scores = MatMul(q, k)
        sums = Add(scores, mask)
        p = Softmax(sums)
        y = MatMul(p, k)
    }""")
    rng = np.random.default_rng(0)
    feeds = [
        {
            "q": rng.standard_normal((4, 8)).astype(np.float32),
            "k": rng.standard_normal((8, 8)).astype(np.float32),
            "mask": np.where(np.arange(8) < 5, 0, np.full((4, 8), far)).astype(np.float32),
        }
        for _ in range(4)
    ]
    made = qc.compile(model, pipeline, data=feeds, target="qnn-htp", threads=1)
    held = of_value(made.ir, "mask")
    assert held is not None and held.encoding is not None
    assert -150 < float(held.encoding.minimum) < -16
    found = [(run_model(model, feed)["y"], run_model(made.model, feed)["y"]) for feed in feeds]
    assert min(sqnr(*pair) for pair in found) > 25
