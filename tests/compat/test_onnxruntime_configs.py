"""``quantize`` with a configuration, as scripts for ONNX Runtime make it for a CPU or for the HTP."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime.quantization as theirs
import onnxruntime.quantization.execution_providers.qnn as theirs_for_qnn
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from support.graph_text import build_model

import qc
import qc.compat.onnxruntime as ours
from qc.compat.onnxruntime import (
    QuantType,
    StaticQuantConfig,
    get_qdq_config,
    quant_pre_process,
    quantize,
)
from qc.compat.onnxruntime.execution_providers import qnn as ours_for_qnn
from qc.compat.onnxruntime.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model
from qc.passes.framework.made_for import target_in

from .networks import Feed, feeds, network


def tensors(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def attention() -> ModelProto:
    """A product with a weight, and one of two computed tensors."""
    random = np.random.default_rng(0)
    body = """
    p = MatMul(x, w)
    t = Transpose<perm=[0, 2, 1]>(x)
    y = MatMul(p, t)
    """
    constants = {"w": random.normal(size=(16, 16))}
    proto = build_model(body, inputs="float[2,8,16] x", constants=constants)
    for node, name in zip(proto.graph.node, ("weighted", "transposed", "computed"), strict=True):
        node.name = name
    return proto


def samples_of_attention() -> list[Feed]:
    return [{"x": np.random.default_rng(i).normal(size=(2, 8, 16)).astype(np.float32)} for i in range(4)]


@pytest.mark.parametrize(
    "their, our",
    [
        (theirs.quantize, ours.quantize),
        (theirs.get_qdq_config, ours.get_qdq_config),
        (theirs.quant_pre_process, ours.quant_pre_process),
        (theirs_for_qnn.get_qnn_qdq_config, ours_for_qnn.get_qnn_qdq_config),
        (theirs_for_qnn.qnn_preprocess_model, ours_for_qnn.qnn_preprocess_model),
    ],
)
def test_arguments_stand_where_they_do_in_onnxruntime(their: Any, our: Any) -> None:
    known = list(inspect.signature(our).parameters)
    asked = [name for name in inspect.signature(their).parameters if name in known]
    assert known == asked


def test_a_configuration_says_what_quantize_static_is_told(tmp_path: Path) -> None:
    told = {"activation_type": QuantType.QUInt8, "per_channel": True, "nodes_to_exclude": ["fc"]}
    quantize(network(), tmp_path / "a.onnx", StaticQuantConfig(feeds(), **told))
    ours.quantize_static(network(), tmp_path / "b.onnx", feeds(), **told)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_nodes_are_left_out_by_a_function(tmp_path: Path) -> None:
    config = get_qdq_config(network(), feeds(), nodes_to_exclude=lambda model, node: node.op_type == "Gemm")
    quantize(network(), tmp_path / "q.onnx", config)
    found = tensors(tmp_path / "q.onnx")
    assert "fc.weight" in found and found["x_zero_point"].dtype == np.uint8
    assert found["conv.weight_scale"].shape == ()


def test_arguments_of_the_calibration_have_short_names(tmp_path: Path) -> None:
    def scale(**arguments: Any) -> float:
        quantize(network(), tmp_path / "q.onnx", get_qdq_config(network(), feeds(), **arguments))
        return float(tensors(tmp_path / "q.onnx")["x_scale"])

    method = ours.CalibrationMethod.Percentile
    assert scale(calibrate_method=method, calibrate_args={"percentile": 95.0}) < 0.9 * scale()
    assert scale(min_real_range=20.0) == pytest.approx(20.0 / 255)
    assert scale(calibrate_args={"symmetric": True}) > scale()
    with pytest.raises(qc.UsageError, match=r"no 'percentil' \(did you mean 'percentile'"):
        scale(calibrate_args={"percentil": 95.0})


def test_products_of_data_stay_float_if_asked(tmp_path: Path) -> None:
    def grids(**options: Any) -> set[str]:
        config = StaticQuantConfig(samples_of_attention(), extra_options=options)
        quantize(attention(), tmp_path / "q.onnx", config)
        return {
            node.input[0]
            for node in onnx.load(tmp_path / "q.onnx").graph.node
            if node.op_type == "QuantizeLinear"
        }

    assert "x" in grids(MatMulConstBOnly=True) and "p" not in grids(MatMulConstBOnly=True)
    assert "p" in grids(MatMulConstBOnly=False)


def test_outliers_move_into_weights_if_asked(tmp_path: Path) -> None:
    """The scale of the data is that of channels that are alike, which one of them was not."""
    random = np.random.default_rng(0)
    body = "h = Mul(x, s)\ny = MatMul(h, w)"
    gains = np.ones(32, np.float32)
    gains[3] = 100.0
    model = build_model(
        body, inputs="float[64,32] x", constants={"s": gains, "w": random.normal(size=(32, 16))}
    )
    data = [{"x": random.normal(size=(64, 32)).astype(np.float32)} for _ in range(4)]

    def scale(smooth: bool) -> float:
        config = StaticQuantConfig(data, per_channel=True, extra_options={"SmoothQuant": smooth})
        quantize(model, tmp_path / "q.onnx", config)
        return float(tensors(tmp_path / "q.onnx")["h_scale"])

    assert scale(True) < 0.5 * scale(False)


def test_a_configuration_for_the_htp(tmp_path: Path) -> None:
    path = tmp_path / "q.onnx"
    assert not qnn_preprocess_model(network(), path) and not path.exists()
    quantize(network(), path, get_qnn_qdq_config(network(), feeds(), weight_type=QuantType.QUInt8))
    made, found = onnx.load(path), tensors(path)
    assert target_in(made) == "qnn-htp"
    assert found["conv.weight_quantized"].dtype == np.uint8 and found["conv.weight_scale"].shape == ()
    assert "y_scale" in found  # all tensors have grids on the HTP, the result too
    check = qc.check(path, target="qnn-htp")
    assert {op.runs for op in check.ops} <= {"integer", "removed"} and not check.broken


def test_tensors_of_16_bits_are_converted_for_ops_of_8(tmp_path: Path) -> None:
    wide = {"y": [{"quant_type": QuantType.QUInt16}]}
    config = get_qnn_qdq_config(network(), feeds(), init_overrides=wide)
    quantize(network(), tmp_path / "q.onnx", config)
    made = onnx.load(tmp_path / "q.onnx")
    kinds = {tensor.name: tensor.data_type for tensor in made.graph.initializer}
    assert kinds["y_zero_point"] == TensorProto.UINT16 and kinds["x_zero_point"] == TensorProto.UINT8
    assert {op.runs for op in qc.check(tmp_path / "q.onnx", target="qnn-htp").ops} <= {"integer", "removed"}


@pytest.mark.parametrize(
    "config, sentence",
    [
        (object(), "'object' is not part of .*use a StaticQuantConfig or a DynamicQuantConfig"),
        (StaticQuantConfig(None), "give calibration_data_reader"),
        (StaticQuantConfig(feeds(), extra_options={"SmoothQuantAlpha": 0.7}), "'SmoothQuantAlpha'"),
    ],
)
def test_configurations_that_are_not_provided(tmp_path: Path, config: Any, sentence: str) -> None:
    with pytest.raises(qc.UsageError, match=sentence):
        quantize(network(), tmp_path / "q.onnx", config)
    assert list(tmp_path.iterdir()) == []


def test_channels_come_last_in_the_interface_if_asked(tmp_path: Path) -> None:
    """The one of a model with a free batch, whose inputs a body reads as well."""
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N,3,8,8] x) => (float[N,4,8,8] y, float[N,3,8,8] z) {
        c = Conv(x, w)
        y = Relu(c)
        s = ReduceMax<keepdims=0>(x)
        i = Cast<to=9>(s)
        z = If(i) <
            then_branch = more () => (float[N,3,8,8] t) { t = Add(x, x) },
            else_branch = less () => (float[N,3,8,8] e) { e = Identity(x) }
        >
    }
    """)
    weight = np.random.default_rng(0).normal(size=(4, 3, 1, 1)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    moved = {"inputs_to_make_channel_last": ["x"], "outputs_to_make_channel_last": ["y"]}
    path = tmp_path / "last.onnx"
    assert qnn_preprocess_model(model, path, dynamic_input_shapes=[("x", "1,3,8,8")], **moved)
    onnx.checker.check_model(path, full_check=True)
    x = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)
    y, z = ort.InferenceSession(model.SerializeToString()).run(["y", "z"], {"x": x})
    session = ort.InferenceSession(path)
    assert [one.shape for one in (*session.get_inputs(), *session.get_outputs())] == [
        [1, 8, 8, 3],
        [1, 8, 8, 4],
        [1, 3, 8, 8],
    ]
    found = session.run(["y", "z"], {"x": np.moveaxis(x, 1, -1)})
    np.testing.assert_array_equal(np.moveaxis(found[0], -1, 1), y)
    np.testing.assert_array_equal(found[1], z)


@pytest.mark.parametrize(
    "moved, sentence",
    [
        ({"inputs_to_make_channel_last": ["z"]}, "inputs_to_make_channel_last: the model has no 'z' there"),
        ({"outputs_to_make_channel_last": ["y"]}, "'y' has 2 axes; channels can come last of 3 or more"),
    ],
)
def test_what_has_no_channels_cannot_have_them_last(
    tmp_path: Path, moved: dict[str, list[str]], sentence: str
) -> None:
    with pytest.raises(qc.UsageError, match=sentence):
        qnn_preprocess_model(network(), tmp_path / "last.onnx", **moved)
    assert list(tmp_path.iterdir()) == []


def test_free_dimensions_get_lengths_for_the_htp(tmp_path: Path) -> None:
    model = build_model("y = Relu(x)", inputs="float[N,3,W,W] x")
    path = tmp_path / "fixed.onnx"
    assert qnn_preprocess_model(model, path, dynamic_input_shapes=[("x", "2,3,8,8")])
    (given,) = onnx.load(path).graph.input
    assert [one.dim_value for one in given.type.tensor_type.shape.dim] == [2, 3, 8, 8]
    for name, text, sentence in (
        ("z", "2,3,8,8", "no input 'z'"),
        ("x", "2,3,8", "'2,3,8' are no lengths for 'x'"),
        ("x", "2,4,8,8", "axis 1 of 'x' has 3, not 4"),
        ("x", "2,3,8,9", "'W' cannot be both 8 and 9"),
    ):
        with pytest.raises(qc.UsageError, match=sentence):
            qnn_preprocess_model(model, tmp_path / "other.onnx", dynamic_input_shapes=[(name, text)])
    assert [one.name for one in tmp_path.iterdir()] == ["fixed.onnx"]


def test_a_missing_model_is_told_by_every_function(tmp_path: Path) -> None:
    missing = tmp_path / "missing.onnx"
    for function in (qnn_preprocess_model, get_qnn_qdq_config, quant_pre_process):
        with pytest.raises(qc.ModelError, match=r"missing\.onnx' does not exist"):
            function(missing, tmp_path / "out.onnx")


@pytest.mark.parametrize(
    "module, name",
    [
        ("calibrate", "CalibrationDataReader"),
        ("preprocess", "quant_pre_process"),
        ("quant_utils", "QuantType"),
        ("quantize", "quantize_static"),
        ("shape_inference", "quant_pre_process"),
    ],
)
def test_modules_are_where_scripts_import_them_from(module: str, name: str) -> None:
    for package in (theirs, ours):
        assert hasattr(importlib.import_module(f"{package.__name__}.{module}"), name)


def test_a_model_is_written_simplified(tmp_path: Path) -> None:
    model = build_model(
        "n = BatchNormalization(x, a, b, c, d)\nz = Identity(n)\ny = Conv(z, w)",
        inputs="float[1,3,4,4] x",
        constants={name: np.ones(3) for name in "abcd"} | {"w": np.ones((2, 3, 1, 1))},
    )
    quant_pre_process(model, tmp_path / "float.onnx")
    found = [node.op_type for node in onnx.load(tmp_path / "float.onnx").graph.node]
    assert "Identity" not in found and "Conv" in found
    quant_pre_process(model, tmp_path / "same.onnx", skip_optimization=True)
    assert onnx.load(tmp_path / "same.onnx") == model
