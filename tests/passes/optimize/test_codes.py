"""Codes that an algorithm chose for a weight: every lowering has them, and later passes leave them alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply, artifact, run_model

import qc
from qc.ir import lift
from qc.ir.errors import UsageError
from qc.ir.facts.weights import weights_of
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.arithmetic import dequantize, quantize
from qc.ir.quant.spec import Encoding, Quantizer, QuantSpec
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.ir.text import parse_model, print_model
from qc.ir.verifier import verify
from qc.layers import layer_errors
from qc.passes.optimize.layers.layer import Layer
from qc.passes.quantize.calibration.ranges import weight_encoding
from qc.passes.quantize.placement.parameters import round_parameters
from qc.runtime import expose_tensors

MODEL = """g (float[2, 4] x) => (float[2, 3] y) <float[4, 3] w, float[3] b, float[3, 3] v> {
    a = Gemm(x, w, b)
    r = Relu(a)
    y = MatMul(r, v)
}"""

CAPTURING = """g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
    y = If(c) <
        then_branch = t () => (float[2] r) { r = Add(x, w) },
        else_branch = e () => (float[2] u) { u = Abs(x) }
    >
}"""


def value_of(model: Model, name: str) -> Value:
    return next(value for value in model.graph.values() if value.name == name)


def quantizer_of(model: Model, name: str) -> Quantizer:
    (quantizer,) = model.quant.quantizers_on(value_of(model, name))
    return quantizer


def choose(model: Model, name: str) -> np.ndarray:
    """Gives a weight codes that are up to one off; returns what they stand for."""
    quantizer, const = quantizer_of(model, name), value_of(model, name).const
    assert quantizer.encoding is not None and const is not None
    nearest = quantize(const.numpy(), quantizer.encoding)
    moved = nearest + np.random.default_rng(0).integers(-1, 2, nearest.shape)
    codes = np.clip(moved, *quantizer.spec.code_range)
    assert not np.array_equal(codes, nearest)
    model.quant.choose_codes(quantizer, codes, "test")
    return dequantize(codes, quantizer.encoding)


def chosen(passes: str = f"{PLACE},calibrate", target: str = "ort-cpu") -> tuple[Model, np.ndarray]:
    source = parse(MODEL)
    model = apply(passes, source, target, random_feeds(source, 2))[0]
    return model, choose(model, "w")


def stored(model: ModelProto, name: str) -> np.ndarray:
    return numpy_helper.to_array(next(one for one in model.graph.initializer if one.name == name))


@pytest.mark.parametrize("weights", ["codes", "float"])
@pytest.mark.parametrize("weight", ["int8", "int4", "int2"])
def test_quantized_models_have_them(weight: str, weights: str) -> None:
    place = PLACE.replace("insert-quantizers", f"insert-quantizers{{weight={weight}}}")
    shifted = place.replace("annotate-per-channel", "annotate-per-channel{shift_int2=true}")
    model, expected = chosen(f"{shifted if weight == 'int2' else place},calibrate", "npu")
    lowering = f"insert-qdq{{weights={weights} shift_weights=false}},to-simulation"
    context = apply(lowering, model, "npu")[1]
    qdq = artifact(context, "qdq")
    if weights == "codes" and weight == "int8":
        np.testing.assert_array_equal(stored(qdq, "w_quantized"), quantizer_of(model, "w").codes)
    np.testing.assert_array_equal(stored(artifact(context, "simulation"), "w_simulated"), expected)
    (feed,) = random_feeds(parse(MODEL), 1)
    results = [run_model(artifact(context, name), feed)["y"] for name in ("qdq", "simulation")]
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def test_weights_that_can_be_set_stay_as_they_were_chosen() -> None:
    model, expected = chosen()
    simulation = artifact(apply("to-simulation{weights=settable}", model)[1], "simulation")
    np.testing.assert_array_equal(stored(simulation, "w_simulated"), expected)


def test_an_encodings_file_goes_with_the_model_that_has_them() -> None:
    model, expected = chosen()
    context = apply("to-encodings", model)[1]
    np.testing.assert_array_equal(stored(artifact(context, "rounded"), "w"), expected)
    encoding = quantizer_of(model, "w").encoding
    assert encoding is not None
    np.testing.assert_array_equal(quantize(expected, encoding), quantizer_of(model, "w").codes)
    assert not np.array_equal(stored(lower(model), "w"), expected)
    assert (
        "rounded"
        not in apply(f"{PLACE},calibrate,to-encodings", parse(MODEL), feeds=random_feeds(parse(MODEL)))[
            1
        ].artifacts
    )


def test_weights_as_objects_have_them() -> None:
    model, expected = chosen()
    weight = weights_of(model)["w"]
    np.testing.assert_array_equal(weight.qdata, quantizer_of(model, "w").codes)
    np.testing.assert_array_equal(weight.dequantize(), expected)


def test_the_text_of_a_model_has_them() -> None:
    model, _ = chosen()
    text = print_model(model)
    copy = parse_model(text)
    np.testing.assert_array_equal(quantizer_of(copy, "w").codes, quantizer_of(model, "w").codes)
    assert quantizer_of(copy, "v").codes is None and print_model(copy) == text
    verify(copy)


def test_a_large_bias_does_not_change_their_grid() -> None:
    source = parse(MODEL)
    for const in source.graph.initializer:
        if const.name == "b":
            const.CopyFrom(numpy_helper.from_array(np.full(3, 3e8, "f"), "b"))
    feeds = list(random_feeds(source, 2))
    passes = PLACE.replace("annotate-per-channel,", "")
    plain = apply(f"{passes},calibrate", source, feeds=feeds)[0]
    reasons = [remark.reason for remark in plain.journal.remarks]
    assert "larger scale, so that the bias fits into 32 bits" in reasons

    model = apply(passes, source, feeds=feeds)[0]
    quantizer = quantizer_of(model, "w")
    const = value_of(model, "w").const
    assert const is not None
    before = weight_encoding(quantizer.spec, const.numpy())
    model.quant.calibrate(quantizer, before, "test")
    codes = quantize(const.numpy(), before)
    model.quant.choose_codes(quantizer, codes, "test")
    apply("calibrate", model, feeds=feeds)
    assert quantizer.encoding is before and quantizer.codes is not None
    assert not model.quant.sites_on(value_of(model, "b"))  # which cannot be in 32 bits beside it


@pytest.mark.parametrize("passes", ["calibrate", "calibrate-as-aimet", "tie-quantizers", "correct-bias"])
def test_later_passes_leave_them_alone(passes: str) -> None:
    model, _ = chosen()
    codes, encoding = quantizer_of(model, "w").codes, quantizer_of(model, "w").encoding
    apply(passes, model, feeds=random_feeds(parse(MODEL), 2))
    assert quantizer_of(model, "w").codes is codes and quantizer_of(model, "w").encoding is encoding


def test_parameters_are_rounded_to_them_while_activations_are_observed() -> None:
    model, expected = chosen()
    rewriter = Rewriter(model)
    with rewriter.trial():
        round_parameters(rewriter)
        gemm = next(iter(model.graph.ops()))
        read = gemm.inputs[1]
        assert read is not None and read.const is not None
        np.testing.assert_array_equal(read.const.numpy(), expected)


def test_what_drops_them() -> None:
    model, _ = chosen()
    quantizer = quantizer_of(model, "w")
    model.quant.reopen(quantizer, "test")
    assert quantizer.codes is None

    model, _ = chosen()
    quantizer = quantizer_of(model, "w")
    model.quant.respec(quantizer, QuantSpec.of("int4", symmetric=True), "test")
    assert quantizer.codes is None

    model, _ = chosen()
    value, quantizer = value_of(model, "w"), quantizer_of(model, "w")
    before = quantizer.codes
    rewriter = Rewriter(model)
    with rewriter.trial():
        rewriter.set_constant(value, np.zeros((4, 3), "f"))
        assert quantizer.codes is None and quantizer.encoding is not None
    assert quantizer.codes is before


def test_other_numbers_for_one_user_drop_them() -> None:
    model, _ = chosen()
    quantizer = quantizer_of(model, "w")
    gemm = next(iter(model.graph.ops()))
    layer, rewriter = Layer.of(model, gemm), Rewriter(model)
    assert layer is not None
    with rewriter.action("a second user", gemm):
        (x, _, b) = gemm.inputs
        rewriter.add_op(gemm.graph, "Gemm", [x, value_of(model, "w"), b], ["unused"])
    with rewriter.action("other numbers", gemm):
        layer.with_matrix(rewriter, layer.matrix * 2)
    assert layer.weight.quantizer is quantizer and quantizer.codes is None


def test_other_numbers_for_what_a_body_reads_drop_them() -> None:
    model = lift(parse(CAPTURING))
    w = value_of(model, "w")
    (inner,) = (value for graph in model.graphs() for value in graph.values() if value.captured is w)
    ((op, port),) = inner.uses
    assert isinstance(port, int)
    spec = QuantSpec.of("int8", symmetric=True)
    quantizer = model.quant.place(Site(inner, op, port), spec, "test")
    model.quant.calibrate(quantizer, Encoding(spec, np.float32(0.5), np.int32(0)), "test")
    model.quant.choose_codes(quantizer, np.array([2, 5]), "test")
    rewriter = Rewriter(model)
    with rewriter.action("other numbers", op):
        rewriter.set_constant(w, np.array([8, 9], np.float32))
    assert quantizer.codes is None and quantizer.encoding is not None


def test_what_cannot_have_codes() -> None:
    model, _ = chosen()
    quantizer = quantizer_of(model, "w")
    codes = quantizer.codes
    assert codes is not None
    for wrong in (codes.T, codes.astype(float), codes + 200):
        with pytest.raises(
            UsageError, match=r"'w' into Gemm .* must be integers from -\d+ to \d+, in the shape"
        ):
            model.quant.choose_codes(quantizer, wrong, "test")
    assert quantizer.codes is codes
    with pytest.raises(UsageError, match="a constant with a grid of its own, which 'x'"):
        model.quant.choose_codes(quantizer_of(model, "x"), codes, "test")


def test_a_quantizer_of_two_weights_has_the_codes_of_none() -> None:
    model, _ = chosen()
    own, other = quantizer_of(model, "w"), quantizer_of(model, "v")
    with pytest.raises(
        UsageError, match=r"'v' cannot have the grid of 'w'.*, whose codes were chosen for it alone"
    ):
        model.quant.tie(own, [other], "test")
    with pytest.raises(UsageError, match="'v' cannot have the grid of 'w'"):
        model.quant.tie(other, [own], "test")
    with pytest.raises(UsageError, match="'r' cannot have the grid of 'w'"):
        model.quant.remove(Site(value_of(model, "r")), "test")
        model.quant.place(Site(value_of(model, "r")), own, "test")

    model = apply(f"{PLACE},calibrate", parse(MODEL), feeds=random_feeds(parse(MODEL), 2))[0]
    own, other = quantizer_of(model, "w"), quantizer_of(model, "v")
    model.quant.respec(other, own.spec, "test")
    model.quant.tie(own, [other], "test")
    with pytest.raises(UsageError, match="a constant with a grid of its own"):
        model.quant.choose_codes(own, np.zeros((4, 3), int), "test")


def test_errors_are_measured_against_the_numbers_of_the_model() -> None:
    """Not against numbers that an algorithm rounded, which would leave no error at all."""
    source = parse(MODEL)
    feeds = list(random_feeds(source, 2))
    result = qc.compile(source, f"{PLACE},calibrate,to-simulation", data=feeds)
    expected = choose(result.ir, "w").astype(np.float64)
    result = replace(result, artifacts={})
    found = next(error for error in layer_errors(result, feeds).layers if error.tensor == "w")
    const = value_of(result.ir, "w").const
    assert const is not None
    features = np.concatenate([feed["x"] for feed in feeds]).astype(np.float64)
    signal = np.concatenate([run_model(expose_tensors(source, ["a"]), feed)["a"] for feed in feeds])
    noise = features @ (expected - const.numpy())
    sqnr = 10 * np.log10(np.square(signal).sum() / np.square(noise).sum())
    assert found.isolated_db == pytest.approx(sqnr, abs=1e-3)
