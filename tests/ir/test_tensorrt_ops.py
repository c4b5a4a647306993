"""Ops of TensorRT's own domain are read as ops of ONNX that give the same numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from support.models import parse, random_feeds
from support.pipelines import run_model
from support.placement import of_value

import qc
from qc.ir.onnx.repair import repaired

PAIR = "q = trt.TRT_FP8QuantizeLinear(x, s)  d = trt.TRT_FP8DequantizeLinear(q, s)"
FUNCTION = f"""<domain: "trt", opset_import: ["trt" : 1]> qdq (x, s) => (d) {{ {PAIR} }}"""
IR_VERSIONS = {17: 8, 20: 9, 21: 10}


def float8(opset: int, as_function: bool) -> ModelProto:
    nodes = "d = trt.qdq(x, s)" if as_function else PAIR
    model = parse(f"""<ir_version: {IR_VERSIONS[opset]}, opset_import: ["" : {opset}, "trt" : 1]>
    g (float[2, 4] x) => (float[2, 3] y) <float s = {{0.01}}, float[4, 3] w> {{
        {nodes}  r = Relu(d)  y = MatMul(r, w)
    }} {FUNCTION if as_function else ""}""")
    if not as_function:
        model.graph.value_info.append(helper.make_tensor_value_info("q", TensorProto.UINT8, [2, 4]))
    return model


@pytest.mark.parametrize("as_function", [False, True])
@pytest.mark.parametrize("opset", IR_VERSIONS)
def test_float8(opset: int, as_function: bool) -> None:
    model = float8(opset, as_function)
    mended, (note, *_) = repaired(model)
    assert "is an op of TensorRT, written as an op of ONNX" in note
    onnx.checker.check_model(mended, full_check=True)
    feed = random_feeds(model, 1)[0]
    (weight,) = (one for one in model.graph.initializer if one.name == "w")
    scaled = (feed["x"] / np.float32(0.01)).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    expected = np.maximum(scaled * np.float32(0.01), 0) @ onnx.numpy_helper.to_array(weight)
    np.testing.assert_allclose(run_model(mended, feed)["y"], expected, atol=1e-5)
    compiled = qc.compile(model, "import-qdq,insert-qdq", threads=1)
    assert str(of_value(compiled.ir, "x").spec.format) == "float8e4m3fn"


def test_codes_that_are_results() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17, "trt" : 1]>
    g (float[2, 4] x, bool b) => (uint8[2, 4] q, uint8[2, 4] r) <float s = {0.01}> {
        q = trt.TRT_FP8QuantizeLinear(x, s)
        r = If(b) <
            then_branch = t () => (uint8[2, 4] c) { c = trt.TRT_FP8QuantizeLinear(x, s) },
            else_branch = e () => (uint8[2, 4] d) { n = Neg(x)  d = trt.TRT_FP8QuantizeLinear(n, s) }
        >
    }""")
    mended = repaired(model).model
    onnx.checker.check_model(mended, full_check=True)
    assert {info.type.tensor_type.elem_type for info in mended.graph.output} == {TensorProto.FLOAT8E4M3FN}


def test_weights_of_4_bits_in_blocks() -> None:
    model = parse("""<ir_version: 10, opset_import: ["" : 20, "trt" : 1]>
    g (float[2, 4] x) => (float[2, 2] y) <float[2, 2] s = {1, 2, 3, 4}> {
        w = trt.DequantizeLinear<axis = 0, block_size = 2>(c, s)  y = MatMul(x, w)
    }""")
    model.graph.initializer.append(
        helper.make_tensor("c", TensorProto.INT4, [4, 2], [1, -2, 3, 4, 5, -6, 7, -8])
    )
    x = np.eye(4, dtype=np.float32)[:2]
    np.testing.assert_array_equal(run_model(repaired(model).model, {"x": x})["y"], [[1, -4], [3, 8]])


def test_what_only_tensorrt_has_stays() -> None:
    model = parse("""<ir_version: 10, opset_import: ["" : 21, "trt" : 1]>
    g (float[2, 4] x) => (float[2, 4] y) { y = trt.TRT_FP4QDQ<block_size = 16>(x) }""")
    assert repaired(model).model is model
