"""Codes that a Clip limits to those of a narrower format, as Brevitas writes them (QCDQ)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds
from support.pipelines import run_model
from support.placement import of_value

import qc
from qc.diff import diff_models
from qc.diff.wiring import Wiring
from qc.ir import lift

WEIGHT = "int8[2, 2] codes = {7, -7, 3, -2}"


def clipped(low: int, high: int, weight: str = WEIGHT, more: str = "") -> ModelProto:
    return parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[3, 2] x) => (float[3, 2] y{", int8[3, 2] all" if more else ""})
    <float s = {{0.25}}, int8 z = {{0}}, {weight}, int8 least = {{-7}}, int8 most = {{7}},
     int8 low = {{{low}}}, int8 high = {{{high}}}> {{
        all = QuantizeLinear(x, s, z)
        few = Clip(all, low, high)
        d = DequantizeLinear(few, s, z)
        own = Clip(codes, least, most)
        w = DequantizeLinear(own, s, z)
        y = MatMul(d, w)
    }}""")


def test_a_clip_of_codes_makes_a_grid_of_its_format() -> None:
    model = clipped(-8, 7)
    made = qc.compile(model, "import-qdq,insert-qdq", target="npu", threads=1)
    assert [op.op_type for op in made.ir.graph.ops()] == ["MatMul"]
    held = of_value(made.ir, "x")
    assert held is not None and str(held.spec.format) == "int4" and not held.spec.narrow
    (weight,) = [one for one in made.ir.quant.quantizers() if one is not held]
    assert str(weight.spec.format) == "int4" and weight.spec.narrow
    (feed,) = random_feeds(model, 1)
    np.testing.assert_array_equal(run_model(made.model, feed)["y"], run_model(model, feed)["y"])
    names = {read.value.name for read in _reads(model)}
    assert names == {"x", "codes"}


def test_weights_keep_their_format_when_constants_are_folded() -> None:
    made = qc.compile(clipped(-8, 7), "simplify,import-qdq", threads=1, allow_unquantized=True)
    assert {str(one.spec.format) for one in made.ir.quant.quantizers()} == {"int4"}


@pytest.mark.parametrize(("low", "high"), [(-7, 7), (-32, 31), (-3, 90)])
def test_what_quantize_ops_cannot_make_of_data_stays(low: int, high: int) -> None:
    model = clipped(low, high)
    made = qc.compile(model, "import-qdq,insert-qdq", target="npu", threads=1)
    assert [op.op_type for op in made.ir.graph.ops()][:3] == ["QuantizeLinear", "Clip", "DequantizeLinear"]
    feed = {"x": np.linspace(-40, 40, 6, dtype=np.float32).reshape(3, 2)}
    np.testing.assert_array_equal(run_model(made.model, feed)["y"], run_model(model, feed)["y"])


def test_codes_that_the_model_gives_stay() -> None:
    """Without a Clip, too, where the pass ended in a ValueError."""
    model = clipped(-8, 7, more="all")
    made = qc.compile(model, "import-qdq,insert-qdq", target="npu", threads=1)
    assert "Clip" in [op.op_type for op in made.ir.graph.ops()]
    plain = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[3, 2] x) => (float[3, 2] y, int8[3, 2] q) <float s = {0.25}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = Neg(d)
    }""")
    same = qc.compile(plain, "import-qdq", threads=1, allow_unquantized=True)
    assert [op.op_type for op in same.ir.graph.ops()] == ["QuantizeLinear", "DequantizeLinear", "Neg"]


@pytest.mark.parametrize("pipeline", ["import-qdq", "dequantize", "fold-constants,import-qdq"])
def test_codes_beyond_their_limits_are_limited(pipeline: str) -> None:
    model = clipped(-8, 7, "int8[2, 2] codes = {7, -8, 30, -2}")
    made = qc.compile(model, pipeline, threads=1, allow_unquantized=True)
    assert [node.op_type for node in made.float_model.graph.node] == ["MatMul"]
    (feed,) = random_feeds(model, 1)
    expected = run_model(model, feed)["y"]
    np.testing.assert_allclose(run_model(made.float_model, feed)["y"], expected, atol=0.7)


@pytest.mark.parametrize(("codes", "ends"), [("7, -8, 3, -2", (-7, 7)), ("-128, 1, 127, 5", (-127, 127))])
def test_weights_that_a_clip_changes_are_imported(codes: str, ends: tuple[int, int]) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 2, 3, 3] x) => (float[1, 2, 3, 3] y)
    <float s = {{0.25}}, int8 z = {{0}}, int8[2, 2, 1, 1] codes = {{{codes}}},
     int8 low = {{{ends[0]}}}, int8 high = {{{ends[1]}}}> {{
        few = Clip(codes, low, high)  w = DequantizeLinear(few, s, z)  y = Conv(x, w)
    }}""")
    pipeline = "fold-constants,import-qdq,insert-quantizers,calibrate,insert-qdq"
    feeds = random_feeds(model, 2)
    made = qc.compile(model, pipeline, target="ort-cpu", data=feeds, threads=1)
    expected = run_model(model, feeds[0])["y"]
    np.testing.assert_allclose(run_model(made.model, feeds[0])["y"], expected, atol=np.ptp(expected) / 50)
    made = qc.compile(model, "import-qdq", threads=1, allow_unquantized=True)
    found = diff_models(lift(model), lift(made.float_model))
    assert {difference.group for difference in found.differences} == {"quantizers"}


def test_weights_share_codes_with_other_limits() -> None:
    """No format has the limits, so that the grids are equal and the numbers are not."""
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 3] x) => (float[1, 3] y)
    <float s = {0.25}, int8 z = {0}, int8[3] codes = {-60, 5, 50}, int8 low = {-20}, int8 high = {20},
     int8 least = {-40}, int8 most = {40}> {
        a = Clip(codes, low, high)  b = Clip(codes, least, most)
        da = DequantizeLinear(a, s, z)  db = DequantizeLinear(b, s, z)  dc = DequantizeLinear(codes, s, z)
        m = Mul(x, da)  n = Add(m, db)  y = Add(n, dc)
    }""")
    (feed,) = random_feeds(model, 1)
    for pipeline in ("import-qdq", "dequantize"):
        made = qc.compile(model, pipeline, threads=1, allow_unquantized=True)
        assert [node.op_type for node in made.float_model.graph.node] == ["Mul", "Add", "Add"]
        np.testing.assert_array_equal(run_model(made.float_model, feed)["y"], run_model(model, feed)["y"])


@pytest.mark.parametrize(("low", "expected"), [(-8, ["Neg", "MatMul"]), (0, ["Neg", "Relu", "MatMul"])])
def test_a_float_model_is_made_of_them(low: int, expected: list[str]) -> None:
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[3, 2] x) => (float[3, 2] y)
    <float s = {{0.25}}, int8 z = {{0}}, {WEIGHT}, int8 low = {{{low}}}, int8 seven = {{7}}> {{
        n = Neg(x)  all = QuantizeLinear(n, s, z)  few = Clip(all, low, seven)
        d = DequantizeLinear(few, s, z)  own = Clip(codes, low, seven)  w = DequantizeLinear(codes, s, z)
        y = MatMul(d, w)
    }}""")
    made = qc.compile(model, "dequantize", threads=1, allow_unquantized=True)
    assert [node.op_type for node in made.float_model.graph.node] == expected
    assert not made.notes


@pytest.mark.parametrize(
    ("type", "zero", "low", "high", "source", "expected"),
    [
        ("int8", 0, -20, 20, "Neg", "Neg Clip Neg"),  # a HardTanh
        ("int8", 0, 5, 30, "Neg", "Neg Clip Neg"),
        ("int8", 0, 0, 20, "Neg", "Neg Clip Neg"),
        ("int8", 0, 0, 127, "Neg", "Neg Relu Neg"),
        ("int8", 0, 0, 127, "", "Relu Neg"),
        ("int8", 0, 0, 60, "", "Clip Neg"),
        ("int8", 10, -128, 40, "", "Clip Neg"),
        ("int8", -40, -8, 7, "Neg", "Neg Clip Neg"),  # a format, but without the zero
        ("uint8", 0, 0, 30, "Neg", "Neg Relu Clip Neg"),
        ("uint8", 128, 100, 255, "Neg", "Neg Clip Neg"),
    ],
)
def test_clips_of_the_network_stay(
    type: str, zero: int, low: int, high: int, source: str, expected: str
) -> None:
    """Those whose limits are no format of the codes, or a lower one at zero."""
    model = parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[61] x) => (float[61] y)
    <float s = {{0.1}}, {type} z = {{{zero}}}, {type} low = {{{low}}}, {type} high = {{{high}}}> {{
        {"n = Neg(x)" if source else ""}  all = QuantizeLinear({"n" if source else "x"}, s, z)
        few = Clip(all, low, high)  d = DequantizeLinear(few, s, z)  y = Neg(d)
    }}""")
    made = qc.compile(model, "dequantize", threads=1, allow_unquantized=True)
    assert [node.op_type for node in made.float_model.graph.node] == expected.split()
    feed = {"x": np.linspace(-5, 5, 61, dtype=np.float32)}
    result, right = run_model(made.float_model, feed)["y"], run_model(model, feed)["y"]
    np.testing.assert_allclose(result, right, atol=0.051)


def test_weights_that_are_quantized_in_the_model_are_limited() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 2] x) => (float[1, 2] y)
    <float[2] s = {0.25, 0.5}, int8[2] z = {0, 0}, float[2, 2] w = {-2, 1, 3, -4},
     int8 low = {-7}, int8 high = {7}> {
        all = QuantizeLinear<axis = 1>(w, s, z)  few = Clip(all, low, high)
        d = DequantizeLinear<axis = 1>(few, s, z)  y = MatMul(x, d)
    }""")
    made = qc.compile(model, "dequantize", threads=1, allow_unquantized=True)
    assert [node.op_type for node in made.float_model.graph.node] == ["MatMul"]
    (feed,) = random_feeds(model, 1)
    np.testing.assert_array_equal(run_model(made.float_model, feed)["y"], run_model(model, feed)["y"])


def test_clips_of_many_channels_stay() -> None:
    """A Clip of floats has one limit for all of them."""
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 2, 3] x) => (float[1, 2, 3] y)
    <float[2] s = {0.1, 0.2}, int8[2] z = {0, 0}, int8 low = {0}, int8 high = {127}> {
        n = Neg(x)  all = QuantizeLinear(n, s, z)  few = Clip(all, low, high)  y = DequantizeLinear(few, s, z)
    }""")
    made = qc.compile(model, "dequantize", threads=1, allow_unquantized=True)
    assert "Clip" in [node.op_type for node in made.float_model.graph.node] and made.notes


def _reads(model: ModelProto) -> list:
    wiring = Wiring(lift(model))
    (product,) = [op for op in wiring.model.graph.ops() if op not in wiring.hidden]
    return [wiring.read(value) for value in product.inputs if value is not None]
