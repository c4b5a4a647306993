"""The pass choose-ranges: ranges of activations follow from what rounding does behind them."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, numpy_helper
from support.graphs import float_models
from support.models import parse, random_feeds
from support.pipelines import PLACE, QUANTIZE, Feeds, apply, artifact, run_model

from qc.ir.model import Model
from qc.ir.quant.spec import Encoding
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.runtime import OrtExecutor

GATED = """g (float[4, 3, 8, 8] x) => (float[4, 2, 8, 8] y)
    <float[8, 3, 1, 1] w, float[8] b = {-9, -7, -5, -3, -1, 0, 1, 2}, float[2, 8, 1, 1] v> {
    c = Conv(x, w, b)
    h = HardSwish(c)
    y = Conv(h, v)
}"""
UNREAD = """g (float[64, 4] x) => (float[64, 3] y) <float[4] s = {50, 1, 1, 1}, float[4, 3] w> {
    a = Mul(x, s)
    y = MatMul(a, w)
}"""
INTEGERS = PLACE.replace("insert-quantizers", "insert-quantizers{slower=integer}")


def chosen(source: ModelProto, feeds: Feeds, target: str = "npu") -> tuple[Model, PassContext]:
    return apply(f"{INTEGERS},calibrate,choose-ranges,to-simulation", source, target, feeds)[:2]


def grid_of(model: Model, name: str) -> Encoding:
    value = model.graph.value_named(name)
    assert value is not None
    (quantizer,) = {one.id: one for one in model.quant.quantizers_on(value)}.values()
    assert quantizer.encoding is not None
    return quantizer.encoding


def error(source: ModelProto, context: PassContext, feeds: Feeds) -> float:
    """The mean square of what the outputs of the simulation differ by from the float ones."""
    made = artifact(context, "simulation")
    pairs = [(run_model(made, feed), run_model(source, feed)) for feed in feeds]
    return float(sum(np.square(a[name] - b[name]).sum() for a, b in pairs for name in b))


def reasons(model: Model) -> list[str]:
    found = [remark for remark in model.journal.remarks if remark.pass_name == "choose-ranges"]
    return [remark.reason for remark in found if "results behind it" in remark.reason]


def with_unread_channel() -> ModelProto:
    source = parse(UNREAD)
    for tensor in source.graph.initializer:
        if tensor.name == "w":
            array = numpy_helper.to_array(tensor).copy()
            array[0] = 0
            tensor.CopyFrom(numpy_helper.from_array(array, "w"))
    return source


def test_what_a_gate_makes_zero_needs_no_steps() -> None:
    source = parse(GATED)
    feeds = random_feeds(source, 4)
    plain, before = apply(f"{INTEGERS},calibrate,to-simulation", source, "ort-cpu", feeds)[:2]
    model, after = chosen(source, feeds, "ort-cpu")
    assert float(grid_of(plain, "c").minimum) < -10 < -5 < float(grid_of(model, "c").minimum) < -2
    assert error(source, after, feeds) < 0.9 * error(source, before, feeds)


def test_channels_that_nobody_reads_are_clipped() -> None:
    source = with_unread_channel()
    feeds = random_feeds(source, 4)
    before = apply(f"{PLACE},calibrate,to-simulation", source, "ort-cpu", feeds)[1]
    model, after = chosen(source, feeds, target="ort-cpu")
    assert float(grid_of(model, "a").maximum) < 40
    assert error(source, after, feeds) < 0.1 * error(source, before, feeds)
    (reason,) = reasons(model)
    assert "dB at the results behind it" in reason


@settings(max_examples=10)
@given(float_models(), st.integers(0, 100))
def test_it_never_makes_a_single_tensor_worse(source: onnx.ModelProto, seed: int) -> None:
    feeds = random_feeds(source, 2, seed)
    model, _, _ = apply(f"{QUANTIZE},choose-ranges", source, "npu", feeds)
    for reason in reasons(model):
        found = re.fullmatch(r".* gives (\S+) dB at the results behind it, .* (\S+) dB", reason)
        assert found is None or float(found[1]) > float(found[2])  # None where nothing is lost any more


def test_symmetric_ranges_stay_symmetric_and_biases_follow() -> None:
    source = parse(GATED)
    feeds = random_feeds(source, 4)
    place = PLACE.replace("insert-quantizers", "insert-quantizers{activation=int8}")
    model = apply(f"{place},calibrate,choose-ranges", source, "npu", feeds)[0]
    assert reasons(model)
    for quantizer in model.quant.quantizers():
        encoding = quantizer.encoding
        assert encoding is not None
        if quantizer.spec.symmetric and not quantizer.spec.derived:
            assert (encoding.zero_point == 0).all()
    scales = grid_of(model, "x").scale * grid_of(model, "w").scale
    np.testing.assert_allclose(grid_of(model, "b").scale, scales, rtol=1e-6)


def test_frozen_grids_and_those_of_outputs_stay() -> None:
    source = with_unread_channel()
    feeds = random_feeds(source, 4)
    model = apply(f"{PLACE},calibrate", source, "npu", feeds)[0]
    for quantizer in model.quant.quantizers():
        model.quant.freeze(quantizer)
    before = grid_of(model, "a")
    apply("choose-ranges", model, "npu", feeds)
    assert grid_of(model, "a") is before and not reasons(model)


def test_without_samples_there_is_a_note() -> None:
    class Nothing(list):  # type: ignore[type-arg]
        length = 0

    source = with_unread_channel()
    model = apply(f"{PLACE},calibrate", source, "ort-cpu", random_feeds(source, 2))[0]
    context = PassContext(data=Nothing(), executor=OrtExecutor(threads=1))
    run_pipeline(parse_pipeline("choose-ranges"), model, context)
    (note,) = context.notes
    assert note.startswith(
        "ranges stay as they are: pass 'choose-ranges' needs data to choose them by; give --data"
    )


@pytest.mark.parametrize("target", ["npu", "ort-cpu"])
def test_graphs_with_bodies_pass(target: str) -> None:
    source = parse("""g (float[4, 3] x, bool c) => (float[4, 3] y) <float[3, 3] w, float[3, 3] v> {
        a = MatMul(x, w)
        y = If(c) <then_branch = t () => (float[4, 3] p) { p = MatMul(a, v) },
                   else_branch = e () => (float[4, 3] q) { q = Relu(a) }>
    }""")
    feeds = random_feeds(source, 2)
    _, context = chosen(source, feeds, target=target)
    assert run_model(artifact(context, "simulation"), feeds[0])["y"].shape == (4, 3)
