"""Pairs of quantize and dequantize ops become floats again, where they stand for what they show."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.float_types import in_type
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import apply, run_model

import qc
from qc.ir import lift
from qc.ir.facts.quantized_form import Form, quantized_form


def pair(grid: str, op: str = "Conv") -> ModelProto:
    """A convolution whose result is rounded to a grid that is to do the work of an activation."""
    return parse(
        f"""
        network (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
            <float[2, 2, 1, 1] w, {grid}>
        {{
            conv = {op}(x{", w" if op == "Conv" else ""})
            codes = QuantizeLinear(conv, scale, zero)
            rounded = DequantizeLinear(codes, scale, zero)
            y = Neg(rounded)
        }}
        """
    )


@pytest.mark.parametrize(
    ("grid", "op", "expected"),
    [
        ("float scale = {0.1}, uint8 zero = {0}", "Conv", ["Conv", "Relu", "Neg"]),
        ("float scale = {0.1}, int8 zero = {-128}", "Conv", ["Conv", "Relu", "Neg"]),
        ("float scale = {0.023529412}, uint8 zero = {0}", "Conv", ["Conv", "Clip", "Neg"]),
        ("float scale = {0.1}, uint8 zero = {3}", "Conv", ["Conv", "Neg"]),
        ("float scale = {0.1}, int8 zero = {0}", "Conv", ["Conv", "Neg"]),
        ("float scale = {0.1}, uint8 zero = {0}", "Sigmoid", ["Sigmoid", "Neg"]),
        ("float scale = {0.1}, uint8 zero = {0}", "Sin", ["Sin", "Relu", "Neg"]),
        # Of an input a grid says what data there is.
        ("float scale = {0.1}, uint8 zero = {0}", "Identity", ["Neg"]),
    ],
)
def test_a_grid_that_begins_at_zero_is_an_activation(grid: str, op: str, expected: list[str]) -> None:
    result = qc.compile(pair(grid, op), "dequantize", threads=1).float_model
    assert [node.op_type for node in result.graph.node] == expected


def test_float16_scales_make_float16() -> None:
    quantized = in_type(pair("float scale = {0.023529412}, uint8 zero = {0}"), TensorProto.FLOAT16)
    made = qc.compile(quantized, "dequantize", threads=1).float_model
    onnx.checker.check_model(made, full_check=True)
    feed = random_feeds(made, 1)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(quantized, feed)["y"], atol=0.03)
    feeds = random_feeds(made, 2)
    plain = qc.compile(made, "w8a8", data=feeds[:1], threads=1)  # a single sample corrects no bias
    assert plain.coverage.quantized == 3


@pytest.mark.filterwarnings("error")
def test_codes_of_a_mask_may_stand_for_an_infinity() -> None:
    quantized = parse("""g (float[2] x) => (float[2] y)
        <uint8[2] codes = {0, 255}, float scale = {1.4e36}, uint8 zero = {255}> {
            mask = DequantizeLinear(codes, scale, zero)
            y = Add(x, mask)
        }""")
    made = qc.compile(quantized, "dequantize", threads=1).float_model
    feed = {"x": np.ones(2, np.float32)}
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(quantized, feed)["y"])


def test_weights_are_exact() -> None:
    """Per channel and in blocks, in codes or in float with both ops behind: as ONNX Runtime computes them."""
    codes = np.arange(-32, 32, dtype=np.int8).reshape(8, 8)
    weights = [
        numpy_helper.from_array(codes, "codes"),
        numpy_helper.from_array(np.linspace(0.01, 0.3, 8, dtype=np.float32), "channels"),
        numpy_helper.from_array(np.arange(8, dtype=np.int8), "zeros"),
        numpy_helper.from_array(np.linspace(0.01, 0.3, 16, dtype=np.float32).reshape(8, 2), "blocks"),
        numpy_helper.from_array(np.linspace(-3, 3, 64, dtype=np.float32).reshape(8, 8), "float"),
        numpy_helper.from_array(np.float32(0.02), "scale"),
        numpy_helper.from_array(np.int8(5), "zero"),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["codes", "channels", "zeros"], ["a"], axis=1),
        helper.make_node("DequantizeLinear", ["codes", "blocks"], ["b"], axis=1, block_size=4),
        helper.make_node("QuantizeLinear", ["float", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["c"]),
        *(helper.make_node("MatMul", ["x", name], [f"y_{name}"]) for name in "abc"),
    ]
    outputs = [floats(f"y_{name}", 8, 8) for name in "abc"]
    model = model_of(nodes, [floats("x", 8, 8)], outputs, weights)
    found = quantized_form(lift(model).graphs())
    assert found is not None and found.form is Form.WEIGHTS and found.has_pairs
    made = qc.compile(model, "dequantize", threads=1).float_model
    feed = {"x": np.eye(8, dtype=np.float32)}
    expected, results = run_model(model, feed), run_model(made, feed)
    for name, array in expected.items():
        np.testing.assert_array_equal(results[name], array)


def test_what_is_not_known_stays() -> None:
    """Codes that a graph gives, and a grid that is computed, stay; what can be made float is."""
    model = parse(
        """
        network (float[4] x, float s) => (float[4] y, uint8[4] codes, float[4] z)
            <float scale = {0.1}, uint8 zero = {7}>
        {
            codes = QuantizeLinear(x, scale, zero)
            y = DequantizeLinear(codes, scale, zero)
            other = QuantizeLinear(x, s, zero)
            z = DequantizeLinear(other, scale, zero)
        }
        """
    )
    ir, context, _ = apply("dequantize", model)
    kinds = Counter(op.op_type for op in ir.graph.ops())
    assert kinds == {"QuantizeLinear": 2, "DequantizeLinear": 1, "Identity": 1}
    assert any("ops were left that compute with codes" in note for note in context.notes)
    assert ir.action_count > 0
    again = ir.action_count
    apply("dequantize", ir)
    assert ir.action_count == again


@pytest.mark.parametrize("shape", [(8, 2), (8, 4), (6, 3)])
def test_a_float_weight_that_is_rounded_in_blocks(shape: tuple[int, int]) -> None:
    """Also where there are as many blocks as columns in all."""
    generator, blocks = np.random.default_rng(0), {"axis": 0, "block_size": 2}
    numbers = {
        "w": generator.normal(size=shape),
        "s": generator.uniform(0.01, 0.05, (shape[0] // 2, shape[1])),
    }
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in numbers.items()]
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s"], ["q"], **blocks, output_dtype=TensorProto.INT8),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], **blocks),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    model = model_of(nodes, [floats("x", 8, shape[0])], [floats("y", 8, shape[1])], constants)
    made = qc.compile(model, "dequantize", threads=1).float_model
    assert [node.op_type for node in made.graph.node] == ["MatMul"]
    feed = {"x": np.eye(8, shape[0], dtype=np.float32)}
    np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


def test_codes_that_are_read_along_another_axis_stay() -> None:
    numbers = {"w": np.eye(4), "s": np.arange(1, 5)}
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in numbers.items()]
    nodes = [
        helper.make_node("QuantizeLinear", ["w", "s"], ["q"], axis=0),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    model = model_of(nodes, [floats("x", 4, 4)], [floats("y", 4, 4)], constants)
    ir, _, _ = apply("dequantize", model)
    assert [op.op_type for op in ir.graph.ops()] == ["QuantizeLinear", "DequantizeLinear", "MatMul"]


def test_codes_that_are_read_with_another_zero_point_stay() -> None:
    model = parse(
        """
        network (float[4] x) => (float[4] y) <float scale = {0.1}, uint8 zero = {7}, uint8 other = {9}>
        {
            codes = QuantizeLinear(x, scale, zero)
            y = DequantizeLinear(codes, scale, other)
        }
        """
    )
    ir, _, _ = apply("dequantize", model)
    assert [op.op_type for op in ir.graph.ops()] == ["QuantizeLinear", "DequantizeLinear"]


def test_bodies_read_codes_from_outside() -> None:
    model = parse(
        """
        network (float[2, 2] x, bool c) => (float[2, 2] y)
            <int8[2, 2] codes = {1, 2, -3, 4}, float scale = {0.5}, uint8 zero = {100}>
        {
            rounded = QuantizeLinear(x, scale, zero)
            y = If(c) <
                then_branch = t () => (float[2, 2] r) {
                    w = DequantizeLinear(codes, scale)
                    a = DequantizeLinear(rounded, scale, zero)
                    r = MatMul(a, w)
                },
                else_branch = e () => (float[2, 2] r) { r = DequantizeLinear(rounded, scale, zero) }
            >
        }
        """
    )
    made = qc.compile(model, "dequantize", threads=1).float_model
    assert quantized_form(lift(made).graphs()) is None
    for c in (True, False):
        feed = {"x": np.array([[1, 2], [3, 4.5]], np.float32), "c": np.array(c)}
        np.testing.assert_array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])
