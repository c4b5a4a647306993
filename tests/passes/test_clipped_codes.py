"""Codes that a Clip limits to those of a narrower format, as Brevitas writes them (QCDQ)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds
from support.pipelines import run_model
from support.placement import of_value

import qc
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


def test_codes_beyond_their_limits_are_no_weight() -> None:
    model = clipped(-8, 7, "int8[2, 2] codes = {7, -7, 30, -2}")
    for pipeline in ("import-qdq", "dequantize"):
        made = qc.compile(model, pipeline, threads=1, allow_unquantized=True)
        (feed,) = random_feeds(model, 1)
        expected = run_model(model, feed)["y"]
        np.testing.assert_allclose(run_model(made.float_model, feed)["y"], expected, atol=0.7)


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


def _reads(model: ModelProto) -> list:
    wiring = Wiring(lift(model))
    (product,) = [op for op in wiring.model.graph.ops() if op not in wiring.hidden]
    return [wiring.read(value) for value in product.graph.op_inputs(product) if value is not None]
