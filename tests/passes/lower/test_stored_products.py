"""Products of float data by stored weights, and lookups, in ONNX Runtime's ops on codes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds
from support.pipelines import apply, artifact, check, run_model

import qc
from qc.ir.facts.weights import weights_of

# A matrix that is an embedding and a classifier, a transposed one with a bias, and some of rows that are no
# whole blocks.
MODEL = """<ir_version: 10, opset_import: ["" : 13]>
g (int64[3] ids) => (float[3, 48] y, float[3, 20] z)
<float[48, 32] table, float[40, 32] w, float[40] b, float[40, 32] v, float[40, 20] u> {
    a = Gather(table, ids)
    h = Gemm<transB = 1>(a, w, b)
    r = Relu(h)
    m = MatMul(r, v)
    z = MatMul(h, u)
    back = Transpose<perm = [1, 0]>(table)
    y = MatMul(m, back)
}"""
PASSES = (
    "insert-quantizers{{activation=float weight={}}},annotate-per-channel{},calibrate{{weights=mse}},"
    "to-simulation,insert-qdq{{storage=packed products={}}}"
)
FEED = {"ids": np.array([0, 5, 47])}


def lowered(weight: str, granularity: str = "", products: str = "exact") -> tuple:
    ir, context, _ = apply(PASSES.format(weight, granularity, products), parse(MODEL))
    model = artifact(context, "qdq")
    check(model)
    return ir, model, artifact(context, "simulation")


def op_types(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.parametrize("granularity", ["", "{block_size=16}", "{block_size=32}"])
@pytest.mark.parametrize("weight", ["int4", "uint4", "int3", "int8", "uint8"])
def test_results_are_those_of_the_simulation(weight: str, granularity: str) -> None:
    _, model, simulation = lowered(weight, granularity)
    _, standard, _ = lowered(weight, granularity, "standard")
    for name, exact in run_model(simulation, FEED).items():
        np.testing.assert_allclose(run_model(model, FEED)[name], exact, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(run_model(standard, FEED)[name], exact, rtol=1e-4, atol=1e-4)


def test_which_ops_there_are() -> None:
    _, model, _ = lowered("int4", "{block_size=16}")
    found = op_types(model)
    # Of 40 rows no blocks of 16 can be made: those have one scale for each channel, repeated.
    assert found["MatMulNBits"] == 4 and found["GatherBlockQuantized"] == 1
    assert not {"MatMul", "Gemm", "Gather", "Transpose", "DequantizeLinear"} & set(found)
    assert {one.domain: one.version for one in model.opset_import}[""] == 13
    assert [t.name for t in model.graph.initializer if t.name.startswith("table")] == [
        "table_packed",
        "table_scale",
        "table_packed_shape",
    ]


def test_fast_products_round_their_data() -> None:
    levels = {}
    for products in ("fast", "exact"):
        nodes = [
            node for node in lowered("int4", "", products)[1].graph.node if node.op_type == "MatMulNBits"
        ]
        levels[products] = {a.i for node in nodes for a in node.attribute if a.name == "accuracy_level"}
    assert levels == {"fast": {4}, "exact": set()}


def test_exact_products_of_bytes_are_left_to_float() -> None:
    """ONNX Runtime multiplies 8-bit codes by float data many times slower than floats."""
    assert "MatMulNBits" not in op_types(lowered("int8", "", "exact")[1])
    assert op_types(lowered("int8", "", "fast")[1])["MatMulNBits"] == 4


@pytest.mark.parametrize("granularity", ["", "{block_size=16}"])
@pytest.mark.parametrize("weight", ["int4", "uint4", "int8"])
def test_they_are_read_back(weight: str, granularity: str) -> None:
    ir, model, _ = lowered(weight, granularity, "fast")
    again, _, _ = apply("import-qdq", model)
    assert not any(op.domain for op in again.graph.ops())
    before, after = weights_of(ir), weights_of(again)
    assert set(before) == set(after) == {"table", "w", "v", "u"}
    for name, found in after.items():
        numbers, as_before = found.dequantize(), before[name].dequantize()
        if name == "w":  # of a Gemm that was transposed
            numbers = numbers.T
        np.testing.assert_array_equal(numbers, as_before)
        assert found.granularity == before[name].granularity and found.bits == before[name].bits


def test_qdq_again_after_import_is_the_same_model() -> None:
    _, model, _ = lowered("int4", "{block_size=16}", "fast")
    _, context, _ = apply("import-qdq,insert-qdq{storage=packed products=fast}", model)
    for name, exact in run_model(model, FEED).items():
        np.testing.assert_array_equal(run_model(artifact(context, "qdq"), FEED)[name], exact)


def test_float_again() -> None:
    _, model, simulation = lowered("int4", "{block_size=16}")
    found = qc.compile(model, "dequantize", allow_unquantized=True).float_model
    for name, exact in run_model(simulation, FEED).items():
        np.testing.assert_allclose(run_model(found, FEED)[name], exact, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_written_so_stays_standard() -> None:
    model = parse("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[4, 32] x) => (float[32, 8] y, float[4, 8] z, float[4, 8] s)
    <float[4, 8] w, float[32, 8] v, float[1, 8] b, float[32, 8] u> {
        y = Gemm<transA = 1>(x, w)
        z = Gemm(x, v, b)
        s = Gemm<alpha = 0.5>(x, u)
    }""")
    _, context, _ = apply(PASSES.format("int4", "", "fast"), model)
    lowered_model = artifact(context, "qdq")
    assert op_types(lowered_model)["Gemm"] == 3
    (feed,) = random_feeds(model, 1)
    for name, exact in run_model(artifact(context, "simulation"), feed).items():
        np.testing.assert_allclose(run_model(lowered_model, feed)[name], exact, rtol=1e-4, atol=1e-4)
