"""Stored weights of float convolutions, which ONNX Runtime dequantizes once, when it loads the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds
from support.pipelines import apply, artifact, check, run_model

import qc
from qc.ir.facts.weights import weights_of
from qc.ir.onnx.lower import lower
from qc.runtime import open_session

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1, 4, 6, 6] x) => (float[1, 4, 8, 8] y)
<float[8, 4, 3, 3] w, float[8] b, float[32, 8, 1, 1] v, float[32, 1, 3, 3] d, float[32, 4, 3, 3] t> {
    c = Conv<pads = [1, 1, 1, 1]>(x, w, b)
    r = Relu(c)
    e = Conv(r, v)
    f = Conv<group = 32, pads = [1, 1, 1, 1]>(e, d)
    y = ConvTranspose(f, t)
}"""
PASSES = (
    "insert-quantizers{{activation=float weight={}}},annotate-per-channel{{block_size=4}},calibrate,"
    "to-simulation,insert-qdq{{storage=packed}}"
)


def lowered(weight: str) -> tuple:
    ir, context, _ = apply(PASSES.format(weight), parse(MODEL))
    check(artifact(context, "qdq"))
    return ir, artifact(context, "qdq"), artifact(context, "simulation")


def optimized(model: ModelProto, folder: Path) -> set[str]:
    """The ops that ONNX Runtime makes of a model when it loads it."""
    open_session(model, optimized_file=folder / "optimized.onnx")
    return {node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node}


@pytest.mark.parametrize("weight", ["int8", "uint8", "int4", "uint4"])
def test_the_same_numbers_computed_when_the_model_is_loaded(weight: str, tmp_path: Path) -> None:
    ir, model, simulation = lowered(weight)
    assert "DequantizeLinear" not in {node.op_type for node in model.graph.node}
    (feed,) = random_feeds(model, 1)
    exact = run_model(simulation, feed)["y"]
    np.testing.assert_allclose(run_model(model, feed)["y"], exact, rtol=1e-5, atol=1e-5)
    assert not optimized(model, tmp_path) & {"Cast", "Mul", "Sub", "DequantizeLinear"}
    again, _, _ = apply("import-qdq", model)
    assert [op.op_type for op in again.graph.ops()] == [op.op_type for op in ir.graph.ops()]
    before, after = weights_of(ir), weights_of(again)
    assert list(after) == list(before)
    for name, found in after.items():
        np.testing.assert_array_equal(found.dequantize(), before[name].dequantize())
        assert (found.granularity, found.bits) == (before[name].granularity, before[name].bits)


def test_convolutions_of_codes_keep_their_codes() -> None:
    model = parse(MODEL)
    passes = "match-supergroups,insert-quantizers,annotate-per-channel,calibrate,insert-qdq"
    _, context, _ = apply(passes, model, feeds=random_feeds(model, 2))
    kinds = [node.op_type for node in artifact(context, "qdq").graph.node]
    assert "Mul" not in kinds and kinds.count("DequantizeLinear") > 3


@pytest.mark.parametrize("zero_point", [127.5, 300.0, -1.0])
def test_products_that_no_codes_stand_for_stay_as_they_are(zero_point: float) -> None:
    """Casts of codes that somebody else wrote may have any number in the place of a zero point."""
    model = parse(
        f"""g (float[1, 2, 3, 3] x) => (float[1, 2, 3, 3] y)
        <uint8[2, 2, 1, 1] codes = {{1, 200, 30, 4}}, float zero = {{{zero_point}}}, float scale = {{0.5}}> {{
            c = Cast<to = 1>(codes)
            s = Sub(c, zero)
            w = Mul(s, scale)
            y = Conv(x, w)
        }}"""
    )
    ir, _, _ = apply("import-qdq", model)
    (feed,) = random_feeds(model, 1)
    np.testing.assert_array_equal(run_model(lower(ir), feed)["y"], run_model(model, feed)["y"])


@pytest.mark.parametrize("weight", ["int8", "int4"])
@pytest.mark.parametrize(
    ("product", "folds"),
    [
        ("Gemm(x, w, row)", True),
        ("Gemm<alpha = 0.5>(x, w)", True),
        ("MatMul(x, several)", True),
        ("Gemm(x, w, bias)", False),
        ("Gemm(shaped, w, bias)", False),
        ("MatMul(x, w)", False),
    ],
)
def test_products_that_have_no_kernel_on_codes_are_folded(product: str, folds: bool, weight: str) -> None:
    """A DequantizeLinear in front of them ran in every run, and took ten times as long as the product."""
    source = parse(
        f"""g (float[1, 256] x, int64[k] lengths) => (float[M, N] y)
        <float[256, 256] w, float[1, 256, 256] several, float[1, 256] row, float[256] bias> {{
            shaped = Reshape(x, lengths)
            p = {product}
            y = Flatten(p)
        }}"""
    )
    place = f"eliminate-dead-code,insert-quantizers{{activation=float weight={weight}}},annotate-per-channel"
    model = artifact(apply(f"{place},calibrate,insert-qdq", source)[1], "qdq")
    kinds = {node.op_type for node in model.graph.node}
    assert "DequantizeLinear" not in kinds and ("Mul" in kinds) == folds == ("MatMulNBits" not in kinds)


def test_data_of_16_bits_is_not_rounded_to_8_in_a_product() -> None:
    source = parse("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 8, 64] x) => (float[2, 8, 96] y) <float[64, 96] w> { y = MatMul(x, w) }""")
    feeds = list(random_feeds(source, 4))
    made = qc.compile(source, "w8a16", data=feeds, target="ort-cpu")
    sessions = [open_session(made.model, optimize=optimize) for optimize in (True, False)]
    found, plain = (session.run(None, feeds[0])[0] for session in sessions)
    np.testing.assert_allclose(found, plain, atol=1e-4)  # 0.04 where ONNX Runtime rounds it
    again = apply("import-qdq", made.model)[0]
    assert [op.op_type for op in again.graph.ops()] == ["MatMul"]
    assert len(weights_of(again)) == 1
