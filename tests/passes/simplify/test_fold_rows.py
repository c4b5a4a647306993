"""Batch normalizations of the columns of a product, behind what moves them, are folded into it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.models import parse, random_feeds
from support.pipelines import run_model

import qc

FLATTEN = "f = Flatten<axis = 2>(p)"
NORM = "n = BatchNormalization(f, scale, shift, mean, variance)  y = Relu(n)"
COLUMNS = "t = Transpose<perm = [2, 0, 1]>(p)  r = Reshape(t, columns)  f = Transpose(r)"
PRODUCT = "p = MatMul(x, w)"


def model(body: str, weight: str = "8, 6", made: str = "15, 6", others: str = "") -> ModelProto:
    proto = parse(f"""g (float[3, 5, 8] x) => (float[{made}] y{others})
    <float[{weight}] w, float[6] b, float[6] scale, float[6] shift, float[6] mean, float[6] variance,
     int64[2] rows = {{-1, 6}}, int64[2] columns = {{-1, 15}}> {{ {body} }}""")
    random = np.random.default_rng(4)
    for tensor in proto.graph.initializer:
        if tensor.name not in ("rows", "columns"):
            numbers = random.uniform(0.5, 2, tuple(tensor.dims)).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))
    return proto


def folded(proto: ModelProto) -> ModelProto:
    """The model after the pass, which computes the same."""
    result = qc.compile(proto, "fold-batch-norms,eliminate-dead-code").model
    (feed,) = random_feeds(proto, 1)
    for name, wanted in run_model(proto, feed).items():
        np.testing.assert_allclose(run_model(result, feed)[name], wanted, rtol=1e-4, atol=1e-4)
    return result


def op_types(proto: ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


@pytest.mark.parametrize(
    ("body", "weight", "made"),
    [
        (f"{PRODUCT}  {FLATTEN}", "8, 6", "15, 6"),
        (f"t = Transpose(w)  p = MatMul(x, t)  {FLATTEN}", "6, 8", "15, 6"),
        (f"{PRODUCT}  f = Reshape(p, rows)", "8, 6", "15, 6"),
        (f"m = MatMul(x, w)  p = Add(b, m)  {FLATTEN}", "8, 6", "15, 6"),
        ("m = MatMul(x, w)  p = Add(m, b)  f = Transpose<perm = [0, 2, 1]>(p)", "8, 6", "3, 6, 5"),
        ("p = Flatten<axis = 2>(x)  m = MatMul(p, w)  f = Add(m, b)", "8, 6", "15, 6"),
    ],
    ids=["flatten", "transposed weight", "reshape", "bias", "transpose", "two axes"],
)
def test_it_becomes_a_bias(body: str, weight: str, made: str) -> None:
    result = folded(model(f"{body}  {NORM}", weight, made))
    assert "BatchNormalization" not in op_types(result)
    assert op_types(result).count("Add") == 1


@pytest.mark.parametrize(
    ("body", "others"),
    [
        (f"{PRODUCT}  {FLATTEN}  {NORM.replace('Relu(n)', 'Add(n, f)')}", ""),
        (f"{PRODUCT}  {FLATTEN}  {NORM}", ", float[3, 5, 6] p"),
        (f"{PRODUCT}  {COLUMNS}  {NORM}", ""),
        (f"m = MatMul(x, w)  p = Relu(m)  {FLATTEN}  {NORM}", ""),
    ],
    ids=["read twice", "output", "columns are joined", "activation"],
)
def test_it_stays(body: str, others: str) -> None:
    assert "BatchNormalization" in op_types(folded(model(body, others=others)))


def test_a_weight_that_others_read_keeps_its_numbers() -> None:
    second = "q = MatMul(x, w)  g = Flatten<axis = 2>(q)  y = Add(a, g)"
    body = f"{PRODUCT}  {FLATTEN}  {NORM.replace('y =', 'a =')}  {second}"
    assert "BatchNormalization" not in op_types(folded(model(body)))


def test_parameters_of_another_shape_stay() -> None:
    """Of opset 8 a normalization may have parameters for each number of a sample (``spatial = 0``)."""
    proto = parse("""<ir_version: 3, opset_import: ["" : 8]>
    g (float[3, 6, 6] x, float[6, 6] w, float[6, 1] s, float[6, 1] m, float[6, 1] v) => (float[3, 6, 1] y) {
        p = MatMul(x, w)  t = Transpose<perm = [0, 2, 1]>(p)
        y = BatchNormalization<spatial = 0>(t, s, m, m, v)
    }""")
    random = np.random.default_rng(0)
    for value in list(proto.graph.input)[1:]:
        shape = [one.dim_value for one in value.type.tensor_type.shape.dim]
        numbers = random.uniform(0.5, 2, shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(numbers, value.name))
    made = qc.compile(proto, "fold-batch-norms").model
    assert op_types(made) == ["MatMul", "Transpose", "BatchNormalization"]
