"""How weights of fewer than 8 bits are stored: packed, or with one code in each byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from support.models import parse, random_feeds
from support.pipelines import QUANTIZE, apply, artifact, run_model

import qc
from qc.ir.errors import UsageError

NET = """<ir_version: 10, opset_import: ["" : {}]>
g (float[1, 4, 8, 8] x) => (float[1, 5] y) <float[16, 4, 3, 3] w, float[16] b, float[576, 5] v> {{
    a = Conv(x, w, b)
    r = Relu(a)
    f = Flatten(r)
    y = MatMul(f, v)
}}"""


def lowered(weight: str, storage: str = "", target: str = "ort-cpu", opset: int = 21) -> ModelProto:
    model = parse(NET.format(opset))
    place = QUANTIZE.replace("insert-quantizers", f"insert-quantizers{{weight={weight}}}")
    _, context, _ = apply(f"{place},insert-qdq{storage}", model, target, random_feeds(model, 3))
    return artifact(context, "qdq")


def codes(model: ModelProto) -> dict[str, tuple[int, np.ndarray]]:
    """The types and the numbers of stored weights."""
    found = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name[0] in "wv"}
    return {
        name: (tensor.data_type, numpy_helper.to_array(tensor).astype(np.float32))
        for name, tensor in found.items()
    }


@pytest.mark.parametrize("weight", ["int4", "uint4", "int3"])
def test_bytes_hold_the_same_numbers(weight: str) -> None:
    packed, in_bytes = lowered(weight, "{storage=packed}"), lowered(weight)
    for name, (kind, array) in codes(packed).items():
        assert kind in (TensorProto.FLOAT, TensorProto.INT4, TensorProto.UINT4)
        stored, same = codes(in_bytes)[name]
        assert stored == (kind if kind == TensorProto.FLOAT else TensorProto.INT8)
        np.testing.assert_array_equal(same, array)
    (feed,) = random_feeds(packed, 1)
    np.testing.assert_array_equal(run_model(in_bytes, feed)["y"], run_model(packed, feed)["y"])


def test_two_bits_run_though_the_runtime_has_no_type_for_them() -> None:
    with pytest.raises(UsageError, match="needs opset 25"):
        lowered("int2", "{storage=packed opset=keep}")
    model = lowered("int2")
    assert set(np.unique(codes(model)["w_quantized"][1])) <= {-2, -1, 0, 1}
    run_model(model, random_feeds(model, 1)[0])


def test_four_bits_run_in_the_integer_kernels() -> None:
    kernels = {op.op_type: op.runs for op in qc.check(lowered("int4"), "ort-cpu").ops}
    assert kernels["Conv"] == kernels["MatMul"] == "integer"
    kernels = {op.op_type: op.runs for op in qc.check(lowered("int4", "{storage=packed}"), "ort-cpu").ops}
    assert kernels["Conv"] == "float"


def test_bytes_need_no_newer_opset() -> None:
    model = lowered("int4", opset=13)
    assert {one.domain for one in model.opset_import} == {""} and model.opset_import[0].version == 13


def test_other_targets_pack_unless_they_are_asked_not_to() -> None:
    assert codes(lowered("int4", target="npu"))["w_quantized"][0] == TensorProto.INT4
    assert codes(lowered("int4", "{storage=int8}", target="npu"))["w_quantized"][0] == TensorProto.INT8


def test_what_is_stored_is_said() -> None:
    model = parse(NET.format(21))
    compiled = qc.compile(model, "w4a8", data=random_feeds(model, 2), threads=1)
    assert any("one code in each byte" in note for note in compiled.notes)
    compiled = qc.compile(model, "w8a8", data=random_feeds(model, 16), threads=1)
    assert compiled.notes == []


def test_codes_of_convolutions_take_a_byte_each_before_casts_read_packed_ones() -> None:
    said = {opset: qc.compile(parse(NET.format(opset)), "w4", threads=1).notes for opset in (13, 21)}
    assert any("one code in each byte" in note and "opset 13" in note for note in said[13])
    assert not any("each byte" in note for note in said[21])


def test_small_constants_of_another_file_are_read_for_a_newer_opset(tmp_path: Path) -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 64] x) => (float[1, 300] y) <float[64, 300] w, float[300] b> {
        p = MatMul(x, w)
        y = Add(p, b)
    }""")
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="model.bin")
    passes = "insert-quantizers{weight=int4},annotate-per-channel{block_size=32},calibrate,insert-qdq"
    compiled = qc.compile(path, passes, data=random_feeds(model, 2), threads=1)
    assert any("from opset 17 to 21" in note for note in compiled.notes)


@pytest.mark.parametrize("target", ["ort-cpu", "openvino", "tensorrt"])
def test_weights_have_zero_points_of_their_own(target: str) -> None:
    """With one for both, ONNX Runtime fails where it is told to make the weights uint8."""
    model = parse("""g (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y)
    <float[4, 4, 1, 1] v, float[4, 4, 1, 1] w> {
        a = Conv(x, v)
        b = Relu(a)
        y = Conv(b, w)
    }""")
    made = qc.compile(model, "w8a8", data=random_feeds(model, 4), target=target, threads=1).model
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])
    feed = random_feeds(model, 1)[0]
    (found,) = session.run(["y"], feed)
    step = np.ptp(run_model(model, feed)["y"]) / 255
    np.testing.assert_allclose(found, run_model(made, feed)["y"], atol=1.01 * step)
