"""Factors of sums of products fit into the bits that a device keeps of them, and scales are not too small."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse, random_feeds
from support.placement import of_value

import qc
from qc.ir.quant_table import Site

TEXT = """g (float[1, 4, 6, 6] x) => (float[1, 3, 6, 6] y, float[1, 2, 6, 6] t)
<float[3, 4, 1, 1] w, float[3] b, float[4, 2, 1, 1] v> {
    c = Conv(x, w, b)
    y = %s(c)
    t = ConvTranspose(x, v)
}"""
BITS = 11


def multipliers(activation: str, width: str) -> list[np.ndarray]:
    """The factors of both convolutions, the first by the grid behind its Relu if it has one."""
    model = parse(TEXT % activation)
    placing = f"insert-quantizers{{activation={width}}},annotate-per-channel,tie-quantizers,calibrate"
    ir = qc.compile(model, placing, data=random_feeds(model), target="qnn-htp").ir
    ops = {op.op_type: op for op in ir.graph.ops()}
    found = []
    for name, result in (("Conv", "y" if activation == "Relu" else "c"), ("ConvTranspose", "t")):
        weight = ir.quant.get(Site(ops[name].inputs[1], ops[name], 1))
        grids = weight, of_value(ir, "x"), of_value(ir, result)
        scale, data, made = (np.asarray(one.encoding.scale, np.float64) for one in grids if one is not None)
        found.append(scale * data / made)
    return found


def excess(factors: np.ndarray) -> float:
    """How far factors are from such of few bits, in units of the last of them."""
    fractions = np.ldexp(np.frexp(factors)[0], BITS)
    return float(np.abs(fractions - np.rint(fractions)).max())


@pytest.mark.parametrize("activation", ["Relu", "Neg"])
def test_factors_of_results_of_16_bits_have_few_bits(activation: str) -> None:
    assert max(map(excess, multipliers(activation, "uint16"))) < 1e-3
    assert max(map(excess, multipliers(activation, "uint8"))) > 1e-2, "where it changes nothing"


def test_a_channel_without_weights_has_a_factor_that_the_device_adds_its_bias_with() -> None:
    """Its scale would be as small as its bias lets it be, as behind gains of zero in normalizer-free nets."""
    model = parse("""g (float[1, 4, 6, 6] x) => (float[1, 3, 6, 6] y)
    <float[3, 4, 1, 1] w = {0,0,0,0, 0,0,0,0, 0,0,0,0}, float[3] b = {0.3, 0.002, 0.00001}> {
        y = Conv(x, w, b)
    }""")
    compiled = qc.compile(model, "w8a8", data=random_feeds(model), target="qnn-htp")
    (op,) = compiled.ir.graph.ops()
    weight = compiled.ir.quant.get(Site(op.inputs[1], op, 1))
    assert weight is not None and weight.encoding is not None
    factors = np.float64(weight.encoding.scale) * of_value(compiled.ir, "x").encoding.scale
    assert np.all(factors / of_value(compiled.ir, "y").encoding.scale >= 2.0**-20 * (1 - 1e-6))


@pytest.mark.parametrize(("pipeline", "least", "most"), [("w8a16", 2.0**-14, 2.0**-13), ("w8a8", 0, 1 / 255)])
def test_a_logarithm_of_16_bits_has_the_range_that_the_device_needs(
    pipeline: str, least: float, most: float
) -> None:
    model = parse("g (float[1, 8] x) => (float[1, 8] y) { y = Log(x) }")
    feeds = [{"x": np.linspace(1, 2, 8, dtype=np.float32)[None]}]
    ir = qc.compile(model, pipeline, data=feeds, target="qnn-htp").ir
    assert least <= of_value(ir, "y").encoding.scale < most


def test_a_result_in_floats_behind_an_activation() -> None:
    model = parse("""g (float[1, 4, 8] x) => (float[1, 4, 1] y) <float[8, 6] w, int64[1] a = {-1}> {
        m = MatMul(x, w) r = Relu(m) y = ReduceMax<keepdims = 1>(r, a) }""")
    made = qc.compile(
        model, "w8a8", data=random_feeds(model), target="qnn-htp", precision=["ReduceMax=float16"]
    )
    assert "float16" in {str(one.spec.format) for one in made.ir.quant.quantizers()}
