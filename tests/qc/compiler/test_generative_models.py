"""What writers of language models leave in them: ops of ONNX Runtime, tied tables, caches and branches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from support.models import parse, random_feeds
from support.pipelines import run_model

import qc as package
from qc.ir import lift
from qc.ir.errors import ModelError

NORMAL = """<ir_version: 8, opset_import: ["" : {opset}]>
g (float[2, N, 8] x) => (float[2, N, 4] y) <float[8] g, float[8] b, float[8, 4] w> {{
    n = {norm}
    y = MatMul(n, w)
}}"""
RMS = "SimplifiedLayerNormalization<axis = -1, epsilon = 0.01>(x, g)"
OLD = "LayerNormalization<axis = -1, epsilon = 0.01>(x, g, b)"


@pytest.mark.parametrize("target", ["ort-cpu", "openvino", "npu"])
@pytest.mark.parametrize(("opset", "norm"), [(14, OLD), (14, RMS), (22, RMS), (23, RMS)])
def test_normalizations_that_only_onnx_runtime_has_in_onnx_s_domain(
    opset: int, norm: str, target: str
) -> None:
    model = parse(NORMAL.format(opset=opset, norm=norm))
    made = package.compile(model, "w8a8", data=random_feeds(model, 4, size=3), target=target, threads=1)
    types = {node.op_type for node in made.float_model.graph.node}
    assert made.coverage.multiplied.quantized == made.coverage.multiplied.total
    assert ("SimplifiedLayerNormalization" in types) == (norm == RMS and target == "ort-cpu")
    (feed,) = random_feeds(model, 1, size=3)
    np.testing.assert_allclose(run_model(made.model, feed)["y"], run_model(model, feed)["y"], atol=0.15)


def test_they_are_of_the_newest_opset_on_the_htp() -> None:
    model = parse(NORMAL.format(opset=21, norm=RMS))
    data = random_feeds(model, 4, size=3)
    made = package.compile(model, "w8a8", data=data, target="qnn-htp", fix_shapes=("N=3",))
    assert "RMSNormalization" in {node.op_type for node in made.model.graph.node}


def test_an_op_that_nobody_knows_is_refused_all_the_same() -> None:
    with pytest.raises(ModelError, match="No Op registered for Unheard"):
        package.read_model(parse(NORMAL.format(opset=21, norm="Unheard(x, g)")))


# Keys in one branch, and what a Reshape asks for in the other, have one name.
BRANCHES = """<ir_version: 8, opset_import: ["" : 18]>
g (bool first, float[B, N, 8] x, float[B, 2, P, 4] past) => (float[B, 2, M, 4] y, int64[4] lengths)
<int64[1] heads = {2}, int64[1] width = {4}, int64[1] rest = {-1}, int64 zero = {0}, int64[1] none = {0}> {
    y, lengths = If (first) <
        then_branch = no_past () => (float[B, 2, M, 4] keys, int64[4] size) {
            whole = Shape(x)
            batch = Gather(whole, none)
            asked = Concat<axis = 0>(batch, rest, heads, width)
            apart = Reshape(x, asked)
            keys = Transpose<perm = [0, 2, 1, 3]>(apart)
            size = Shape(keys)
        },
        else_branch = with_past () => (float[B, 2, M, 4] grown, int64[4] size) {
            whole = Shape(past)
            batch = Gather(whole, none)
            asked = Concat<axis = 0>(batch, heads, heads, width)
            zeros = ConstantOfShape(asked)
            grown = Concat<axis = 2>(past, zeros)
            size = Shape(grown)
        }
    >
}"""


def test_tensors_of_one_name_in_two_branches_have_shapes_of_their_own() -> None:
    model = parse(BRANCHES)
    made = package.compile(model, "fold-constants", allow_unquantized=True).float_model
    feed = {
        "x": np.ones((1, 5, 8), np.float32),
        "past": np.ones((1, 2, 3, 4), np.float32),
    }
    for first in (True, False):
        given = feed | {"first": np.array(first)}
        found, wanted = run_model(made, given), run_model(model, given)
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)


TIED = """<ir_version: 10, opset_import: ["" : 21]>
g (int64[1, N] ids) => (float[1, N, 6000] y) <float[64, 6000] head, float[64, 64] w> {
    table = Transpose<perm = [1, 0]>(head)
    rows = Gather(table, ids)
    m = MatMul(rows, w)
    y = MatMul(m, head)
}"""


def tied() -> tuple[ModelProto, list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(3)
    return parse(TIED), [{"ids": rng.integers(0, 6000, (1, 7))} for _ in range(4)]


@pytest.mark.parametrize("pipeline", ["w8a8", "w8", "w8a8-dynamic"])
def test_a_table_is_not_looked_up_through_a_transpose(pipeline: str) -> None:
    """A runtime would dequantize and transpose all of it in every run."""
    model, data = tied()
    made = package.compile(model, pipeline, data=data, target="ort-cpu", threads=1)
    assert "Transpose" not in {node.op_type for node in made.model.graph.node}
    assert made.model.ByteSize() < 0.6 * model.ByteSize()
    found, wanted = run_model(made.model, data[0])["y"], run_model(model, data[0])["y"]
    np.testing.assert_allclose(found, wanted, atol=0.04 * np.abs(wanted).max())


def test_the_verdict_tells_what_runs_in_integers_of_a_model_with_weights_in_other_files(
    tmp_path: Path,
) -> None:
    model, data = tied()
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="data", size_threshold=0)
    made = package.compile(tmp_path / "m.onnx", data=data, target="ort-cpu", threads=1)
    verdict = package.measure_verdict(made, data)
    assert verdict.check is not None and {op.op_type for op in verdict.check.ops if op.runs == "integer"}


def test_codes_of_a_product_that_are_a_table_as_well_become_one_float_table() -> None:
    """The builder of ONNX Runtime writes tied embeddings so."""
    rng = np.random.default_rng(0)
    model = parse("""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (int64[1, 3] ids) => (float[1, 3, 64] y)
    <uint8[64, 2, 8] codes, float[64, 2] scales, int64[2] shape = {64, 16}> {
        table = Reshape(codes, shape)
        rows = com.microsoft.GatherBlockQuantized<bits = 4, block_size = 16, quantize_axis = 1>
            (table, ids, scales)
        y = com.microsoft.MatMulNBits<K = 32, N = 64, bits = 4, block_size = 16>(rows, codes, scales)
    }""")
    for tensor in model.graph.initializer:
        if tensor.name == "codes":
            tensor.raw_data = rng.integers(0, 256, (64, 2, 8), np.uint8).tobytes()
            tensor.data_type = TensorProto.UINT8
            del tensor.int32_data[:]
    made = package.compile(model, "dequantize", allow_unquantized=True).float_model
    assert {node.op_type for node in made.graph.node} == {"Gather", "MatMul"}
    feed = {"ids": np.array([[0, 5, 63]])}
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-3, atol=1e-3)


def test_the_shape_of_attention_with_a_cache_is_known() -> None:
    model = parse("""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[B, N, 32] q, float[B, N, 16] k, float[B, 1, P, 16] past, int32[B] last, int32 total)
      => (float[B, N, 32] y)
    { a, c, d = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1>
        (q, k, k, past, past, last, total)
      y = Neg(a) }""")
    assert next(v for v in lift(model).graph.values() if v.name == "a").type.shape == ("B", "N", 32)


@pytest.mark.parametrize(("pipeline", "kind"), [("w8", "MatMulNBits"), ("w8a8-dynamic", "MatMulInteger")])
def test_branches_multiply_by_codes_of_a_matrix_that_is_stored_once(pipeline: str, kind: str) -> None:
    """A merged decoder would dequantize all weights of both branches in every run."""
    model = parse("""<ir_version: 10, opset_import: ["" : 21]>
    g (bool first, float[2, 256] x) => (float[2, 256] y) <float[256, 256] w> {
        y = If (first) <
            then_branch = one () => (float[2, 256] a) { a = MatMul(x, w) },
            else_branch = other () => (float[2, 256] b) { n = Neg(x)  b = MatMul(n, w) }
        >
    }""")
    made = package.compile(model, pipeline, target="ort-cpu").model
    assert {node.op_type for node in made.graph.node} == {"If"}
    for branch in made.graph.node[0].attribute:
        assert kind in {node.op_type for node in branch.g.node}
    assert made.ByteSize() < 0.3 * model.ByteSize()
    x = np.random.default_rng(0).normal(size=(2, 256)).astype(np.float32)
    for first in (True, False):
        found, wanted = (run_model(one, {"x": x, "first": np.array(first)})["y"] for one in (made, model))
        np.testing.assert_allclose(found, wanted, atol=0.03 * np.abs(wanted).max())
    if pipeline == "w8":
        again = package.compile(made, "import-qdq, insert-qdq{products=exact}", target="ort-cpu").model
        assert {node.op_type for node in again.graph.node} <= {"If", "DequantizeLinear"}
