"""The pass separate-outliers: large channels are multiplied apart, and the float model stays what it was."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.models import parse
from support.pipelines import PLACE, apply, artifact, run_model
from support.placement import of_value, of_weight, reason
from support.properties import check_outputs

import qc
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.named_pipelines import resolve_pipeline
from qc.passes import Pipeline
from qc.passes.optimize.separate_outliers import SeparateOutliers

CHANNELS = 200
TEXT = """g (float[2, 5, 200] x) => (float[2, 5, 8] y, float[10, 8] z)
<float[200] scale, float[200, 8] w, float[8, 200] v, float[8] b, int64[2] rows = {10, 200}> {
    e = Tanh(x)
    d = Mul(e, scale)
    m = MatMul(d, w)
    s = Add(m, b)
    y = Relu(s)
    flat = Reshape(d, rows)
    g = Gemm<alpha = 0.5, transB = 1>(flat, v, b)
    z = Relu(g)
}"""


def with_outliers(channels: list[int], factor: float = 50) -> onnx.ModelProto:
    """The model with some channels of its tensor that many times as large as the others."""
    model = parse(TEXT)
    scale = np.ones(CHANNELS, np.float32)
    scale[channels] = factor
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "scale")
    tensor.CopyFrom(numpy_helper.from_array(scale, "scale"))
    return model


def feeds(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(7)
    return [{"x": rng.standard_normal((2, 5, CHANNELS)).astype(np.float32)} for _ in range(count)]


def separated(source: onnx.ModelProto, options: str = "") -> Model:
    model, _, _ = apply(f"separate-outliers{options}", source, feeds=feeds(3))
    check_outputs(source, lower(model), feeds(4)[3], 1e-4)
    onnx.checker.check_model(lower(model), full_check=True)
    return model


def test_products_of_one_tensor_share_the_separated_channels() -> None:
    model = separated(with_outliers([3, 77]))
    actions = [remark.reason for remark in model.journal.actions()]
    assert len(actions) == 2 and all("2 of 200 channels reach 49.5" in one for one in actions)


@pytest.mark.parametrize(
    ("channels", "factor", "options"),
    [([3, 77], 3, ""), ([3, 77, 90], 50, ""), ([3], 50, "{share=0.004}"), ([3], 50, "{ratio=60}")],
    ids=["too-small", "too-many", "no-room", "asked-for-more"],
)
def test_nothing_is_done_where_little_is_gained(channels: list[int], factor: float, options: str) -> None:
    model = separated(with_outliers(channels, factor), options)
    assert not list(model.journal.actions())


@pytest.mark.parametrize("target", ["ort-cpu", "openvino", "npu"])
def test_a_target_that_computes_in_float_multiplies_outliers_so(target: str) -> None:
    model, _, _ = apply(f"separate-outliers,{PLACE}", with_outliers([3, 77]), target, feeds(2))
    is_float = of_value(model, "d_outliers") is None
    assert is_float == (target != "npu")
    if is_float:
        assert "outliers" in reason(model, "s_of_outliers")
    assert of_value(model, "d_without_outliers")


@pytest.mark.parametrize("target", ["ort-cpu", "openvino"])
def test_less_is_lost(target: str) -> None:
    source, data = with_outliers([3, 77]), feeds(8)
    errors = []
    for before in ("", "separate-outliers,"):
        passes = f"{before}{PLACE},calibrate{{method=mse}},insert-qdq"
        _, context, _ = apply(passes, source, target, data)
        found = run_model(artifact(context, "qdq"), data[0])["y"]
        errors.append(float(np.square(found - run_model(source, data[0])["y"]).sum()))
    assert errors[1] < errors[0] / 30


GATED = """g (float[2, 5, 200] x) => (float[2, 5, 8] y)
<float[200, 200] left, float[200, 200] right, float[200, 8] w> {
    e = MatMul(x, left)
    f = MatMul(x, right)
    d = Mul(e, f)
    m = MatMul(d, w)
    y = Relu(m)
}"""


@pytest.mark.parametrize("target", ["ort-cpu", "openvino"])
def test_outliers_between_products_of_weights_have_no_grid(target: str) -> None:
    source = parse(GATED)
    for tensor in source.graph.initializer:
        weight = numpy_helper.to_array(tensor).copy()
        if tensor.name == "right":
            weight[:, [3, 77]] *= 200
        tensor.CopyFrom(numpy_helper.from_array(weight, tensor.name))
    passes = f"separate-outliers,{PLACE},calibrate,insert-qdq"
    _, context, _ = apply(passes, source, target, feeds(8))
    wanted, found = (run_model(model, feeds(8)[0])["y"] for model in (source, artifact(context, "qdq")))
    assert np.square(wanted).sum() > 1000 * np.square(found - wanted).sum()


ATTENTION = """g (float[2, 4, 6, 8] q, float[2, 4, 6, 8] v) => (float[2, 4, 6, 2] y)
<float zero = {0}, float[8, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2}> {
    turned = Transpose<perm = [0, 1, 3, 2]>(v)
    scores = MatMul(q, turned)
    p = Softmax<axis = -1>(scores)
    missing = IsNaN(p)
    kept = Where(missing, zero, p)
    made = MatMul(kept, v)
    y = MatMul(made, w)
}"""


@pytest.mark.parametrize(
    ("target", "options", "is_float"),
    [
        ("ort-cpu", "", True),  # where they take no longer
        ("openvino", "", False),
        ("openvino", "{probabilities=true}", True),
        ("npu", "{probabilities=true}", False),
    ],
)
def test_products_of_probabilities_are_in_float(target: str, options: str, is_float: bool) -> None:
    model, _, _ = apply(f"separate-outliers{options},{PLACE}", parse(ATTENTION), target, attention_feeds())
    assert is_float == (of_value(model, "kept") is None)
    assert of_value(model, "made") is not None, "the product by a weight is in integers all the same"
    if is_float:
        assert "probabilities" in reason(model, "kept")


def test_a_product_of_probabilities_by_a_weight_is_in_integers() -> None:
    source = parse(
        ATTENTION.replace("made = MatMul(kept, v)", "made = MatMul(kept, weight)").replace(
            "float zero", "float[6, 8] weight, float zero"
        )
    )
    model, _, _ = apply(PLACE, source, "ort-cpu", attention_feeds())
    assert of_value(model, "kept") is not None and of_weight(model, "made") is not None


def test_a_product_by_a_weight_is_in_integers_beside_one_by_data() -> None:
    text = ATTENTION.replace("(float[2, 4, 6, 2] y)", "(float[2, 4, 6, 2] y, float[2, 4, 6, 8] z)")
    text = text.replace("made = MatMul", "z = MatMul(kept, weight) made = MatMul")
    source = parse(text.replace("float zero", "float[6, 8] weight, float zero"))
    model, _, _ = apply(PLACE, source, "ort-cpu", attention_feeds())
    assert of_weight(model, "z") is not None


def attention_feeds() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    return [{name: rng.standard_normal((2, 4, 6, 8)).astype(np.float32) for name in "qv"} for _ in range(2)]


@pytest.mark.parametrize("pipeline", ["w8a8", "w4a8"])
def test_pipelines_for_all_models_separate_where_the_target_computes_in_floats(pipeline: str) -> None:
    source = with_outliers([3, 77], 200)
    made = {
        target: qc.compile(source, pipeline, data=feeds(8), target=target) for target in ("ort-cpu", "npu")
    }
    reasons = {
        target: [remark for remark in compiled.ir.journal.actions() if "separate" in remark.reason]
        for target, compiled in made.items()
    }
    assert len(reasons["ort-cpu"]) == 2 and not reasons["npu"]


def test_data_that_can_be_read_once_is_left_for_calibration() -> None:
    compiled = qc.compile(with_outliers([3, 77], 200), data=iter(feeds(8)))
    assert compiled.coverage.quantized and "separate" not in str(list(compiled.ir.journal.actions()))


def test_outliers_no_longer_cost_the_default_its_accuracy() -> None:
    source, (*calibration, feed) = with_outliers([3, 77], 200), feeds(9)
    expected = run_model(source, feed)["y"]
    steps = resolve_pipeline("w8a8").pipeline.steps
    without = Pipeline([step for step in steps if not isinstance(step, SeparateOutliers)])
    errors = [
        np.square(run_model(qc.compile(source, passes, data=calibration).model, feed)["y"] - expected).sum()
        for passes in ("w8a8", without)
    ]
    assert errors[0] < errors[1] / 10


def test_statistics_without_data_are_an_error_that_says_what_to_give() -> None:
    source = with_outliers([3])
    passes = f"separate-outliers,{PLACE},calibrate,to-simulation"
    recorded = qc.observe(source, passes, data=feeds(4), target="npu")
    qc.compile(source, passes, data=feeds(4), target="npu", statistics=recorded)
    with pytest.raises(qc.DataError, match=r"'separate-outliers' needs calibration data.* give --data"):
        qc.compile(source, passes, target="npu", statistics=recorded)
