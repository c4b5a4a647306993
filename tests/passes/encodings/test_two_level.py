"""Weights with two-level blocks (LPBQ), from the option to every form that a model is written in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.folders import AIMET
from support.models import parse, random_feeds
from support.pipelines import apply, artifact, run_model

import qc
from qc.ir import lift
from qc.ir.errors import UsageError
from qc.ir.facts.weights import weights_of
from qc.ir.model import Model
from qc.ir.onnx.save import serialize
from qc.ir.quant.spec import Encoding, QuantSpec, TwoLevelBlock
from qc.ir.text import parse_model, print_parts
from qc.passes import parse_pipeline

BLOCKS = "insert-quantizers{weight=int4},annotate-per-channel{block_size=4 scale_bits=4}"
MODEL = """g (float[2, 8, 2, 2] x) => (float[2, 2, 2, 6] y) <float[8, 8, 1, 1] k, float[8] b, float[8, 6] w> {
    c = Conv(x, k, b)
    t = Transpose<perm = [0, 2, 3, 1]>(c)
    y = MatMul(t, w)
}"""


@pytest.fixture
def model() -> ModelProto:
    return parse(MODEL)


def grids(model: Model) -> dict[str, Encoding]:
    return {name: held.encoding for name, held in weights_of(model).items() if name in ("k", "w")}


@pytest.mark.parametrize("text", [f"configure-quantizers{{weight=int4}},{BLOCKS.partition(',')[2]}"])
def test_integers_and_scales_are_those_of_aimet(text: str) -> None:
    source = onnx.load(AIMET / "model.onnx")
    feeds = [{"x": np.random.default_rng(i).normal(size=(1, 8, 2, 2)).astype("f")} for i in range(4)]
    pipeline = f"{text},calibrate-as-aimet,to-encodings"
    made = json.loads(str(apply(pipeline, source, "npu", feeds)[1].artifacts["encodings"].payload))
    wanted = json.loads((AIMET / "lpbq_1.0.0.encodings").read_text())
    listed, expected = (
        {entry["name"]: entry for entry in document["param_encodings"]} for document in (made, wanted)
    )
    assert list(listed) == ["w1", "w2"]
    for name, entry in listed.items():
        scales = [np.asarray(one[name].pop("scale"), np.float32) for one in (listed, expected)]
        np.testing.assert_array_equal(*scales)
        assert entry == expected[name]


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_scales_have_two_levels(bits: int) -> None:
    scale = np.random.default_rng(bits).uniform(0.001, 1, (6, 5))
    granularity = TwoLevelBlock(0, 4, bits)
    spec = QuantSpec.of("int4", symmetric=True, granularity=granularity)
    encoding = Encoding(spec, scale, np.zeros(scale.shape))
    integers, of_channel = granularity.levels(encoding.scale)
    assert of_channel.shape == (1, 5) and integers.min() >= 1
    assert (integers.max(axis=0) == 1 << bits).all()
    np.testing.assert_array_equal(encoding.scale, (integers * of_channel).astype(np.float32))
    assert np.all(np.abs(encoding.scale - scale) <= of_channel)
    assert Encoding(spec, encoding.scale, encoding.zero_point).equals(encoding)


def test_tiny_scales_have_two_levels() -> None:
    spec = QuantSpec.of("int4", symmetric=True, granularity=TwoLevelBlock(0, 4, 8))
    encoding = Encoding(spec, np.full((2, 1), 1e-45, np.float32), np.zeros((2, 1)))
    assert (encoding.scale > 0).all()


def test_every_form_says_the_same(model: ModelProto) -> None:
    feeds = random_feeds(model, 3)
    compiled, context, _ = apply(f"{BLOCKS},calibrate,to-simulation,insert-qdq", model, "npu", feeds)
    assert {str(one.spec.granularity) for one in grids(compiled).values()} == {
        "two-level(0,4,4)",
        "two-level(1,4,4)",
    }
    simulated, stored = (artifact(context, name) for name in ("simulation", "qdq"))
    expected = run_model(simulated, feeds[0])["y"]
    for optimize in (False, True):
        np.testing.assert_allclose(run_model(stored, feeds[0], optimize)["y"], expected, rtol=1e-5, atol=1e-5)
    assert [weight.granularity for weight in weights_of(compiled).values()].count("two-level") == 2


def test_a_qdq_model_comes_out_as_the_same_bytes(model: ModelProto) -> None:
    first = qc.compile(model, f"{BLOCKS},calibrate,insert-qdq", data=random_feeds(model, 3), target="npu")
    second = qc.compile(first.model, "import-qdq,insert-qdq", target="npu", allow_unquantized=True)
    assert serialize(second.model) == serialize(first.model)
    for name, encoding in grids(second.ir).items():
        assert isinstance(encoding.spec.granularity, TwoLevelBlock)
        np.testing.assert_array_equal(encoding.scale, grids(first.ir)[name].scale)
    assert "DequantizeLinear" not in [node.op_type for node in second.float_model.graph.node]


@pytest.mark.parametrize(
    ("integers", "kind"), [([3, 5, 9, 11], "block(0,2)"), ([16, 16, 4, 8], "two-level(0,2,4)")]
)
def test_a_qdq_model_of_others(integers: list[int], kind: str) -> None:
    """Two levels whose largest integers are no power of two are plain blocks here, with the same numbers."""
    text = f"""g (float[1, 4] x) => (float[1, 2] y)
    <int8[4, 2] q = {{1, -7, 3, 2, 7, -8, 1, 1}}, uint8[2, 2] i = {{{str(integers)[1:-1]}}},
     float[2] s = {{0.01, 0.03}}> {{
        scale = DequantizeLinear<axis = 1>(i, s)
        w = DequantizeLinear<axis = 0, block_size = 2>(q, scale)
        y = MatMul(x, w)
    }}"""
    source = parse(text)
    compiled, context, _ = apply("import-qdq,insert-qdq", source)
    encoding = next(q.encoding for q in compiled.quant.quantizers())
    assert encoding is not None
    assert str(encoding.spec.granularity) == kind
    np.testing.assert_allclose(encoding.scale, np.reshape(integers, (2, 2)) * [0.01, 0.03], rtol=1e-6)
    feed = random_feeds(source, 1)[0]
    given, made = (run_model(one, feed)["y"] for one in (source, artifact(context, "qdq")))
    np.testing.assert_array_equal(made, given)


def test_text_keeps_two_levels(model: ModelProto) -> None:
    compiled = apply(f"{BLOCKS},calibrate", model, "npu", random_feeds(model, 3))[0]
    printed = print_parts(compiled)
    assert "two-level(1,4,4)" in printed.text
    again = parse_model(printed.text, printed.left_out)
    assert print_parts(again).text == printed.text
    for name, encoding in grids(again).items():
        assert encoding.equals(grids(compiled)[name])


@pytest.mark.parametrize("version", ["1.0.0", "2.0.0", "2.1.0"])
def test_encodings_files_keep_two_levels(model: ModelProto, version: str, tmp_path: Path) -> None:
    pipeline = f"{BLOCKS},calibrate,to-encodings{{version={version}}}"
    compiled, context, _ = apply(pipeline, model, "npu", random_feeds(model, 3))
    file = tmp_path / "f.encodings"
    file.write_text(str(context.artifacts["encodings"].payload))
    again = apply(f"load-encodings{{file={file}}}", lift(model), "npu")[0]
    for name, encoding in grids(again).items():
        assert encoding.spec.granularity == grids(compiled)[name].spec.granularity
        np.testing.assert_array_equal(encoding.scale, grids(compiled)[name].scale)


def test_what_cannot_be() -> None:
    with pytest.raises(UsageError, match="give block_size too"):
        parse_pipeline("annotate-per-channel{scale_bits=4}")
    with pytest.raises(UsageError, match="scale_bits"):
        parse_pipeline("annotate-per-channel{block_size=4 scale_bits=9}")
