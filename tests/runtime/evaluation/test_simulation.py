"""Simulations: one session under any settings, equal to a simulation that was compiled for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.folders import FIXTURES
from support.models import parse, random_feeds
from support.pipelines import PLACE, QUANTIZE, apply, artifact

import qc
from qc.ir.onnx.lower import serialize
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import Encoding, PerChannel, QuantSpec
from qc.runtime import open_session, run_session
from qc.runtime.evaluation.simulation import Setting

MODEL = FIXTURES / "digits_cnn.onnx"


@functools.cache
def images() -> np.ndarray:
    with np.load(FIXTURES / "digits_calibration.npz") as data:
        array: np.ndarray = data["image"][:16]
    return array


def feed() -> dict[str, np.ndarray]:
    return {"image": images()}


@functools.cache
def compiled() -> qc.Compiled:
    return qc.compile(MODEL, "w8a8", data=[feed()], threads=1)


@functools.cache
def activations() -> qc.Simulation:
    return compiled().open_simulation(threads=1)


@functools.cache
def everything() -> qc.Simulation:
    return compiled().open_simulation(settable_weights=True, threads=1)


def result(simulation: qc.Simulation) -> np.ndarray:
    array: np.ndarray = simulation.run(feed())["logits"]
    return array


def changed(change: Callable[[qc.ir.model.Model], None], weights: str = "stored") -> np.ndarray:
    """What a simulation gives that was made of the model after a change of its quantizers."""
    ir = compiled().ir
    with ir.transaction.trial():
        change(ir)
        model = artifact(apply(f"to-simulation{{weights={weights}}}", ir)[1], "simulation")
    array: np.ndarray = run_session(open_session(model, threads=1), feed())[0]
    return array


def quantizer_of(tensor: str, model: qc.ir.model.Model) -> qc.ir.quant.Quantizer:
    found = next(site for site in model.quant.sites() if site.value.name == tensor)
    quantizer = model.quant.get(found)
    assert quantizer is not None
    return quantizer


def give(model: qc.ir.model.Model, quantizer: qc.ir.quant.Quantizer, encoding: Encoding) -> None:
    model.quant.thaw(quantizer, "test")
    model.quant.respec(quantizer, encoding.spec, "test")
    model.quant.calibrate(quantizer, encoding, "test")


@pytest.mark.parametrize("tensor", ["image", "clip_1", "flatten_1"])
def test_off_is_a_model_without_that_quantizer(tensor: str) -> None:
    def remove(ir: qc.ir.model.Model) -> None:
        for site in ir.quant.sites_of(quantizer_of(tensor, ir)):
            ir.quant.remove(site, "test")

    off = activations().with_encodings({tensor: "off"})
    np.testing.assert_array_equal(result(off), changed(remove))
    assert not np.array_equal(result(off), result(activations()))


@pytest.mark.parametrize("bits", [2, 4, 7, 12, 16])
@pytest.mark.parametrize("tensor", ["relu_1", "conv_3.weight"])
def test_without_statistics_another_width_covers_the_same_range(tensor: str, bits: int) -> None:
    model = artifact(apply("to-simulation{weights=settable}", compiled().ir)[1], "simulation")
    simulation = qc.Simulation(model, threads=1, origin=compiled().ir)
    own = next(q.encoding for q in simulation.quantizers.values() if tensor in q.tensors)
    assert own is not None
    spec = own.spec.resized(replace(own.spec.format, bits=bits), own.spec.narrow)
    expected = encoding_of_range(spec, own.minimum, own.maximum)

    def respec(ir: qc.ir.model.Model) -> None:
        give(ir, quantizer_of(tensor, ir), expected)

    narrowed = simulation.with_encodings({tensor: bits})
    np.testing.assert_array_equal(result(narrowed), changed(respec, "settable"))
    found = next(q.encoding for q in narrowed.quantizers.values() if tensor in q.tensors)
    assert found is not None and found.equals(expected)
    np.testing.assert_array_equal(
        result(simulation.with_encodings({tensor: str(spec.format)})), result(narrowed)
    )


def test_a_grid_of_ones_own() -> None:
    encoding = Encoding(QuantSpec.of("int6", symmetric=True), np.asarray(0.25), np.asarray(0))

    def respec(ir: qc.ir.model.Model) -> None:
        give(ir, quantizer_of("relu_1", ir), encoding)

    np.testing.assert_array_equal(result(activations().with_encodings({"relu_1": encoding})), changed(respec))


def test_settings_add_up_and_can_be_taken_back() -> None:
    simulation, plain = activations(), result(activations())
    names = list(simulation.quantizers)
    other = simulation
    for name in names:
        other = other.with_encodings({name: "off"})
    both = simulation.with_encodings(dict.fromkeys(names, "off"))
    np.testing.assert_array_equal(result(other), result(both))
    assert all(quantizer.encoding is None for quantizer in both.quantizers.values())
    again = both.with_encodings(dict.fromkeys(names, "on"))
    np.testing.assert_array_equal(result(again), plain)
    np.testing.assert_array_equal(result(simulation), plain)
    assert again.session is simulation.session is both.session


def test_all_off_is_the_float_model() -> None:
    simulation = everything()
    off = simulation.with_encodings(dict.fromkeys(simulation.quantizers, "off"))
    expected = run_session(open_session(compiled().float_model, threads=1), feed())[0]
    np.testing.assert_allclose(result(off), expected, atol=2e-3)  # biases stay on their fine grid
    assert np.abs(result(simulation) - expected).max() > 0.02


def test_settable_weights_are_rounded_as_stored_ones() -> None:
    np.testing.assert_allclose(result(everything()), result(activations()), atol=1e-5)
    stored, settable = set(activations().quantizers), set(everything().quantizers)
    assert stored < settable
    held = {tensor for name in settable - stored for tensor in everything().quantizers[name].tensors}
    assert len(held) == 11 and all("weight" in tensor for tensor in held)


def test_threads_share_a_session() -> None:
    simulation = activations()
    variants = [simulation.with_encodings({name: bits}) for name in simulation.quantizers for bits in (3, 5)]
    expected = [result(variant) for variant in variants]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(result, variants * 3))
    for array, wanted in zip(found, expected * 3, strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_a_saved_simulation_is_opened_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "digits.simulation.onnx"
    path.write_bytes(serialize(compiled().simulation))
    opened = qc.Simulation(path, threads=1)
    np.testing.assert_array_equal(result(opened), result(activations()))
    for (name, found), (wanted_name, wanted) in zip(
        opened.quantizers.items(), activations().quantizers.items(), strict=True
    ):
        assert name == wanted_name and set(found.tensors) <= set(wanted.tensors)
        assert found.encoding is not None and wanted.encoding is not None
        np.testing.assert_array_equal(found.encoding.scale, wanted.encoding.scale)
        np.testing.assert_array_equal(found.encoding.zero_point, wanted.encoding.zero_point)
        assert found.encoding.spec.code_range == wanted.encoding.spec.code_range
        assert found.encoding.spec.format == wanted.encoding.spec.format
    np.testing.assert_array_equal(
        result(opened.with_encodings({"clip_1": "off"})),
        result(activations().with_encodings({"clip_1": "off"})),
    )


FORMATS = "g (float[3, 4] x) => (float[3, 2] y) <float[4, 2] w> { a = Neg(x) y = MatMul(a, w) }"


@pytest.mark.parametrize("granularity", ["", "block_size=2"])
@pytest.mark.parametrize("weight", ["int4", "uint3", "int16", "float8e4m3fn", "float16"])
@pytest.mark.parametrize("activation", ["uint8", "int5", "float8e5m2", "bfloat16"])
def test_every_grid_can_be_read_back(activation: str, weight: str, granularity: str) -> None:
    model = parse(FORMATS)
    place = PLACE.replace(
        "insert-quantizers", f"insert-quantizers{{weight={weight} activation={activation}}}"
    )
    place = place.replace("per-channel", f"per-channel{{{granularity}}}")
    feeds = random_feeds(model)
    ir, context, _ = apply(f"{place},calibrate,to-simulation{{weights=settable}}", model, "npu", feeds)
    simulation = artifact(context, "simulation")
    read, told = qc.Simulation(simulation), qc.Simulation(simulation, origin=ir)
    assert list(read.quantizers) == list(told.quantizers)
    for name, quantizer in told.quantizers.items():
        wanted, found = quantizer.encoding, read.quantizers[name].encoding
        assert wanted is not None and found is not None
        assert (found.spec.format, found.spec.granularity) == (wanted.spec.format, wanted.spec.granularity)
        np.testing.assert_array_equal(found.scale, wanted.scale)
    off = read.with_encodings(dict.fromkeys(read.quantizers, "off")).run(feeds[0])["y"]
    np.testing.assert_array_equal(off, run_session(open_session(model), feeds[0])[0])


def test_a_saved_simulation_takes_grids_of_two_level_blocks() -> None:
    model = parse("g (float[2, 8] x) => (float[2, 6] y) <float[8, 6] w> { y = MatMul(x, w) }")
    steps = "insert-quantizers{weight=int4},annotate-per-channel{block_size=4 scale_bits=4},calibrate"
    feeds = random_feeds(model, 2)
    made = qc.compile(model, f"{steps},to-simulation{{weights=settable}}", data=feeds)
    saved = qc.Simulation(made.simulation)
    weight = made.weights["w"].encoding
    changed = saved.with_encodings({"w": replace(weight, scale=weight.scale * 2)})
    double = made.open_simulation(settable_weights=True).with_encodings(
        {"w": replace(weight, scale=weight.scale * 2)}
    )
    np.testing.assert_array_equal(changed.run(feeds[0])["y"], double.run(feeds[0])["y"])
    assert not np.array_equal(changed.run(feeds[0])["y"], saved.run(feeds[0])["y"])


def test_a_float_grid_can_have_another_scale() -> None:
    model = parse(FORMATS)
    place = PLACE.replace("insert-quantizers", "insert-quantizers{activation=float8e5m2}")
    feeds = random_feeds(model)
    ir, context, _ = apply(f"{place},calibrate,to-simulation", model, "npu", feeds)
    simulation = qc.Simulation(artifact(context, "simulation"), origin=ir)
    own = next(q.encoding for q in simulation.quantizers.values() if "a" in q.tensors)
    assert own is not None
    other = Encoding(own.spec, own.scale * np.float32(1.3), own.zero_point)
    found = simulation.with_encodings({"a": other}).run(feeds[0])["y"]
    assert not np.array_equal(found, simulation.run(feeds[0])["y"])


def test_a_tensor_with_several_quantizers_is_named_by_one() -> None:
    model = parse("g (float[1, 4] x) => (float[1, 4] y, float[1, 4] z) { a = Neg(x) y = Abs(a) z = Exp(a) }")
    ir = qc.read_model(model)
    value = ir.graph.value_named("a")
    assert value is not None
    spec = QuantSpec.of("uint8")
    for use in [None, *value.uses]:
        site = (
            qc.ir.quant_table.Site(value) if use is None else qc.ir.quant_table.Site(value, use.op, use.port)
        )
        quantizer = ir.quant.place(site, spec, "by hand")
        ir.quant.calibrate(quantizer, Encoding(spec, np.asarray(0.5), np.asarray(128)), "by hand")
    simulation = qc.Simulation(artifact(apply("to-simulation", ir)[1], "simulation"), origin=ir)
    with pytest.raises(qc.UsageError, match="tensor 'a' has several quantizers; name one of q1, q2, q3"):
        simulation.with_encodings({"a": 4})
    assert simulation.with_encodings({"q2": "off"}).quantizers["q2"].encoding is None


def grid(format: str, scale: object, **spec: object) -> Encoding:
    array = np.asarray(scale, np.float32)
    return Encoding(QuantSpec.of(format, **spec), array, np.zeros(array.shape, np.int32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relu_7": 4}, r"no quantizer or rounded tensor 'relu_7' \(did you mean 'relu_\d'"),
        ({"conv_3.weight": 4}, "stored weights cannot be set"),
        ({"relu_1": 1}, "can be set to 2 to 16 bits, not to 1"),
        ({"relu_1": True}, "can be set to 2 to 16 bits, not to True"),
        ({"relu_1": 32}, "not to 32"),
        (
            {"relu_1": None},
            "to None: it takes 'off', 'on', a number of bits, the name of a format .*Encoding",
        ),
        (
            {"relu_1": "int32"},
            "is rounded to integers of 2 to 16 bits in this session, which cannot run int32",
        ),
        ({"relu_1": "float16"}, "which cannot run float16"),
        ({"relu_1": "of"}, "unknown number format 'of'"),
        ({"relu_1": grid("float16", 1)}, "which cannot run float16"),
        ({"relu_1": grid("int8", [1, 2], granularity=PerChannel(1))}, r"per tensor in this session, not per"),
        ({"relu_1": grid("int8", [1, 2])}, r"scales of shape \(\), not of \(2,\)"),
    ],
)
def test_settings_that_do_not_fit(changes: dict[str, Setting], message: str) -> None:
    with pytest.raises(qc.UsageError, match=message):
        activations().with_encodings(changes)


def test_a_wrong_input_is_answered_with_those_that_have_to_be_fed() -> None:
    with pytest.raises(qc.DataError, match=r"no input 'y'; its inputs are 'image', and \d+ with a default$"):
        activations().run({"y": np.zeros(1, np.float32)})


def test_a_model_that_is_no_simulation() -> None:
    simulation = onnx.ModelProto()
    simulation.CopyFrom(compiled().simulation)
    assert qc.Simulation(compiled().float_model, threads=1).quantizers == {}
    del simulation.graph.input[1:]
    with pytest.raises(qc.ModelError, match="the grid of 'image' is no input with a default"):
        qc.Simulation(simulation)


def test_bodies_have_settings_too() -> None:
    text = """g (float[2, 4] x, bool c) => (float[2, 4] y) <float[4, 4] w> {
        a = Exp(x)
        y = If(c) < then_branch = t () => (float[2, 4] r) { e = Neg(a) r = MatMul(e, w) },
                    else_branch = o () => (float[2, 4] u) { u = MatMul(a, w) } >
    }"""
    model = parse(text)
    feeds = random_feeds(model, 4)
    ir, context, _ = apply(f"{QUANTIZE},to-simulation{{weights=settable}}", model, "npu", feeds)
    simulation = qc.Simulation(artifact(context, "simulation"), origin=ir, threads=1)
    assert {"x", "a", "e", "w"} <= {tensor for q in simulation.quantizers.values() for tensor in q.tensors}
    off = simulation.with_encodings(dict.fromkeys(simulation.quantizers, "off"))
    for given in feeds:
        expected = run_session(open_session(model, threads=1), given)[0]
        np.testing.assert_allclose(off.run(given)["y"], expected, rtol=1e-6)
        assert not np.array_equal(simulation.run(given)["y"], expected)


@pytest.mark.parametrize("method", ["min-max", "mse", "percentile"])
@pytest.mark.parametrize("tensor", ["image", "conv_3.weight"])
def test_another_width_is_calibrated_anew(method: str, tensor: str) -> None:
    """Four bits in a session are those that a calibration for four bits finds."""
    simplify = "fold-constants,eliminate-identity,fold-batch-norms,match-supergroups"
    place = f"{simplify},insert-quantizers,tie-quantizers"
    weights = "min-max" if method == "percentile" else method
    calibrate = f"calibrate{{method={method} weights={weights}}}"
    bits = "w4" if "weight" in tensor else "a4"
    narrow = f"{place},set-precision{{rules=['tensor:{tensor}={bits}']}},{calibrate}"
    expected = qc.compile(MODEL, narrow, data=[feed()], threads=1)
    wide = qc.compile(MODEL, f"{place},{calibrate}", data=[feed()], threads=1)
    simulation = wide.open_simulation(settable_weights=True, threads=1)
    found = simulation.with_encodings({tensor: 4}).quantizers[simulation.quantizer_name(tensor)].encoding
    wanted = quantizer_of(tensor, expected.ir).encoding
    assert found is not None and wanted is not None and found.equals(wanted)
