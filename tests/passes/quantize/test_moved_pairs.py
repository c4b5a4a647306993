"""OpenVINO sees through what moves data, and multiplies data by data only without zero points."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from onnx.helper import get_node_attr_value
from support.machine import needs_exact_sums
from support.models import parse, random_feeds
from support.pipelines import PLACE, QUANTIZE, apply, artifact

import qc
from qc.ir import lift
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.passes.conformance import Violation, violations
from qc.passes.framework.target import load_target
from qc.runtime import open_session, run_session
from qc.runtime.devices.device import version_of
from qc.runtime.devices.known import DEVICES

# Three products from one, cut apart as exporters do it: all of them have one grid.
ATTENTION = """<ir_version: 9, opset_import: ["" : OPSET]>
g (float[1, 16, 32] x) => (float[1, 16, 32] y)
<float[32, 96] qkv, float[32, 32] out, int64[5] heads = {1, 16, 3, 4, 8}, int64[1] first = {0},
 int64[3] joined = {1, 16, 32}> {
    a = MatMul(x, qkv)
    r = Reshape(a, heads)
    t = Transpose<perm = [2, 0, 3, 1, 4]>(r)
    q3, k3, v3 = Split<axis = 0SPLIT>(t)
    q = Squeeze(q3, first)
    k = Squeeze(k3, first)
    v = Squeeze(v3, first)
    kt = Transpose<perm = [0, 1, 3, 2]>(k)
    s = MatMul(q, kt)
    w = Softmax(s)
    m = MatMul(w, v)
    mt = Transpose<perm = [0, 2, 1, 3]>(m)
    j = Reshape(mt, joined)
    y = MatMul(j, out)
}"""
POOLED = """g (float[1, 4, 8, 8] x) => (float[1, 8, 4, 4] y) <float[4, 4, 3, 3] w, float[8, 4, 1, 1] v> {
    c = Conv<pads = [1, 1, 1, 1]>(x, w)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
    y = Conv(p, v)
}"""
# ONNX Runtime makes each product with its bias a Gemm, with a Reshape on both sides of it.
PROJECTED = """<ir_version: 9, opset_import: ["" : OPSET]>
g (float[1, 4, 32] x) => (float[1, 4, 8] y)
<float[32, 16] w, float[16] b, float[16, 8] v, float[8] c> {
    m = MatMul(x, w)
    a = Add(m, b)
    s = Sigmoid(a)
    n = MatMul(s, v)
    y = Add(n, c)
}"""


def attention(opset: int) -> ModelProto:
    outputs = ", num_outputs = 3" if opset >= 18 else ""
    return parse(ATTENTION.replace("OPSET", str(opset)).replace("SPLIT", outputs))


def lowered(model: ModelProto, target: str = "openvino", place: str = PLACE) -> ModelProto:
    _, context, _ = apply(
        f"{QUANTIZE.replace(PLACE, place)},insert-qdq", model, target, random_feeds(model, 4)
    )
    return artifact(context, "qdq")


def rounded_by(model: ModelProto) -> set[str]:
    """What makes the tensors that are rounded."""
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    return {makers.get(n.input[0], "input") for n in model.graph.node if n.op_type == "QuantizeLinear"}


def broken(model: ModelProto) -> list[Violation]:
    ir, target = lift(model), load_target("openvino")
    run_pipeline(parse_pipeline("import-qdq,match-supergroups"), ir, PassContext(target=target))
    return violations(ir, target)


def test_nothing_is_rounded_again_behind_what_moves_it() -> None:
    model = attention(17)
    made = lowered(model)
    assert rounded_by(made) == {"input", "MatMul", "Softmax"}
    assert broken(made) == []
    (feed,) = random_feeds(model, 1, seed=1)
    _, context, _ = apply("import-qdq,insert-qdq", made, "npu")  # which wants a pair behind every op
    again = artifact(context, "qdq")
    assert rounded_by(again) == rounded_by(made)
    _, context, _ = apply("import-qdq,to-simulation", made, "openvino")
    simulated = open_session(artifact(context, "simulation"))
    exact = run_session(open_session(made, optimize=False), feed)[0]
    assert np.abs(run_session(simulated, feed)[0] - exact).max() < 1e-5


def test_a_grid_is_restored_behind_what_moves_it_and_left_out_again() -> None:
    made = lowered(attention(17))
    ir = lift(made)
    run_pipeline(parse_pipeline("import-qdq"), ir, PassContext(target=load_target("openvino")))
    assert all(ir.quant.of_value(value) for value in ir.graph.values() if value.name in {"r", "t", "kt", "j"})
    _, context, _ = apply("import-qdq,insert-qdq", made, "openvino")
    assert rounded_by(artifact(context, "qdq")) == rounded_by(made)


@needs_exact_sums
def test_signed_codes_of_newer_opsets_have_no_zero_point_as_onnx_runtime_fails_otherwise() -> None:
    model = attention(21)
    made = lowered(model)
    assert rounded_by(made) == {"input", "MatMul", "Softmax"}
    assert broken(made) == []
    signed = [n for n in made.graph.node if n.op_type == "QuantizeLinear" and len(n.input) == 2]
    assert signed and all(get_node_attr_value(n, "output_dtype") == TensorProto.INT8 for n in signed)
    (feed,) = random_feeds(model, 1, seed=1)
    _, context, _ = apply("import-qdq,to-simulation", made, "openvino")
    simulated = run_session(open_session(artifact(context, "simulation")), feed)[0]
    for optimize in (False, True):
        assert np.abs(run_session(open_session(made, optimize=optimize), feed)[0] - simulated).max() < 0.05


def test_signed_codes_with_a_zero_point_are_rounded_again_in_newer_opsets() -> None:
    model = parse(POOLED)
    made = lowered(model, place=PLACE.replace("quantizers", "quantizers{activation=int8}", 1))
    assert "MaxPool" in rounded_by(made)
    run_session(open_session(made), random_feeds(model, 1)[0])


@pytest.mark.parametrize("opset", [19, 21])
@pytest.mark.parametrize(
    ("target", "activation"), [("tensorrt", "auto"), ("ort-cpu", "int8"), ("ort-cpu-arm", "auto")]
)
def test_onnx_runtime_opens_signed_codes_in_front_of_a_product_with_a_bias(
    target: str, activation: str, opset: int
) -> None:
    model = parse(PROJECTED.replace("OPSET", str(opset)))
    place = PLACE if activation == "auto" else PLACE.replace("quantizers", "quantizers{activation=int8}", 1)
    made = lowered(model, target, place)
    (feed,) = random_feeds(model, 1, seed=1)
    exact = run_session(open_session(made, optimize=False), feed)[0]
    assert np.abs(run_session(open_session(made), feed)[0] - exact).max() < 0.05


@pytest.mark.parametrize(
    "op",
    [
        "p = GlobalAveragePool(c)",
        "p = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(c)",
        "p = Concat<axis = 1>(c, c)",
    ],
)
def test_onnx_runtime_opens_signed_codes_that_are_pooled_or_joined(op: str) -> None:
    """It refuses them without a zero point."""
    model = parse(f"""g (float[1, 4, 8, 8] x) => (float[A, B, C, D] y)
        <float[4, 4, 1, 1] w, float[8, {8 if "Concat" in op else 4}, 1, 1] v> {{
            c = Conv(x, w)  {op}  y = Conv(p, v)
        }}""")
    open_session(lowered(model, "tensorrt", PLACE))


def test_products_of_data_have_no_zero_points() -> None:
    ir, _, _ = apply(QUANTIZE, attention(17), "openvino", random_feeds(attention(17), 4))
    held = {value.name: ir.quant.of_value(value) for value in ir.graph.values()}
    assert {name for name, found in held.items() if found and found.spec.symmetric} >= set("artqkv") | {"kt"}
    assert all(str(found.spec.format) == "uint8" for name in "xwm" if (found := held[name]))


def test_a_zero_point_that_openvino_would_multiply_in_float_is_named() -> None:
    model = lowered(attention(17), "ort-cpu")
    told = {one.text for one in broken(model) if one.rule == "symmetric"}
    assert told == {f"the zero point of '{name}' is not 128" for name in ("q", "kt")}


@pytest.mark.parametrize("model", [attention(17), attention(21), parse(POOLED)], ids=["17", "21", "pool"])
def test_openvino_multiplies_it_all_in_integers(model: ModelProto) -> None:
    if version_of(DEVICES["openvino"]) is None:
        pytest.skip("openvino is not installed")
    made = lowered(model)
    onnx.checker.check_model(made, full_check=True)
    found = qc.check(made, "openvino", random_feeds(model, 1))
    runs = {op.name: op.runs for op in found.ops}
    # OpenVINO does not tell what runs the last op, which has no bias, nor what it removed.
    wanted = [name for name in runs if name in {"Conv of 'c'", "MaxPool of 'p'", "MatMul of 's'"}]
    assert found.executed and wanted and all(runs[name] == "integer" for name in wanted), runs
