"""Weights for processors without VNNI: no two products that are added first saturate, and who gets them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper
from support.models import parse, random_feeds
from support.pipelines import run_model
from support.recurrent import recurrent, recurrent_feeds

import qc
from qc import processor
from qc.cli.commands.eval import _of_integers
from qc.passes.framework.target import load_target
from qc.processor import default_target
from qc.runtime.execution.saturation import sums_saturate
from qc.verdict.measure import Accuracy
from qc.verdict.words import verdict_warnings

MOST = 128
FORMS = {
    "product": ("float[5, 37] x", "y = MatMul(x, w)", (37, 6)),
    "products of several matrices": ("float[2, 5, 8] x", "y = MatMul(x, w)", (2, 8, 6)),
    "by rows": ("float[5, 37] x", "y = Gemm<transB = 1>(x, w)", (6, 37)),
    "convolution": ("float[1, 6, 7, 7] x", "y = Conv(x, w)", (8, 6, 3, 3)),
    "of a picture": ("float[1, 3, 7, 7] x", "y = Conv(x, w)", (8, 3, 3, 3)),
    "of one channel": ("float[1, 1, 7, 7] x", "y = Conv(x, w)", (8, 1, 3, 3)),
    "in groups": ("float[1, 6, 7, 7] x", "y = Conv<group = 2>(x, w)", (8, 3, 3, 3)),
    "of two results a channel": ("float[1, 4, 7, 7] x", "y = Conv<group = 4>(x, w)", (8, 1, 3, 3)),
    "along one axis": ("float[1, 5, 9] x", "y = Conv(x, w)", (8, 5, 4)),
}


def model_of(form: str) -> ModelProto:
    given, op, shape = FORMS[form]
    model = parse(f"g ({given}) => (float[] y) {{ r = Relu(x) {op.replace('x,', 'r,')} }}")
    # Numbers of one sign next to each other, which is the worst case.
    weight = 1 + np.random.default_rng(0).normal(0, 0.5, shape)
    model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), "w"))
    return onnx.shape_inference.infer_shapes(model)


def rows_of(codes: np.ndarray, form: str) -> list[np.ndarray]:
    """What each result sums up, in order."""
    op = FORMS[form][1]
    if "Conv" in op:
        places = list(np.ndindex(codes.shape[2:]))
        return [np.array([kernel[(c, *at)] for at in places for c in range(len(kernel))]) for kernel in codes]
    return list(
        codes
        if "transB" in op
        else codes.reshape(-1, *codes.shape[-2:]).transpose(0, 2, 1).reshape(-1, codes.shape[-2])
    )


def largest_pair(codes: np.ndarray, form: str) -> int:
    """The largest sum of two codes that are added first."""
    return max(
        abs(int(row[i]) + int(row[i + 1])) for row in rows_of(codes, form) for i in range(0, len(row) - 1, 2)
    )


def compiled(form: str, target: str) -> qc.Compiled:
    model = model_of(form)
    feeds = random_feeds(model, 4)
    return qc.compile(model, "w8a8{insert-quantizers.slower=integer}", data=feeds, target=target, threads=1)


@pytest.mark.parametrize("form", FORMS)
def test_neighbouring_codes_add_up_to_no_more_than_what_fits(form: str) -> None:
    made, plain = (compiled(form, target).weights["w"].int_data for target in ("ort-cpu-avx2", "ort-cpu"))
    found, before = (largest_pair(codes, form) for codes in (made, plain))
    assert before > MOST >= found > MOST - 16, "and scales are no larger than needed"


@pytest.mark.parametrize("form", [form for form in FORMS if form != "products of several matrices"])
@pytest.mark.parametrize("step", ["round-weights", "round-weights{scales=false}", "choose-weight-ranges"])
def test_what_is_chosen_for_weights_stays_within_the_limit(form: str, step: str) -> None:
    model = model_of(form)
    passes = f"insert-quantizers{{slower=integer}}, annotate-per-channel, calibrate, {step}, insert-qdq"
    nearest, made, free = (
        qc.compile(model, text, data=random_feeds(model, 4), target=target, threads=1).weights["w"].int_data
        for text, target in (
            (passes.replace(f" {step},", ""), "ort-cpu-avx2"),
            (passes, "ort-cpu-avx2"),
            (passes, "ort-cpu"),
        )
    )
    assert largest_pair(free, form) > MOST >= largest_pair(made, form)
    assert not np.array_equal(made, nearest)


@pytest.mark.parametrize("form", FORMS)
def test_onnx_runtime_adds_them_without_saturating_on_any_processor(form: str) -> None:
    made = compiled(form, "ort-cpu-avx2")
    (feed,) = random_feeds(made.ir.origin, 1)
    feed = {"x": np.full_like(feed["x"], 100)}  # all codes are 255
    (found,) = qc.runtime.open_session(made.model, threads=1).run(None, feed)
    (expected,) = made.open_simulation(threads=1).run(feed).values()
    step = max(float(q.encoding.scale.max()) for q in made.ir.quant.quantizers() if q.encoding is not None)
    assert np.abs(found - expected).max() <= step + 1e-6


def test_depthwise_convolutions_keep_their_scales() -> None:
    model = parse(
        "g (float[1, 8, 7, 7] x) => (float[1, 8, 5, 5] y) <float[8, 1, 3, 3] w> { y = Conv<group = 8>(x, w) }"
    )
    passes = "insert-quantizers{slower=integer}, annotate-per-channel, calibrate"
    found = [
        qc.compile(model, passes, data=random_feeds(model, 2), target=target).weights["w"].scale
        for target in ("ort-cpu", "ort-cpu-avx2")
    ]
    assert np.array_equal(*found)


@pytest.mark.parametrize(("saturates", "names"), [(True, "ort-cpu-avx2"), (False, "ort-cpu")])
def test_the_target_is_that_of_the_processor_where_none_is_named(
    monkeypatch, saturates: bool, names: str
) -> None:
    monkeypatch.setattr(processor, "sums_saturate", lambda: saturates)
    model = model_of("product")
    assert default_target().name == names == qc.Compilation(model, "w8a8").chosen_target().name
    assert qc.Compilation(model, "w8a8", target="ort-cpu").chosen_target().name == "ort-cpu"
    other = qc.Compilation(model, "w8a8").for_device("openvino").target
    assert other == ("openvino-avx2" if saturates else "openvino")


def test_a_target_that_is_named_and_saturates_here_is_told_of(monkeypatch) -> None:
    monkeypatch.setattr(processor, "sums_saturate", lambda: True)
    said = {target: compiled("product", target).notes for target in ("ort-cpu", "ort-cpu-avx2", "npu")}
    assert any("'--target ort-cpu-avx2' is for this one" in note for note in said["ort-cpu"])
    assert not any("saturate" in note for target in ("ort-cpu-avx2", "npu") for note in said[target])


def test_what_stands_for_a_processor_without_vnni_is_no_such_target_itself() -> None:
    for name in ("ort-cpu", "openvino", "ort-cpu-amx"):
        other = load_target(load_target(name).without_vnni)
        assert not other.without_vnni and other.provider == load_target(name).provider
    assert not load_target("ort-cpu-arm").without_vnni
    assert isinstance(sums_saturate(), bool)


@pytest.mark.parametrize(
    ("target", "said"),
    [("ort-cpu", "'--target ort-cpu-avx2' is for this one"), ("npu", "it says nothing of npu")],
)
def test_integers_that_are_worse_here_than_elsewhere_are_told_of(monkeypatch, target: str, said: str) -> None:
    monkeypatch.setattr(processor, "sums_saturate", lambda: True)
    found = _of_integers(compiled("product", target))
    assert len(found) == 1 and said in found[0]
    assert _of_integers(compiled("product", "ort-cpu-avx2")) == []


@pytest.mark.parametrize(("op_type", "form"), [("LSTM", {}), ("GRU", {"linear_before_reset": 1})])
def test_recurrent_networks_keep_their_accuracy_on_any_processor(op_type: str, form: dict) -> None:
    model = recurrent(op_type, hidden=400, inputs=400, **form)
    feeds = recurrent_feeds(model)
    made = qc.compile(model, "w8a8", data=feeds, target="ort-cpu-avx2", threads=1).model
    assert any(node.op_type in ("DynamicQuantizeLSTM", "Scan") for node in made.graph.node)
    expected, found = (run_model(one, feeds[0], optimize=True)["y"] for one in (model, made))
    assert 10 * np.log10(np.sum(expected**2) / np.sum((found - expected) ** 2)) > 35


def test_a_poor_result_is_told_to_come_from_saturation_and_not_from_the_model(monkeypatch) -> None:
    monkeypatch.setattr(processor, "sums_saturate", lambda: True)
    made = compiled("product", "ort-cpu")
    found = qc.measure_verdict(made, random_feeds(made.ir.origin, 2))
    warning = verdict_warnings(replace(found, accuracy=Accuracy(2, 3.0, None, "")))[0]
    assert "saturate on this processor, which '--target ort-cpu-avx2' is for" in warning
