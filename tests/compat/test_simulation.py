"""``QuantizationSimModel``: calibration, sessions, files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.float_types import in_type
from support.folders import AIMET
from support.graph_text import build_model

import qc
from qc.compat.aimet_onnx import (
    QuantizationSimModel,
    QuantScheme,
    compute_encodings,
    encodings_to_onnx_qdq,
    load_encodings_to_sim,
)
from qc.compat.aimet_onnx.quantsim import set_lpbq_for_params
from qc.compat.aimet_onnx.simulation.loading import EncodingMismatchInfo
from qc.runtime import open_session

from .networks import feeds, network, typed


@pytest.fixture
def sim() -> QuantizationSimModel:
    """A calibrated simulation."""
    made = QuantizationSimModel(network())
    made.compute_encodings(feeds())
    return made


def output(sim: QuantizationSimModel) -> np.ndarray:
    """What the session gives for the first feed."""
    (found,) = sim.session.run(["y"], feeds()[0])
    return np.asarray(found)


def float_output() -> np.ndarray:
    """What the float model gives for it."""
    return np.asarray(open_session(network()).run(["y"], feeds()[0])[0])


# -- calibration -------------------------------------------------------------------------------------


def test_before_calibration_the_session_rounds_weights_alone() -> None:
    simulation = QuantizationSimModel(network(), param_type="int4")
    before = output(simulation)
    assert not simulation.qc_quantize_op_dict["conv.weight"].is_initialized()  # to run it settles nothing
    simulation.compute_encodings(feeds())
    for quantizer in simulation.get_all_quantizers()[1]:
        quantizer.enabled = False
    np.testing.assert_array_equal(before, output(simulation))
    assert np.abs(before - float_output()).max() > 0.01


def test_the_model_that_is_given_stays_as_it_is() -> None:
    given = network()
    QuantizationSimModel(given).compute_encodings(feeds())
    assert given == network()


def test_all_ways_to_calibrate_are_the_same(sim: QuantizationSimModel) -> None:
    def run(session, count: int = 4) -> None:  # type: ignore[no-untyped-def]
        for feed in feeds(count):
            session.run(None, feed)

    streamed, called, with_argument, within = (QuantizationSimModel(network()) for _ in range(4))
    streamed.compute_encodings(iter(feeds()))
    called.compute_encodings(run)
    with_argument.compute_encodings(run, 4)
    with compute_encodings(within):
        run(within.session)
    for other in (streamed, called, with_argument, within):
        assert (output(other) == output(sim)).all()


def test_a_function_sees_float_outputs_while_it_calibrates() -> None:
    seen: list[np.ndarray] = []
    QuantizationSimModel(network()).compute_encodings(
        lambda session: seen.append(session.run(["y"], feeds()[0])[0])
    )
    np.testing.assert_allclose(seen[0], float_output(), rtol=1e-5)


def test_calibrating_again_starts_anew(sim: QuantizationSimModel) -> None:
    sim.compute_encodings([{"x": feed["x"] * 0.5} for feed in feeds()])
    other = QuantizationSimModel(network())
    other.compute_encodings([{"x": feed["x"] * 0.5} for feed in feeds()])
    assert (output(sim) == output(other)).all()


@pytest.mark.parametrize("fault", ["none", "wrong"])
def test_a_calibration_that_fails_changes_nothing(sim: QuantizationSimModel, fault: str) -> None:
    before = output(sim)
    with pytest.raises(qc.DataError):
        sim.compute_encodings([] if fault == "none" else [{"z": np.zeros(1, np.float32)}])
    with pytest.raises(ZeroDivisionError), compute_encodings(sim):
        raise ZeroDivisionError
    assert (output(sim) == before).all()


@pytest.mark.parametrize("given", [(), (3,), (feeds(), 1)])
def test_other_ways_to_call_it_are_errors(sim: QuantizationSimModel, given: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="an iterable of feeds, or a function"):
        sim.compute_encodings(*given)


@pytest.mark.parametrize("scheme", ["tf_enhanced", "percentile", QuantScheme.post_training_tf])
def test_schemes(scheme: str | QuantScheme) -> None:
    sim = QuantizationSimModel(network(), quant_scheme=scheme)
    sim.compute_encodings(feeds())
    assert np.abs(output(sim) - float_output()).max() < 1.0
    said = sim.encodings().arguments["quant_scheme"]
    assert said == QuantScheme.from_str(scheme).name


# -- files -------------------------------------------------------------------------------------------


def test_an_exported_model_is_the_float_model(sim: QuantizationSimModel, tmp_path: Path) -> None:
    sim.export(tmp_path, "model")
    exported = onnx.load(tmp_path / "model.onnx")
    assert exported.SerializeToString(deterministic=True) == network().SerializeToString(deterministic=True)
    listed = json.loads((tmp_path / "model.encodings").read_text())
    assert listed["version"] == "1.0.0"
    assert {entry["name"] for entry in listed["param_encodings"]} == {"conv.weight", "fc.weight"}


def test_the_version_that_a_script_sets(
    sim: QuantizationSimModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qc.compat.aimet_onnx.common.quantsim.encoding_version", "0.6.1")
    sim.export(tmp_path, "model", export_model=False)
    assert json.loads((tmp_path / "model.encodings").read_text())["version"] == "0.6.1"
    assert not (tmp_path / "model.onnx").exists()


def test_an_uncalibrated_quantizer_is_not_exported() -> None:
    assert QuantizationSimModel(network()).encodings().records == []


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0", "2.0.0"])
@pytest.mark.parametrize("kind", ["channel", "block", "lpbq"])
def test_files_of_aimet_load(kind: str, version: str) -> None:
    path = AIMET / f"{kind}_{version}.encodings"
    if not path.exists():
        pytest.skip("which AIMET cannot say")
    sim = QuantizationSimModel(onnx.load(AIMET / "model.onnx"))
    load_encodings_to_sim(sim, path, strict=kind == "channel")
    weight = sim.qc_quantize_op_dict["w2"]
    assert weight.bitwidth == (8 if kind == "channel" else 4)
    assert len(weight.get_encodings()) == (6 if kind == "channel" else 24)
    names = {record.name for record in sim.encodings().records}
    assert names == {"x", "r", "y", "w1", "w2"}


def test_settings_that_do_not_fit_a_file(sim: QuantizationSimModel, tmp_path: Path) -> None:
    sim.qc_quantize_op_dict["x"].enabled = False
    sim.export(tmp_path, "model", export_model=False)
    other = QuantizationSimModel(network(), param_type="int4")
    with pytest.raises(qc.UsageError, match="bitwidth is 4 there and 8 in the file"):
        load_encodings_to_sim(other, tmp_path / "model.encodings")
    found = load_encodings_to_sim(other, tmp_path / "model.encodings", strict=False)
    assert EncodingMismatchInfo("conv.weight", bitwidth_mismatch=(4, 8)) in found
    assert EncodingMismatchInfo("x", enabled_mismatch=(True, False)) in found
    assert (output(other) == output(sim)).all()


def test_a_tensor_that_the_model_lacks(sim: QuantizationSimModel) -> None:
    entry = {"bitwidth": 8, "dtype": "int", "is_symmetric": "True"}
    entry |= {"min": -1.28, "max": 1.27, "scale": 0.01, "offset": -128}
    given = {"version": "0.6.1", "activation_encodings": {}, "param_encodings": {"fc.weigth": [entry]}}
    with pytest.raises(qc.UsageError, match=r"no tensor 'fc.weigth' \(did you mean 'fc.weight'"):
        load_encodings_to_sim(sim, given)


@pytest.mark.parametrize("text", ["{", "9" * 5000, "[" * 100_000])
def test_a_file_of_parameters_that_is_no_json(sim: QuantizationSimModel, tmp_path: Path, text: str) -> None:
    (tmp_path / "w.encodings").write_text(text)
    with pytest.raises(qc.UsageError, match=r"w.encodings'? is not valid JSON"):
        sim.set_and_freeze_param_encodings(tmp_path / "w.encodings")


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0", "2.0.0"])
def test_frozen_parameters(sim: QuantizationSimModel, tmp_path: Path, version: str) -> None:
    sim.export(tmp_path, "model", export_model=False, encoding_version=version)
    content = json.loads((tmp_path / "model.encodings").read_text())
    bare = content.get("param_encodings", content.get("encodings"))
    (tmp_path / "bare").write_text(json.dumps(bare))
    for name in ("model.encodings", "bare"):
        other = QuantizationSimModel(network())
        other.set_and_freeze_param_encodings(tmp_path / name)
        held = other.qc_quantize_op_dict["conv.weight"]
        before = held.get_encodings()
        assert held.is_encoding_frozen() and not other.qc_quantize_op_dict["x"].is_encoding_frozen()
        held.load_encodings(before[:1] * 4)
        other.compute_encodings(feeds())
        assert held.get_encodings() == before
        assert (output(other) == output(sim)).all()


def test_qdq_and_back(sim: QuantizationSimModel, tmp_path: Path) -> None:
    quantized = sim.to_onnx_qdq()
    assert "QuantizeLinear" in {node.op_type for node in quantized.graph.node}
    again = QuantizationSimModel.from_onnx_qdq(quantized)
    assert (output(again) == output(sim)).all()
    sim.export(tmp_path, "model")
    from_file = encodings_to_onnx_qdq(onnx.load(tmp_path / "model.onnx"), tmp_path / "model.encodings")
    session = open_session(from_file, optimize=False)
    np.testing.assert_allclose(session.run(["y"], feeds()[0])[0], output(sim), atol=0.1)


def test_a_model_in_float16(tmp_path: Path) -> None:
    model = in_type(network(), onnx.TensorProto.FLOAT16)
    data = [{"x": feed["x"].astype(np.float16)} for feed in feeds()]
    sim = QuantizationSimModel(model)
    sim.compute_encodings(data)
    on = {name: op.bitwidth for name, op in sim.qc_quantize_op_dict.items() if op.enabled}
    assert on == dict.fromkeys(("conv.weight", "fc.weight", "x", "r", "y"), 8)  # as AIMET places them
    (given,) = sim.session.run(["y"], data[0])
    assert given.dtype == np.float16
    np.testing.assert_allclose(given, float_output(), atol=1)
    sim.export(tmp_path, "model")
    again = QuantizationSimModel(tmp_path / "model.onnx")
    assert load_encodings_to_sim(again, tmp_path / "model.encodings") == []
    assert (again.session.run(["y"], data[0])[0] == given).all()
    quantized = encodings_to_onnx_qdq(tmp_path / "model.onnx", tmp_path / "model.encodings")
    (integers,) = open_session(quantized, optimize=False).run(["y"], data[0])
    np.testing.assert_allclose(integers, given, atol=0.5)


PARTLY_QUANTIZED = """
    q = QuantizeLinear(x, x_scale, middle); d = DequantizeLinear(q, x_scale, middle); c = Conv(d, W)
    i = Identity(c); r = Relu(i); s = QuantizeLinear(r, r_scale, zero); t = DequantizeLinear(s, r_scale, zero)
    m = MaxPool<kernel_shape=[2,2]>(t); u = QuantizeLinear(m, r_scale, zero)
    v = DequantizeLinear(u, r_scale, zero); f = Flatten(v); y = MatMul(f, V)
"""


def test_grids_of_a_qdq_model_are_kept_and_the_others_found() -> None:
    random = np.random.default_rng(0)
    constants = {"W": random.normal(size=(4, 3, 3, 3)), "V": random.normal(size=(4, 10))}
    constants |= {"x_scale": np.float32(0.02), "middle": np.uint8(128)}
    constants |= {"r_scale": np.float32(0.05), "zero": np.uint8(0)}
    model = typed(build_model(PARTLY_QUANTIZED, inputs="float[1,3,4,4] x", constants=constants))
    sim = QuantizationSimModel.from_onnx_qdq(model)
    grids = {"x": (0.02, -128), "r": (0.05, 0)}  # c had the grid of r without the file

    def kept() -> dict[str, tuple[float, float]]:
        ops = {name: op for name, op in sim.qc_quantize_op_dict.items() if op.is_encoding_frozen()}
        return {name: (op.get_encodings()[0].delta, op.get_encodings()[0].offset) for name, op in ops.items()}

    assert kept() == {name: pytest.approx(numbers) for name, numbers in grids.items()}
    sim.compute_encodings(feeds())
    assert kept() == {name: pytest.approx(numbers) for name, numbers in grids.items()}
    scales = {name: len(op.get_encodings()) for name, op in sim.qc_quantize_op_dict.items() if op.enabled}
    assert scales == {"W": 4, "V": 10, "x": 1, "c": 1, "r": 1, "y": 1}  # as AIMET has it


def test_a_grid_that_the_simulation_has_no_place_for_is_left_out() -> None:
    body = "c = Conv(x, W); q = QuantizeLinear(c, s, z); d = DequantizeLinear(q, s, z); y = Relu(d)"
    constants = {"W": np.ones((4, 3, 1, 1)), "s": np.float32(0.1), "z": np.uint8(99)}
    model = typed(build_model(body, inputs="float[1,3,4,4] x", constants=constants))
    with pytest.warns(UserWarning, match="does not quantize: 'c'"):
        sim = QuantizationSimModel.from_onnx_qdq(model)
    assert not sim.qc_quantize_op_dict["c"].enabled
    with pytest.raises(qc.UsageError, match="does not quantize: 'c'; give strict=False"):
        QuantizationSimModel.from_onnx_qdq(model, strict=True)


def test_what_a_version_lacks_is_said(sim: QuantizationSimModel, tmp_path: Path) -> None:
    sim.qc_quantize_op_dict["r"].set_precision("float16")
    sim.compute_encodings(feeds())
    with pytest.warns(UserWarning, match="'r' is float16, which encodings files 2.0.0 lack"):
        sim.export(tmp_path, "model", encoding_version="2.0.0")


def test_biases_as_integers(sim: QuantizationSimModel, tmp_path: Path) -> None:
    sim.export(tmp_path, "model", encoding_version="2.0.0")
    entries = json.loads((tmp_path / "model.encodings").read_text())["encodings"]
    listed = {entry["name"]: entry for entry in entries}
    product = np.float32(listed["r"]["y_scale"]) * np.array(listed["fc.weight"]["y_scale"], np.float32)
    assert listed["fc.bias"]["output_dtype"] == "int32"
    np.testing.assert_allclose(listed["fc.bias"]["y_scale"], product, rtol=1e-6)
    assert load_encodings_to_sim(QuantizationSimModel(network()), tmp_path / "model.encodings") == []
    sim.export(tmp_path, "without", encoding_version="2.0.0", export_int32_bias=False)
    assert "bias" not in (tmp_path / "without.encodings").read_text()
    stored = {t.name: t.data_type for t in sim.to_onnx_qdq(export_int32_bias=True).graph.initializer}
    assert stored["conv.bias_q"] == onnx.TensorProto.INT32
    assert "conv.bias" in {t.name for t in sim.to_onnx_qdq().graph.initializer}


def test_folded_parameters_are_those_of_the_simulation(sim: QuantizationSimModel, tmp_path: Path) -> None:
    before, encodings = output(sim), sim.qc_quantize_op_dict["fc.weight"].get_encodings()
    sim.fold_param_quantizers()
    sim.export(tmp_path, "model")
    tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "model.onnx").graph.initializer}
    steps = tensors["fc.weight"] / np.array([one.delta for one in encodings], np.float32)
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-4)
    sim.compute_encodings(feeds())
    assert sim.qc_quantize_op_dict["fc.weight"].get_encodings() == encodings
    assert (output(sim) == before).all()


# -- what is not there -------------------------------------------------------------------------------


def test_a_saved_simulation_runs(sim: QuantizationSimModel, tmp_path: Path) -> None:
    with pytest.raises(qc.UsageError, match="no folder for save_model_graph; give path"):
        sim.save_model_graph("model")
    made = QuantizationSimModel(network(), path=str(tmp_path / "saved"))
    made.compute_encodings(feeds())
    made.save_model_graph("model")
    session = made.build_session(onnx.load(tmp_path / "saved/model.onnx"), ["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, feeds()[0])[0], made.session.run(None, feeds()[0])[0])


def test_names_that_are_not_provided(sim: QuantizationSimModel) -> None:
    with pytest.raises(ImportError, match=r"'aimet_onnx\.spinquant' is not part of .*; rotate elsewhere"):
        from qc.compat.aimet_onnx import spinquant  # noqa: F401
    with pytest.raises(AttributeError, match=r"QuantizationSimModel.run_layers is not part of"):
        sim.run_layers  # noqa: B018
    assert not hasattr(sim, "run_layers")
    with pytest.raises(qc.UsageError, match="force_activation_as is 'float'"):
        sim.to_onnx_qdq(force_activation_as="float")


def test_activations_are_observed_before_blocks_have_two_levels() -> None:
    """The steps of activations that AIMET 2.42 finds behind weights in two-level blocks."""
    random = np.random.default_rng(0)
    shapes = {"w1": (8, 8, 3, 3), "w2": (8, 8, 1, 1), "b": (8,)}
    model = build_model(
        """c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w1, b)
        r = Relu(c)
        y = Conv<kernel_shape=[1,1]>(r, w2, b)""",
        inputs="float[1,8,8,8] x",
        constants={name: random.normal(size=shape) for name, shape in shapes.items()},
    )
    data = [{"x": np.random.default_rng(i).normal(size=(1, 8, 8, 8)).astype(np.float32)} for i in range(4)]
    for node, name in zip(model.graph.node, ("conv1", "relu", "conv2"), strict=True):
        node.name = name
    sim = QuantizationSimModel(typed(model))
    set_lpbq_for_params(sim, 4, 4, nodes_to_include={"conv1", "conv2"})
    sim.compute_encodings(data)
    steps = {name: sim.qc_quantize_op_dict[name].get_encodings()[0].delta for name in ("r", "y")}
    assert steps == pytest.approx({"r": 0.1084225523705576, "y": 0.5531942928538603}, rel=1e-6)


def test_tensors_that_are_tied_no_more_are_so_after_loading_too(tmp_path: Path) -> None:
    model = typed(build_model("s = Sigmoid(x); a = Sub(s, x); y = Relu(a)", inputs="float[4,8] x"))
    data = [{"x": np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)}]
    sim = QuantizationSimModel(model)
    ops = sim.qc_quantize_op_dict
    assert ops["a"] is ops["y"]
    sim.untie("a")
    sim.set_tensor_precision("a", "float16")
    sim.compute_encodings(data)
    sim.export(tmp_path, "model")
    again = QuantizationSimModel(model)
    load_encodings_to_sim(again, tmp_path / "model.encodings", strict=False)
    assert [again.qc_quantize_op_dict[name].bitwidth for name in "ay"] == [16, 8]
    for before, after in zip(sim.session.run(None, data[0]), again.session.run(None, data[0]), strict=True):
        np.testing.assert_array_equal(before, after)


def test_nan_is_left_out_of_ranges() -> None:
    body = "c = Conv(x, W); y = Log(c)"  # of numbers below zero
    weight = np.random.default_rng(0).normal(size=(4, 3, 1, 1))
    sim = QuantizationSimModel(typed(build_model(body, inputs="float[1,3,4,4] x", constants={"W": weight})))
    with pytest.warns(UserWarning, match="NaN and infinite values are left out of the range of 'y'"):
        sim.compute_encodings(feeds())
    exact = np.concatenate([open_session(sim._float_model()).run(None, feed)[0].ravel() for feed in feeds()])
    (found,) = sim.qc_quantize_op_dict["y"].get_encodings() or ()
    assert np.isfinite(found.min) and found.max == pytest.approx(np.nanmax(exact), abs=0.1)
