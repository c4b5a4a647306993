"""Weights in integers beside activations in float."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from support.models import parse, random_feeds
from support.pipelines import apply, artifact, run_model

import qc
from qc.ir.facts.weights import weights_of

PLACE = "insert-quantizers{{activation=float weight={}}},annotate-per-channel{}"

# An embedding, and a classifier by the same matrix, as language models have them.
TIED = """<ir_version: 10, opset_import: ["" : 21]>
tied (int64[2, 3] ids) => (float[2, 3, 48] y) <float[48, 32] table, float[32, 32] w, float[32] b> {
    a = Gather(table, ids)
    m = MatMul(a, w)
    h = Add(m, b)
    back = Transpose<perm = [1, 0]>(table)
    y = MatMul(h, back)
}"""
KINDS = """<ir_version: 10, opset_import: ["" : 21]>
kinds (float[2, 4, 6, 6] x) => (float[2, 5] y, float[1, 2, 8] h)
<float[8, 4, 3, 3] wc, float[8] bc, float[288, 32] wg, float[32] bg, float[32, 5] wm, float[6, 4] small,
 float[1, 24, 5] wr, float[1, 24, 8] rr> {
    c = Conv<pads = [1, 1, 1, 1]>(x, wc, bc)
    r = Relu(c)
    f = Flatten(r)
    g = Gemm(f, wg, bg)
    y = MatMul(g, wm)
    s = Unsqueeze(y, zero)
    none, h = GRU<hidden_size = 8>(s, wr, rr)
}"""


def kinds() -> ModelProto:
    model = parse(KINDS)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "zero"))
    return model


def test_weights_have_grids_and_nothing_else_has() -> None:
    ir, _, _ = apply(PLACE.format("int4", ""), kinds())
    assert {site.value.name for site in ir.quant.sites()} == {"wc", "wg", "wm", "wr", "rr"}
    specs = {site.value.name: str(ir.quant.get(site).spec) for site in ir.quant.sites()}
    assert specs["wc"] == "int4 symmetric channel(0)"
    assert specs["wr"] == "int8 symmetric narrow channel(1)"  # for which the target has no kernel of 4 bits
    values = {value.name: value for value in ir.graph.values()}
    assert (
        ir.quant.why_not(values["g"])
        == "Gemm of 'g' has a grid for its weights alone: activations stay float"
    )
    assert ir.quant.why_not(values["r"]) == "Relu of 'r' runs in float: activations stay float"


@pytest.mark.parametrize("options", ["", "{block_size=16}"])
def test_tied_embeddings_stay_tied(options: str) -> None:
    model = parse(TIED)
    passes = f"{PLACE.format('int4', options)},calibrate{{weights=mse}},to-simulation"
    ir, context, _ = apply(f"{passes},insert-qdq{{storage=packed products=standard}}", model)
    (table,) = {ir.quant.get(site) for site in ir.quant.sites() if site.value.name == "table"}
    assert str(table.spec.granularity) == ("block(1,16)" if options else "channel(0)")
    lowered = artifact(context, "qdq")
    stored = {tensor.name: tensor for tensor in lowered.graph.initializer}
    assert [name for name in stored if "table" in name and "quantized" in name] == ["table_quantized"]
    assert stored["table_quantized"].data_type == TensorProto.INT4
    feed = {"ids": np.array([[0, 5, 47], [1, 1, 30]])}
    exact = run_model(artifact(context, "simulation"), feed)["y"]
    np.testing.assert_allclose(run_model(lowered, feed)["y"], exact, rtol=1e-4, atol=1e-4)


def test_a_small_table_stays_float() -> None:
    """One of positions or of rotations: its errors are in all that follows, and there is nothing to save."""
    model = parse("""<ir_version: 10, opset_import: ["" : 21]>
    g (int64[3] ids, float[3, 64] x) => (float[3, 64] y)
    <float[4, 64] positions, float[64, 64] w, float[64, 300] v> {
        p = Gather(positions, ids)
        a = Add(p, x)
        m = MatMul(a, w)
        n = MatMul(m, v)
        r = Relu(n)
        y = Add(m, a)
    }""")
    ir, _, _ = apply(PLACE.format("int8", ""), model)
    assert {site.value.name for site in ir.quant.sites()} == {"w", "v"}


def test_a_matrix_that_is_moved_on_a_grid_keeps_one_scale() -> None:
    """Rows that are looked up have one grid if they are activations, and so has what they come from."""
    model = parse("""<ir_version: 10, opset_import: ["" : 21]>
    g (int64[3] ids) => (float[3, 8] y) <float[4, 8] table, float[8, 8] w> {
        a = Gather(table, ids)
        y = MatMul(a, w)
    }""")
    rules = "set-precision{rules=['tensor:table=uint8']}"
    ir, _, _ = apply(f"insert-quantizers,{rules},annotate-per-channel", model, "npu")
    specs = {site.value.name: str(ir.quant.get(site).spec) for site in ir.quant.sites()}
    assert specs["table"] == "uint8 asymmetric" and specs["w"].endswith("channel(1)")


@pytest.mark.parametrize("pipeline", ["w8", "w4", "w4-block32", "w4-block128"])
def test_no_data_is_needed(pipeline: str) -> None:
    model = parse(TIED)
    compiled = qc.compile(model, pipeline, threads=1)
    assert any("needs data to choose others by" in note for note in compiled.notes)
    bits = {weight.bits for weight in compiled.weights.values()}
    assert bits == {8 if pipeline == "w8" else 4}
    feed = {"ids": np.array([[0, 5, 47], [1, 1, 30]])}
    exact, found = (run_model(one, feed)["y"] for one in (model, compiled.model))
    signal = 20 * np.log10(np.linalg.norm(exact) / np.linalg.norm(exact - found))
    assert signal > (35 if pipeline == "w8" else 12)


def test_data_choose_better_codes() -> None:
    model = parse(TIED)
    rng = np.random.default_rng(0)
    feeds = [{"ids": rng.integers(0, 48, (2, 3))} for _ in range(40)]
    errors = []
    for data in (None, feeds):
        compiled = qc.compile(model, "w4-block32", data=data, threads=1)
        runs = [(run_model(model, feed)["y"], run_model(compiled.model, feed)["y"]) for feed in feeds[:10]]
        errors.append(sum(float(((exact - found) ** 2).sum()) for exact, found in runs))
    assert errors[1] < errors[0]


def test_every_kind_comes_close() -> None:
    model = kinds()
    compiled = qc.compile(model, "w8", threads=1)
    (feed,) = random_feeds(model, 1)
    for name, exact in run_model(model, feed).items():
        np.testing.assert_allclose(run_model(compiled.model, feed)[name], exact, rtol=0.1, atol=0.1)
    assert set(weights_of(compiled.ir)) == {"wc", "wg", "wm", "wr", "rr"}


FUSED = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
g (float[2, 16, 48] x) => (float[2, 16, N] y)"""


@pytest.mark.parametrize("pipeline", ["w8", "w4", "w4-block32", "w8a8-dynamic"])
@pytest.mark.parametrize(
    ("weights", "body"),
    [
        ("float[48, 4, 16] w", 'y = Einsum<equation = "abc,cde->abde">(x, w)'),
        ("float[24, 16] w", 'y = Einsum<equation = "ab,cbd->cad">(w, x)'),
        ("float[24, 16] w", "y = MatMul(w, x)"),  # as Mamba makes its steps
        ("float[48, 32] w", "y = com.microsoft.FusedMatMul<alpha = 0.5>(x, w)"),
        ("float[48, 144] w, float[144] b", "y = com.microsoft.Attention<num_heads = 3>(x, w, b)"),
    ],
)
def test_weights_of_ops_without_integers_are_those_of_products(
    pipeline: str, weights: str, body: str
) -> None:
    kind = FUSED.replace("16, N]", "16, 4, 16]") if "abde" in body else FUSED
    compiled = qc.compile(parse(f"{kind} <{weights}> {{ {body} }}"), pipeline, threads=1)
    assert {weight.bits for weight in compiled.weights.values()} == {8 if "8" in pipeline else 4}


def test_other_ops_stay_as_they_are_beside_activations_in_float() -> None:
    model = parse(
        f"{FUSED} <float[48, 48] w, float[16, 48] s, float[48] g> {{"
        " m = MatMul(x, w) p = PRelu(m, s) y = com.microsoft.SkipLayerNormalization(p, x, g) }"
    )
    made = [node.op_type for node in qc.compile(model, "w8", threads=1).model.graph.node]
    assert "PRelu" in made and "SkipLayerNormalization" in made


def test_what_was_optimized_for_one_processor_is_told() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17, "com.microsoft.nchwc" : 1]>
    g (float[1, 16, 4, 4] x) => (float[1, 16, 4, 48] y) <float[4, 48] w> {
        b = com.microsoft.nchwc.ReorderInput(x)
        r = com.microsoft.nchwc.ReorderOutput<channels = 16>(b)
        y = MatMul(r, w)
    }""")
    context = apply(PLACE.format("int8", ""), model, "ort-cpu")[1]
    (note,) = (note for note in context.notes if "one kind of processor" in note)
    assert note.startswith("2 ops of") and "ORT_ENABLE_EXTENDED" in note
