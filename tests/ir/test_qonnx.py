"""Ops of QONNX are read as ops of ONNX that give the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.pipelines import run_model
from support.placement import of_value

import qc
from qc.ir.errors import ModelError
from qc.ir.onnx.repair import repaired

DOMAIN = "qonnx.custom_op.general"
CHANNELS = [0.25, 0.5, 0.125]
ROUNDED = {"ROUND": np.rint, "FLOOR": np.floor, "CEIL": np.ceil}
DATA = np.linspace(-6, 6, 4 * 3, dtype=np.float32).reshape(4, 3)


def rounding(
    op_type: str, *given: Any, weight: bool = False, opset: int = 17, domain: str = DOMAIN, **settings: Any
) -> ModelProto:
    """``y = x @ w``, where ``x``, or else ``w``, is rounded by an op of QONNX."""
    names = [f"p{index}" for index in range(len(given))]
    constants = [
        numpy_helper.from_array(np.array(one, np.float32), name)
        for one, name in zip(given, names, strict=True)
    ]
    matrix = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32) * 4
    constants.append(numpy_helper.from_array(matrix, "w"))
    source, others = ("w", ["x", "rounded"]) if weight else ("x", ["rounded", "w"])
    nodes = [
        helper.make_node(op_type, [source, *names], ["rounded"], "round", domain=domain, **settings),
        helper.make_node("MatMul", others, ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 3]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(domain, 2)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def rounded(data: np.ndarray, scale: Any, zero: Any, bits: int, signed: int, narrow: int, mode: str) -> Any:
    """What QONNX says a Quant gives."""
    low, high = (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1 - narrow)
    scale = np.array(scale, np.float32)
    codes = ROUNDED[mode](np.clip(data / scale + np.float32(zero), low, high))
    return (codes - np.float32(zero)) * scale


def read(model: ModelProto, pipeline: str) -> qc.Compiled:
    return qc.compile(model, pipeline, threads=1, allow_unquantized=True)


def results(model: ModelProto) -> np.ndarray:
    """What the model gives as it is read."""
    return run_model(repaired(model).model, {"x": DATA})["y"]


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize(
    ("scale", "zero", "bits", "signed", "narrow", "mode"),
    [
        (0.25, 0, 8, 1, 0, "ROUND"),
        (0.25, 0, 4, 1, 1, "ROUND"),
        (0.25, 6, 4, 0, 0, "ROUND"),
        ([CHANNELS], 0, 3, 1, 0, "ROUND"),
        ([CHANNELS], 2, 6, 0, 1, "ROUND"),
        (0.25, 0, 1, 0, 0, "ROUND"),
        (2**-9, 0, 16, 1, 0, "ROUND"),
        (2**-9, 0, 12, 1, 0, "ROUND"),
        (2**-12, 0, 32, 1, 0, "ROUND"),
        (0.25, 0, 8, 1, 0, "FLOOR"),
        (0.25, 1.5, 5, 1, 0, "CEIL"),
    ],
)
def test_quant_gives_the_same_numbers(
    scale: Any, zero: float, bits: int, signed: int, narrow: int, mode: str, weight: bool
) -> None:
    settings = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
    model = rounding("Quant", scale, zero, bits, weight=weight, **settings)
    matrix = numpy_helper.to_array(model.graph.initializer[-1])
    how = scale, zero, bits, signed, narrow, mode
    expected = DATA @ rounded(matrix, *how) if weight else rounded(DATA, *how) @ matrix
    made = read(model, "import-qdq, insert-qdq")
    told = "Quant 'round' is an op of QONNX, written as ops of ONNX"
    assert any(note.endswith(told) for note in made.notes)
    for again in (model, made.model):
        np.testing.assert_allclose(results(again), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("domain", [DOMAIN, "onnx.brevitas"])
def test_quant_is_a_grid(domain: str) -> None:
    made = read(rounding("Quant", 0.25, 6, 4, signed=0, narrow=0, domain=domain), "import-qdq")
    assert [op.op_type for op in made.ir.graph.ops()] == ["MatMul"]
    held = of_value(made.ir, "x")
    assert held is not None and str(held.spec.format) == "uint4"
    of_weights = rounding("Quant", [CHANNELS], 0, 3, signed=1, narrow=1, weight=True, domain=domain)
    (weight,) = read(of_weights, "import-qdq").ir.quant.quantizers()
    assert str(weight.spec.format) == "int3" and weight.spec.narrow


def test_a_bias_keeps_its_codes() -> None:
    made = read(rounding("Quant", [CHANNELS], 0, 32, weight=True, signed=1, narrow=0), "import-qdq")
    assert {str(one.spec.format) for one in made.ir.quant.quantizers()} == {"int32"}


def test_one_bit_is_a_sign() -> None:
    matrix = numpy_helper.to_array(rounding("BipolarQuant", 0.5).graph.initializer[-1])
    expected = np.where(DATA >= 0, 0.5, -0.5).astype(np.float32) @ matrix
    for model in (rounding("BipolarQuant", 0.5), rounding("Quant", 0.5, 0, 1, signed=1)):
        np.testing.assert_allclose(results(model), expected, rtol=1e-5)


@pytest.mark.parametrize(("scale", "zero"), [(0.5, 1), (-0.5, 0), ([[0.5, -0.25, 1]], 0.5)])
def test_one_bit_is_the_sign_of_what_is_moved_and_scaled(scale: Any, zero: float) -> None:
    model = rounding("Quant", scale, zero, 1, signed=1)
    scale = np.array(scale, np.float32)
    codes = np.where(DATA / scale + np.float32(zero) >= 0, np.float32(1), np.float32(-1))
    expected = (codes - np.float32(zero)) * scale @ numpy_helper.to_array(model.graph.initializer[-1])
    np.testing.assert_allclose(results(model), expected, rtol=1e-5, atol=1e-6)


def test_settings_are_read_in_all_forms_of_constants() -> None:
    model = rounding("Quant", 0.25, 0, 4, signed=1, narrow=0)
    expected = results(model)
    forms: list[dict[str, Any]] = [{"value_float": 0.25}, {"value_floats": [0.0]}, {"value_int": 4}]
    for index, form in enumerate(forms):
        del model.graph.initializer[0]
        model.graph.node.insert(index, helper.make_node("Constant", [], [f"p{index}"], **form))
    held = of_value(read(model, "import-qdq").ir, "x")
    assert held is not None and str(held.spec.format) == "int4"
    np.testing.assert_array_equal(results(model), expected)


@pytest.mark.parametrize(("scale", "mode"), [(0.25, "ROUND"), ([CHANNELS], "ROUND"), (0.25, "FLOOR")])
def test_a_model_of_an_older_opset_is_converted(scale: Any, mode: str) -> None:
    settings = {"signed": 1, "narrow": 0, "rounding_mode": mode}
    old, new = (rounding("Quant", scale, 0, 4, opset=opset, **settings) for opset in (9, 13))
    made = repaired(old)
    assert made.notes[0].endswith("written as ops of ONNX of opset 13, as are all others now")
    assert made.model.graph.node == repaired(new).model.graph.node
    assert list(made.model.graph.output) == list(old.graph.output)
    np.testing.assert_array_equal(results(old), results(new))


def test_a_model_that_cannot_be_converted_is_refused() -> None:
    model = rounding("Quant", 0.25, 0, 8, signed=1, narrow=0, opset=9)
    model.graph.node.add(op_type="Hardmax", input=["y"], output=["z"]).attribute.add(name="axis", type=2, i=0)
    with pytest.raises(ModelError, match="has opset 9, its ops of QONNX need 13, and ONNX cannot convert it"):
        repaired(model)


@pytest.mark.parametrize("given", [(0.25, 3, 8, 5), (0.25, 8, 8, 2.0, 3)])
def test_truncation(given: tuple[float, ...]) -> None:
    scale, zero = np.float32(given[0]), np.float32(given[1])
    model = rounding("Trunc", *given, rounding_mode="FLOOR", signed=1)
    steps = np.rint(DATA / scale + zero) / np.float32(8)
    if len(given) == 4:
        expected = (np.floor(steps) - zero) * scale
    else:
        expected = (np.floor(np.clip(steps, -4, 3)) - zero / 8) * np.float32(given[3])
    matrix = numpy_helper.to_array(model.graph.initializer[-1])
    np.testing.assert_allclose(results(model), expected @ matrix, rtol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        rounding("Quant", 0.25, 0, 8, signed=1, narrow=0, rounding_mode="HALF_UP"),
        rounding("Quant", 0.25, 0, 2.5, signed=1, narrow=0),
        rounding("FloatQuant", 0.25, 0, 8, signed=1, narrow=0),
    ],
)
def test_what_ops_of_onnx_cannot_do_stays(model: ModelProto) -> None:
    assert repaired(model).model is model


def test_what_is_damaged_is_told() -> None:
    model = rounding("Quant", 0.25, 0, 8, signed=1, narrow=0)
    model.graph.initializer[0].dims.append(3)
    with pytest.raises(ModelError, match="'p0'"):
        repaired(model)
    del model.graph.node[0].input[2:]
    assert repaired(model).model is model


def test_dequantize_takes_it_back() -> None:
    made = read(rounding("Quant", 0.25, 0, 4, signed=0, narrow=0), "dequantize")
    assert "Quantize" not in str(made.model.graph)
