"""What files and QDQ models of a simulation say, beside the grids: the form that AIMET gives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from support.graph_text import build_model

import qc
from qc.compat.aimet_onnx import QSpec, QuantizationSimModel, encodings_to_onnx_qdq, int4, int16
from qc.compat.aimet_onnx.quantsim import (
    set_blockwise_quantization_for_weights,
    set_lpbq_for_params,
    set_param_type,
)
from qc.runtime import open_session

from .networks import Feed, feeds, network, typed

_RANDOM = np.random.default_rng(0)
CONSTANTS = {
    "W": _RANDOM.normal(size=(4, 4, 3, 3)),
    "W1": _RANDOM.normal(size=(4, 4)),
    "S": _RANDOM.normal(size=4),
    "B": _RANDOM.normal(size=4),
    "LW": _RANDOM.normal(size=(1, 16, 4)),
    "LR": _RANDOM.normal(size=(1, 16, 4)),
    "LB": _RANDOM.normal(size=(1, 32)),
    "flat": np.array([1, 64]),
    "ends": np.array([0, 0, 0, 0, 0, 0, 1, 1]),
    "zero": np.float32(0),
    "infinity": np.float32("-inf"),
}
MOVES = """
c = Conv<pads=[1,1,1,1]>(x, W)
p = MaxPool<kernel_shape=[1,1]>(c)
t = Transpose<perm=[0,2,3,1]>(p)
r = Reshape(t, flat)
a, b = Split<axis=1>(r)
m = Mul(a, b)
y = Flatten(m)
"""


def calibrated(body: str, inputs: str = "float[1,4,4,4] x", **settings: Any) -> QuantizationSimModel:
    """A calibrated simulation of a small network."""
    sim = QuantizationSimModel(typed(build_model(body, inputs=inputs, constants=CONSTANTS)), **settings)
    sim.compute_encodings(inputs_of(sim))
    return sim


def inputs_of(sim: QuantizationSimModel) -> list[Feed]:
    """Random inputs."""
    random = np.random.default_rng(1)
    shape = sim.session.get_inputs()[0].shape
    return [{"x": random.normal(size=shape).astype(np.float32)} for _ in range(3)]


def exported(sim: QuantizationSimModel, folder: Path, version: str, **settings: Any) -> dict[str, Any]:
    """The content of an encodings file."""
    sim.export(folder, "m", export_model=False, encoding_version=version, **settings)
    return dict(json.loads((folder / "m.encodings").read_text()))


def newest(sim: QuantizationSimModel, folder: Path, **settings: Any) -> dict[str, dict[str, Any]]:
    """The entries of a file of version 2.0.0."""
    return {entry["name"]: entry for entry in exported(sim, folder, "2.0.0", **settings)["encodings"]}


def rounded_tensors(model: ModelProto) -> dict[str, tuple[str, str]]:
    """By what QuantizeLinear reads: its domain, and the type of its codes."""
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return {
        node.input[0]: (node.domain, TensorProto.DataType.Name(types[node.input[2]]))
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }


def result(model: ModelProto, feed: Feed) -> np.ndarray:
    """The first output of a model."""
    return np.asarray(open_session(model).run(None, dict(feed))[0])


# -- encodings files ---------------------------------------------------------------------------------


def test_arguments_are_those_that_the_simulation_was_made_with(tmp_path: Path) -> None:
    sim = QuantizationSimModel(network(), param_type="int4", activation_type="int16", config_file="htp_v73")
    sim.set_tensor_precision(["conv.weight", "relu"], "float16", strict=False)
    for op in (*sim.get_all_quantizers()[0], *sim.get_all_quantizers()[1]):
        op.use_symmetric_encodings = not op.use_symmetric_encodings
        op.enable_per_channel_quantization(False)
    sim.compute_encodings(feeds())
    for version in ("0.6.1", "1.0.0"):
        assert exported(sim, tmp_path, version)["quantizer_args"] == {
            "activation_bitwidth": 16,
            "dtype": "int",
            "is_symmetric": True,
            "param_bitwidth": 4,
            "per_channel_quantization": True,
            "quant_scheme": "min_max",
        }


def test_arguments_of_floats_and_of_a_configuration_without_channels(tmp_path: Path) -> None:
    sim = QuantizationSimModel(
        network(), param_type="float16", activation_type="float16", config_file="htp_v66"
    )
    said = exported(sim, tmp_path, "1.0.0")["quantizer_args"]
    assert (said["dtype"], said["param_bitwidth"], said["per_channel_quantization"]) == ("float", 16, False)


def test_what_is_only_moved_is_listed_in_the_newest_version_alone(tmp_path: Path) -> None:
    sim = calibrated(MOVES)
    entries = newest(sim, tmp_path)
    assert list(entries) == ["W", "x", "c", "m", "p", "t", "r", "a", "b", "y"]
    for name, source in {"p": "c", "t": "c", "r": "c", "a": "c", "b": "c", "y": "m"}.items():
        assert entries[name] == entries[source] | {"name": name}
    listed = exported(sim, tmp_path, "1.0.0")["activation_encodings"]
    assert [entry["name"] for entry in listed] == ["x", "c", "m"]


def test_what_is_moved_is_rounded_again_in_a_qdq_model(tmp_path: Path) -> None:
    sim = calibrated(MOVES)
    for model in (sim.to_onnx_qdq(), encodings_to_onnx_qdq(*_files(sim, tmp_path))):
        assert {"p", "t", "r", "a", "b"} < set(rounded_tensors(model))
        feed = inputs_of(sim)[0]
        np.testing.assert_array_equal(result(model, feed), sim.session.run(None, feed)[0])


def _files(sim: QuantizationSimModel, folder: Path) -> tuple[ModelProto, Path]:
    sim.export(folder, "moved", encoding_version="1.0.0")
    return onnx.load(folder / "moved.onnx"), folder / "moved.encodings"


@pytest.mark.parametrize(("value", "listed"), [("zero", True), ("infinity", False)])
def test_padding_has_the_grid_of_what_is_padded_if_that_reaches_it(
    value: str, listed: bool, tmp_path: Path
) -> None:
    sim = calibrated(f"c = Relu(x); p = Pad(c, ends, {value}); y = MaxPool<kernel_shape=[2,2]>(p)")
    sim.qc_quantize_op_dict[value].enabled = False
    assert ("p" in newest(sim, tmp_path)) == listed


def test_an_input_that_others_read_keeps_its_numbers(tmp_path: Path) -> None:
    sim = calibrated(
        "r = Relu(x); t = MaxPool<kernel_shape=[1,1]>(r); m = Mul(t, t); n = Neg(r); y = Mul(m, n)"
    )
    sim.qc_quantize_op_dict["r"].enabled = False
    sim.qc_quantize_op_dict["t"].enabled = True
    sim.compute_encodings(inputs_of(sim))
    assert "r" not in newest(sim, tmp_path)


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0"])
def test_floats_of_8_bits_are_refused_where_a_version_lacks_them(version: str, tmp_path: Path) -> None:
    sim = QuantizationSimModel(network(), param_type="float8e4m3fn")
    sim.compute_encodings(feeds())
    with pytest.raises(qc.UsageError, match=f"version {version} has no 8-bit floats; use 2.0.0"):
        exported(sim, tmp_path, version)
    assert not list(tmp_path.iterdir())
    assert newest(sim, tmp_path)["conv.weight"]["output_dtype"] == "float8e4m3fn"


def test_floats_of_8_bits_have_the_range_that_is_fixed(tmp_path: Path) -> None:
    sim = calibrated("y = Sigmoid(x)", config_file="htp_v73", activation_type="float8e4m3fn")
    assert newest(sim, tmp_path)["y"]["y_scale"] == pytest.approx(1 / 448)
    later = calibrated("y = Sigmoid(x)", config_file="htp_v73")
    later.set_tensor_precision("y", "float8e4m3fn")
    later.compute_encodings(inputs_of(later))
    assert newest(later, tmp_path)["y"]["y_scale"] == pytest.approx(1 / 448)


def test_numbers_in_files_are_those_of_aimet(tmp_path: Path) -> None:
    sim = calibrated("y = Sigmoid(x)", config_file="htp_v73")
    (entry,) = exported(sim, tmp_path, "0.6.1")["activation_encodings"]["y"]
    assert (entry["min"], entry["max"]) == (0.0, 1.0)
    sim = calibrated("y = MatMul(x, W1)", "float[2,4] x", param_type="int4")
    set_lpbq_for_params(sim, 4, 2, op_types="MatMul")
    sim.compute_encodings(inputs_of(sim))
    (entry,) = exported(sim, tmp_path, "1.0.0")["param_encodings"]
    assert entry["offset"] == [-128] * 4 and all(isinstance(number, int) for number in entry["offset"])


def test_a_norm_has_as_many_bits_as_its_result(tmp_path: Path) -> None:
    sim = calibrated("y = InstanceNormalization(x, S, B)", activation_type="float16")
    (entry,) = exported(sim, tmp_path, "1.0.0")["param_encodings"]
    assert (entry["bw"], entry["dtype"], entry["is_sym"]) == (16, "INT", False)


@pytest.mark.parametrize(
    ("body", "inputs", "bias"),
    [
        ("y, h, c = LSTM<hidden_size=4>(x, LW, LR, LB)", "float[5,2,4] x", "LB"),
        ("y = LayerNormalization(x, S, B)", "float[3,4] x", "B"),
        ("y = InstanceNormalization(x, S, B)", "float[1,4,4,4] x", "B"),
    ],
)
def test_biases_that_no_sums_give_a_scale_are_as_fine_as_32_bits_allow(
    body: str, inputs: str, bias: str, tmp_path: Path
) -> None:
    sim = calibrated(body, inputs)
    entry = newest(sim, tmp_path)[bias]
    assert (entry["output_dtype"], "y_zero_point" in entry) == ("int32", False)
    assert entry["y_scale"] == pytest.approx(np.abs(CONSTANTS[bias]).max() / 2**31, rel=1e-6)
    assert bias not in newest(sim, tmp_path, export_int32_bias=False)
    feed = inputs_of(sim)[0]
    with_codes = result(sim.to_onnx_qdq(export_int32_bias=True), feed)
    np.testing.assert_allclose(with_codes, result(sim.to_onnx_qdq(), feed), atol=1e-6)


def test_biases_of_a_normalization_in_a_configuration_without_its_group(tmp_path: Path) -> None:
    body = "c = Conv(x, W); y = BatchNormalization(c, S, B, B, positive)"
    model = build_model(body, inputs="float[1,4,4,4] x", constants=CONSTANTS | {"positive": np.ones(4, "f")})
    sim = QuantizationSimModel(typed(model), config_file="htp_v66")
    sim.compute_encodings(inputs_of(sim))
    assert newest(sim, tmp_path)["B"]["output_dtype"] == "int32"


# -- QDQ models --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("codes", "type"), [("unsigned", "uint8"), ("signed", "int8"), (None, "uint8")])
def test_codes_of_activations_may_have_a_sign(codes: str | None, type: str, tmp_path: Path) -> None:
    sim = calibrated(MOVES)
    entries = newest(sim, tmp_path, force_activation_as=codes)
    assert {entries[name]["output_dtype"] for name in ("x", "c", "m", "p")} == {type}
    assert entries["W"]["output_dtype"] == "int8"
    model = sim.to_onnx_qdq(force_activation_as=codes)
    assert {kind for name, (_, kind) in rounded_tensors(model).items() if name != "W"} == {type.upper()}
    feed = inputs_of(sim)[0]
    np.testing.assert_array_equal(result(model, feed), sim.session.run(None, feed)[0])


def test_symmetric_activations_have_a_sign_if_nothing_is_forced(tmp_path: Path) -> None:
    sim = calibrated("y = Sigmoid(x)")
    sim.qc_quantize_op_dict["x"].use_symmetric_encodings = True
    sim.compute_encodings(inputs_of(sim))
    entries = newest(sim, tmp_path, force_activation_as=None)
    assert [entries[name]["output_dtype"] for name in ("x", "y")] == ["int8", "uint8"]
    assert "y_zero_point" not in entries["x"]
    model, file = _files(sim, tmp_path)
    qdq = encodings_to_onnx_qdq(model, file, force_activation_as="signed")
    assert {kind for _, kind in rounded_tensors(qdq).values()} == {"INT8"}


@pytest.mark.parametrize(
    ("settings", "opset"),
    [
        ({}, 17),
        ({"param_type": "int4"}, 21),
        ({"activation_type": "int16"}, 21),
        ({"param_type": "int16"}, 21),
    ],
)
def test_a_qdq_model_is_plain_onnx_in_the_lowest_opset(settings: dict[str, str], opset: int) -> None:
    model = calibrated(MOVES, **settings).to_onnx_qdq()
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": opset}
    onnx.checker.check_model(model, full_check=True)


def test_weights_keep_their_names_on_grids_that_do_not_reach_them() -> None:
    sim = QuantizationSimModel(network(), param_type="int4")
    set_param_type(sim, QSpec.per_channel(int4, symmetric=True))
    sim.compute_encodings(feeds())
    sim.qc_quantize_op_dict["conv.weight"].clip_and_recompute_encodings(0.5)
    stored = {tensor.name: tensor for tensor in sim.to_onnx_qdq().graph.initializer}
    assert {"conv.weight", "fc.weight"} < set(stored)
    assert not [name for name in stored if "limited" in name]
    assert np.abs(numpy_helper.to_array(stored["conv.weight"])).max() < 0.6


def test_constants_are_stored_as_codes_if_asked() -> None:
    sim = calibrated("m = Mul(x, S); y = MatMul(m, W1)", "float[2,4] x", activation_type=int16)
    model = sim.to_onnx_qdq(prequantize_constants=True)
    assert set(rounded_tensors(model)) == {"x", "m", *set(rounded_tensors(model)) - {"W1", "S"}}
    types = {tensor.name: TensorProto.DataType.Name(tensor.data_type) for tensor in model.graph.initializer}
    assert (types["W1_q"], types["S_q"]) == ("INT8", "UINT16")


def test_activations_of_32_bits_are_limited_to_what_was_seen(tmp_path: Path) -> None:
    body, inputs = "m = MatMul(x, W1); y = Relu(m)", "float[2,4] x"
    sim, other = (
        calibrated(body, inputs, default_activation_bw=32),
        calibrated(body, inputs, activation_type="float16"),
    )
    (given,), (expected,) = (one.session.run(None, inputs_of(sim)[0]) for one in (sim, other))
    np.testing.assert_allclose(given, expected, atol=5e-3)
    largest = max(sim.session.run(None, feed)[0].max() for feed in inputs_of(sim))
    assert sim.session.run(None, {"x": 100 * inputs_of(sim)[0]["x"]})[0].max() <= 1.0001 * largest
    for version in ("0.6.1", "1.0.0", "2.0.0"):
        assert exported(sim, tmp_path, version)["version"] == version
    assert newest(sim, tmp_path)["x"]["output_dtype"] == "int32"
    with pytest.raises(
        qc.UsageError, match=r"'x' is quantized to int32.*which QuantizeLinear cannot express"
    ):
        sim.to_onnx_qdq()


def test_a_qdq_model_before_calibration_has_weights_on_their_grids(tmp_path: Path) -> None:
    sim = QuantizationSimModel(network(), param_type="int4")
    assert set(rounded_tensors(sim.to_onnx_qdq())) == {"conv.weight", "fc.weight"}
    before = exported(sim, tmp_path, "1.0.0")["param_encodings"]
    sim.compute_encodings(feeds())
    assert [entry["scale"] for entry in exported(sim, tmp_path, "1.0.0")["param_encodings"]] == [
        pytest.approx(entry["scale"]) for entry in before
    ]


@pytest.mark.parametrize(("config", "is_bias"), [("dsp", False), ("default", True)])
def test_what_a_configuration_adds_as_data_is_no_bias_of_sums(config: str, is_bias: bool) -> None:
    constants = CONSTANTS | {"B": np.full(4, 100.0)}
    model = typed(build_model("m = MatMul(x, W1); y = Add(m, B)", inputs="float[2,4] x", constants=constants))
    sim = QuantizationSimModel(model, config_file=config, param_type="int16", activation_type="int16")
    sim.qc_quantize_op_dict["W1"].use_symmetric_encodings = True
    sim.compute_encodings(inputs_of(sim))
    (weight, *_) = sim.qc_quantize_op_dict["W1"].get_encodings() or ()
    wide = CONSTANTS["W1"] if config == "dsp" else CONSTANTS["W1"][:, 0]
    least = max(wide.max() / 32767, -wide.min() / 32768)
    assert (weight.delta > 1.1 * least) == is_bias


def test_biases_of_asymmetric_blocks_are_signed(tmp_path: Path) -> None:
    sim = QuantizationSimModel(network())
    set_blockwise_quantization_for_weights(sim, "Gemm", 4, False, 8)
    sim.compute_encodings(feeds())
    assert newest(sim, tmp_path)["fc.bias"]["output_dtype"] == "int32"
    sim.to_onnx_qdq(export_int32_bias=True)


def test_a_scale_of_a_norm_stays_a_parameter_in_a_newer_opset() -> None:
    body = """u = ReduceMean<axes=[-1]>(x); d = Sub(x, u); q = Mul(d, d); v = ReduceMean<axes=[-1]>(q)
    e = Add(v, least); r = Sqrt(e); n = Div(d, r); y = Mul(n, S)"""
    constants = CONSTANTS | {"least": np.float32(1e-5)}
    model = typed(build_model(body, inputs="float[3,4] x", constants=constants))
    sim = QuantizationSimModel(model, config_file="htp_v73", param_type="int16", activation_type="int16")
    sim.compute_encodings(inputs_of(sim))
    for form in (sim.to_onnx_qdq(), sim.to_onnx_qdq(force_activation_as="unsigned")):
        types = {name: kind for name, (_, kind) in rounded_tensors(form).items()}
        assert types == {"x": "UINT16", "S": "INT16"} | {name: "UINT16" for name in types if name != "S"}
