"""What qc lowers for a target meets its rules, and what was made for another target does not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds
from support.pipelines import PLACE, QUANTIZE, apply, artifact

from qc.ir.lift import lift
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.passes.conformance import Violation, violations
from qc.passes.target import load_target
from qc.runtime import open_session, run_session

TARGETS = ["ort-cpu", "ort-cpu-avx2", "ort-cpu-arm", "tensorrt", "openvino", "qnn-htp", "npu"]
CONV_NET = """
g (float[1, 3, 8, 8] x) => (float[1, 5] y)
<float[4, 3, 3, 3] w1, float[4] b1, float[4, 4, 1, 1] w2, float[8, 4, 1, 1] w3, float[5, 8] w4, float[5] b4> {
    c1 = Conv<pads=[1, 1, 1, 1]>(x, w1, b1)
    r1 = Relu(c1)
    m = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(r1)
    c2 = Conv(m, w2)
    sum = Add(c2, m)
    r2 = Relu(sum)
    c3 = Conv(r2, w3)
    p = GlobalAveragePool(c3)
    f = Flatten(p)
    y = Gemm<transB=1>(f, w4, b4)
}"""
TRANSFORMER = """
g (float[1, 6, 8] x) => (float[1, 6, 8] y)
<float[8] g, float[8] b, float[8, 8] wq, float[8, 8] wk, float[8, 8] wv, float[8, 8] wo, float[8] bo> {
    n = LayerNormalization(x, g, b)
    q = MatMul(n, wq)
    k = MatMul(n, wk)
    v = MatMul(n, wv)
    t = Transpose<perm=[0, 2, 1]>(k)
    s = MatMul(q, t)
    a = Softmax(s)
    m = MatMul(a, v)
    o = MatMul(m, wo)
    ob = Add(o, bo)
    y = Add(x, ob)
}"""


def lowered(text: str, target: str, place: str = PLACE) -> ModelProto:
    model = parse(text)
    pipeline = QUANTIZE.replace(PLACE, place)
    _, context, _ = apply(f"{pipeline},insert-qdq", model, target, random_feeds(model))
    return artifact(context, "qdq")


def broken(model: ModelProto, target: str) -> list[Violation]:
    """The rules of a target that a QDQ model breaks."""
    ir, chosen = lift(model), load_target(target)
    run_pipeline(parse_pipeline("import-qdq,match-supergroups"), ir, PassContext(target=chosen))
    return violations(ir, chosen)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", [CONV_NET, TRANSFORMER], ids=["conv", "transformer"])
def test_what_qc_makes_for_a_target_meets_its_rules_and_runs(text: str, target: str) -> None:
    model = lowered(text, target)
    onnx.checker.check_model(model, full_check=True)
    assert broken(model, target) == []
    feed = random_feeds(parse(text), 1)[0]
    expected = run_session(open_session(parse(text)), feed)[0]
    # On x86 ONNX Runtime 1.31 cannot load every model of signed activations with its optimizations.
    unsigned = load_target(target).activation.dtype == "uint8"
    found = run_session(open_session(model, optimize=unsigned), feed)[0]
    assert np.abs(found - expected).max() <= 0.1 * np.abs(expected).max()


def test_the_conventions_of_tensorrt() -> None:
    model = lowered(CONV_NET, "tensorrt")
    zero_points = [t for t in model.graph.initializer if t.name.endswith("_zero_point")]
    assert zero_points and not any(onnx.numpy_helper.to_array(zero_point).any() for zero_point in zero_points)
    producers = {name: node for node in model.graph.node for name in node.output}
    conv = next(node for node in model.graph.node if node.op_type == "Conv" and node.output[0] == "c1")
    assert "b1" in conv.input[2]
    assert conv.input[2] not in producers
    add = next(node for node in model.graph.node if node.op_type == "Add")
    assert [producers[name].op_type for name in add.input] == ["Conv", "DequantizeLinear"]


def test_weights_without_vnni_have_seven_bits() -> None:
    codes = [
        onnx.numpy_helper.to_array(tensor)
        for tensor in lowered(CONV_NET, "ort-cpu-avx2").graph.initializer
        if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) > 1
    ]
    assert len(codes) == 4
    assert max(int(np.abs(code.astype(int)).max()) for code in codes) == 63


def test_sixteen_bit_softmax_of_the_htp_has_its_fixed_scale() -> None:
    place = PLACE.replace("insert-quantizers", "insert-quantizers{activation=uint16}")
    model = lowered(TRANSFORMER, "qnn-htp", place)
    scale = next(tensor for tensor in model.graph.initializer if tensor.name == "a_scale")
    assert onnx.numpy_helper.to_array(scale) == np.float32(1 / 65536)
    assert broken(model, "qnn-htp") == []
    scale.CopyFrom(onnx.numpy_helper.from_array(np.float32(1 / 65535), "a_scale"))
    assert {one.rule for one in broken(model, "qnn-htp")} == {"fixed range"}


@pytest.mark.parametrize(
    ("text", "made_for", "checked_for", "rule", "said"),
    [
        (CONV_NET, "ort-cpu", "tensorrt", "type", "'x' is quantized to uint8; tensorrt takes int8 or float8"),
        (CONV_NET, "ort-cpu", "tensorrt", "quantized bias", "its bias 'b1' is quantized; it must be float"),
        (CONV_NET, "ort-cpu-arm", "tensorrt", "symmetric", "the zero point of 'x' is not 0"),
        (
            CONV_NET,
            "ort-cpu-arm",
            "tensorrt",
            "placement",
            "'c2' is quantized, so what makes it",
        ),
        (CONV_NET, "ort-cpu", "ort-cpu-avx2", "type", "'w1' is quantized to int8; ort-cpu-avx2 takes int7"),
        (CONV_NET, "tensorrt", "ort-cpu", "float bias", "its bias 'b1' is not quantized to int32"),
        (CONV_NET, "tensorrt", "ort-cpu", "no output quantizer", "its result 'c2' is not quantized"),
        (CONV_NET, "ort-cpu", "qnn-htp", "no output quantizer", "its result 'c1' is not quantized"),
        (CONV_NET, "ort-cpu", "qnn-htp", "granularity", "has a scale for every channel; Gemm takes one"),
        (CONV_NET.replace("[1, 3, 8", "[N, 3, 8"), "qnn-htp", "qnn-htp", "static shapes", "dimension 'N'"),
    ],
)
def test_what_was_made_for_another_target_is_named(
    text: str, made_for: str, checked_for: str, rule: str, said: str
) -> None:
    found = broken(lowered(text, made_for), checked_for)
    assert any(one.rule == rule and said in one.text for one in found), found


def test_an_op_written_out_in_others_is_named() -> None:
    gelu = """g (float[2, 4] x) => (float[2, 4] y)
    <float[4, 4] w, float root = {1.4142135}, float one = {1.0}, float half = {0.5}> {
        h = MatMul(x, w)
        d = Div(h, root)
        e = Erf(d)
        p = Add(e, one)
        m = Mul(h, p)
        y = Mul(m, half)
    }"""
    text = next(one.text for one in broken(lowered(gelu, "qnn-htp"), "qnn-htp") if one.rule == "single op")
    assert text == "it is written out in 5 ops; qnn-htp runs it only as Gelu"


def test_a_pool_with_dilations_stays_float_on_ort() -> None:
    text = CONV_NET.replace("MaxPool<kernel", "AveragePool<dilations=[1, 1], kernel")
    model = lowered(text, "ort-cpu")
    assert np.isfinite(run_session(open_session(model), random_feeds(parse(text), 1)[0])[0]).all()
    pool = next(node for node in model.graph.node if node.op_type == "AveragePool")
    assert pool.output[0] == "m" and any(node.input[0] == "m" for node in model.graph.node)


def test_a_branch_that_several_convs_end_in_leaves_one_of_them_float() -> None:
    text = CONV_NET.replace("sum = Add(c2, m)", "c4 = Conv(m, w2)  sum = Add(c2, c4)")
    model = lowered(text, "tensorrt")
    producers = {name: node for node in model.graph.node for name in node.output}
    add = next(node for node in model.graph.node if node.op_type == "Add")
    assert sorted(producers[name].op_type for name in add.input) == ["Conv", "DequantizeLinear"]
    assert broken(model, "tensorrt") == []
