"""What qc lowers for a target meets its rules, and what was made for another target does not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds
from support.pipelines import PLACE, QUANTIZE, apply, artifact
from support.placement import placed, reason

import qc
from qc.ir import lift
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.passes.conformance import Violation, violations
from qc.passes.framework.target import load_target, target_names
from qc.runtime import open_session, run_session
from qc.runtime.execution.saturation import sums_saturate

TARGETS = target_names()
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
    opset = model.opset_import[0]
    opset.version = min(opset.version, load_target(target).models.latest_opset)
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
    saturates = sums_saturate() and not load_target(target).grids.most_pair_sum
    found = run_session(open_session(model, optimize=unsigned and not saturates), feed)[0]
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


def test_weights_for_openvino_without_vnni_have_seven_bits() -> None:
    codes = [
        onnx.numpy_helper.to_array(tensor)
        for tensor in lowered(CONV_NET, "openvino-avx2").graph.initializer
        if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) > 1
    ]
    assert len(codes) == 4
    assert max(int(np.abs(code.astype(int)).max()) for code in codes) == 64


def test_weights_of_seven_bits_have_a_scale_for_each_channel_as_those_of_eight() -> None:
    scales = [
        {one.name: one.dims for one in lowered(CONV_NET, target).graph.initializer if "_scale" in one.name}
        for target in ("openvino", "openvino-avx2")
    ]
    assert scales[0] == scales[1] and any(len(dims) == 1 for dims in scales[0].values())


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
        (
            CONV_NET,
            "ort-cpu",
            "ort-cpu-avx2",
            "saturation",
            "neighbouring codes of the weight 'w1' add up to 219; above 128 sums saturate on ort-cpu-avx2",
        ),
        (CONV_NET, "tensorrt", "ort-cpu", "float bias", "its bias 'b1' is not quantized to int32"),
        (CONV_NET, "tensorrt", "ort-cpu", "no output quantizer", "its result 'c2' is not quantized"),
        (CONV_NET, "ort-cpu", "qnn-htp", "no output quantizer", "its result 'c1' is not quantized"),
        (TRANSFORMER, "npu", "qnn-htp", "float input", "reads the weight 'g' in float"),
        (CONV_NET.replace("[1, 3, 8", "[N, 3, 8"), "qnn-htp", "qnn-htp", "static shapes", "dimension 'N'"),
    ],
)
def test_what_was_made_for_another_target_is_named(
    text: str, made_for: str, checked_for: str, rule: str, said: str
) -> None:
    found = broken(lowered(text, made_for), checked_for)
    assert any(one.rule == rule and said in one.text for one in found), found


def test_tensors_behind_onnx_runtimes_own_quantize_ops_are_judged() -> None:
    model = lowered(CONV_NET, "qnn-htp", PLACE.replace("quantizers", "quantizers{activation=uint16}", 1))
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.domain = "com.microsoft"
    del model.graph.value_info[:]
    model.opset_import.add(domain="com.microsoft", version=1)
    assert broken(model, "qnn-htp") == []
    assert broken(model, "tensorrt") != []


def test_a_bias_that_is_stored_in_float16_is_a_float_bias() -> None:
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 8, 8, 8] x) => (float[1, 8, 8, 8] y) <float[8, 8, 1, 1] w, float16[8] half> {
            b = Cast<to = 1>(half)
            y = Conv(x, w, b)
        }""")
    compiled = qc.compile(model, "w8a8", data=random_feeds(model, 2), target="openvino").model
    assert "Cast" in {node.op_type for node in compiled.graph.node}
    assert broken(compiled, "openvino") == []


def test_what_is_moved_and_rounded_for_a_join_alone_breaks_no_rule() -> None:
    """OpenVINO gets no pair behind what only moves data, but one in front of a Concat of another grid."""
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 8, 8, 8] x) => (float[1, 8, 4, 4] y, float[1, 8, 8, 8] z)
        <float[8, 8, 1, 1] w, float[8, 16, 1, 1] v> {
            c = Conv(x, w)
            p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
            a = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(c)
            j = Concat<axis = 1>(p, a)
            y = Conv(j, v)
            z = Conv(c, w)
        }""")
    compiled = qc.compile(model, "w8a8", data=random_feeds(model, 2), target="openvino").model
    assert broken(compiled, "openvino") == []


def test_data_of_two_widths_in_one_op_is_named_where_a_device_computes_in_one() -> None:
    place = f"{PLACE},set-precision{{rules=['tensor:t=a16']}}"
    texts = [one.text for one in broken(lowered(TRANSFORMER, "npu", place), "qnn-htp")]
    assert "it has uint8 and uint16 data; qnn-htp computes in one format" in texts
    for rule in ("tensor:t=a16", "MatMul=a16", "Softmax=a16", "LayerNormalization=a16"):
        place = f"{PLACE},set-precision{{rules=['{rule}']}}"
        assert broken(lowered(TRANSFORMER, "qnn-htp", place), "qnn-htp") == []


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
    ending = """g (float[1, 4, 8, 8] x) => (float[1, 4, 7, 7] y) <float[4, 4, 1, 1] w> {
        c = Conv(x, w)  y = AveragePool<dilations = [1, 1], kernel_shape = [2, 2]>(c)
    }"""
    assert "does not run it with the attribute 'dilations'" in reason(placed(ending), "y")


def test_a_branch_that_several_convs_end_in_leaves_one_of_them_float() -> None:
    text = CONV_NET.replace("sum = Add(c2, m)", "c4 = Conv(m, w2)  sum = Add(c2, c4)")
    model = lowered(text, "tensorrt")
    producers = {name: node for node in model.graph.node for name in node.output}
    add = next(node for node in model.graph.node if node.op_type == "Add")
    assert sorted(producers[name].op_type for name in add.input) == ["Conv", "DequantizeLinear"]
    assert broken(model, "tensorrt") == []


RULES = "match-supergroups,insert-quantizers,{},annotate-per-channel,tie-quantizers"


def test_int4_weights_of_tensorrt_are_for_float_data() -> None:
    text = TRANSFORMER.replace("[8, 8]", "[16, 16]").replace("[8]", "[16]").replace("6, 8]", "6, 16]")
    place = PLACE.replace("insert-quantizers", "insert-quantizers{weight=int4}")
    found = {one.rule: one.text for one in broken(lowered(text, "tensorrt", place), "tensorrt")}
    assert found["type"].startswith("the weight 'wo' is int4, which tensorrt multiplies with float data only")
    float_data = RULES.format("set-precision{rules=['MatMul=weight:int4,activation:off']}")
    model = lowered(text, "tensorrt", float_data)
    assert {node.op_type for node in model.graph.node} >= {"DequantizeLinear", "MatMul"}
    assert broken(model, "tensorrt") == []


def test_tensorrt_takes_int8_or_float8_in_one_model() -> None:
    text = f"<ir_version: 9, opset_import: ['' : 21]>\n{TRANSFORMER}".replace("'", '"')
    mixed = RULES.format("set-precision{rules=['op:o=float8e4m3fn']}")
    (found,) = broken(lowered(text.replace("o = MatMul", "[o] o = MatMul"), "tensorrt", mixed), "tensorrt")
    assert found.rule == "mixed formats" and found.text.startswith("it has both int8 and float8e4m3fn")


def test_normalizations_of_the_htp_have_grids_for_scale_and_bias() -> None:
    model = lowered(TRANSFORMER, "qnn-htp")
    producers = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    norm = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    data, scale, bias = (producers[name].input for name in norm.input)
    assert (constants[scale[0]].data_type, constants[bias[0]].data_type) == (2, 6)  # uint8 and int32
    product = [onnx.numpy_helper.to_array(constants[one[1]]) for one in (data, scale)]
    assert onnx.numpy_helper.to_array(constants[bias[1]]) == product[0] * product[1]


@pytest.mark.parametrize("target", ["npu", "openvino"])
@pytest.mark.parametrize("options", ["block_size=4", "block_size=4 scale_bits=4"])
def test_a_bias_beside_a_weight_in_blocks(options: str, target: str) -> None:
    """Where biases are integers they are so beside blocks, too, with the largest scale of each channel."""
    header = '<ir_version: 9, opset_import: ["" : 21]>\n'
    constants = "<float[5, 8] w, float[5] b>"
    text = f"{header} g (float[2, 8] x) => (float[2, 5] y) {constants} {{ y = Gemm<transB=1>(x, w, b) }}"
    place = PLACE.replace("annotate-per-channel", f"annotate-per-channel{{{options}}}")
    model = lowered(text, target, place)
    # OpenVINO multiplies such weights with floats.
    assert {one.rule for one in broken(model, target)} == ({"support"} if target == "openvino" else set())
    codes = {tensor.name: tensor for tensor in model.graph.initializer}
    assert ("b_quantized" in codes) is (target == "npu")
    if target == "npu":
        assert codes["b_quantized"].data_type == onnx.TensorProto.INT32 and codes["b_scale"].dims == [5]
        feed = random_feeds(parse(text), 1)[0]
        expected = run_session(open_session(parse(text)), feed)[0]
        found = run_session(open_session(model, optimize=False), feed)[0]
        assert np.abs(found - expected).max() <= 0.1 * np.abs(expected).max()


@pytest.mark.parametrize(
    "data, weight, rules", [("uint8", "uint8", set()), ("int8", "uint8", {"type", "support"})]
)
def test_a_weight_that_the_runtime_was_seen_to_take(data: str, weight: str, rules: set[str]) -> None:
    """Whatever format the target chooses itself."""
    place = PLACE.replace("insert-quantizers", f"insert-quantizers{{activation={data} weight={weight}}}")
    place = place.replace("annotate-per-channel,", "")
    model = lowered(
        "g (float[2, 8] x) => (float[2, 5] y) <float[8, 5] w> { y = Gemm(x, w) }", "qnn-htp", place
    )
    assert {one.rule for one in broken(model, "qnn-htp") if "'w'" in one.text} == rules


RESIZE = """g (float[1, 4, 4, 4] x) => (float[1, 4, 8, 8] y)
<float[4, 4, 1, 1] w, float[4, 8, 1, 1] v, float[4] scales = {1, 1, 2, 2}> {
    c = Conv(x, w)
    r = Resize<mode = "nearest">(c, , scales)
    j = Concat<axis = 1>(r, r)
    y = Conv(j, v)
}"""


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        (RESIZE, {"Resize": True, "Concat": True, "Conv": True}),
        (RESIZE.replace("nearest", "linear"), {"Resize": False, "Conv": True}),
        (
            "g (float[1, 4, 4, 4] x) => (float[1, 16, 2, 2] y) <float[4, 4, 1, 1] w, float[16, 16, 1, 1] v> "
            "{ c = Conv(x, w)  s = SpaceToDepth<blocksize = 2>(c)  y = Conv(s, v) }",
            {"SpaceToDepth": False, "Conv": True},
        ),
        (
            "g (float[1, 4, 4, 4] x) => (float[1, 4, 1, 4] y) <float[4, 4, 1, 1] w, float[4, 4, 1, 1] v, "
            "int64[1] axes = {2}> { c = Conv(x, w)  m = ReduceMax(c, axes)  y = Conv(m, v) }",
            {"ReduceMax": True, "Conv": True},
        ),
        *[
            (
                "g (float[1, 4, 4, 4] x) => (float[1, 4, 4, 4] y) <float[4, 4, 1, 1] w, "
                f"float low = {{{low}}}, float six = {{6}}> {{ c = Conv(x, w)  y = Clip(c, low, six) }}",
                {"Conv": True},
            )
            for low in (0, -1)
        ],
    ],
    ids=["nearest", "linear", "space to depth", "maximum", "relu6", "hardtanh"],
)
def test_the_target_knows_what_ort_runs_in_integers(text: str, kernels: dict[str, bool]) -> None:
    """The rules of the file, and what the optimized graph says."""
    model = lowered(text, "ort-cpu")
    checked = qc.check(model, "ort-cpu")
    assert {op.op_type: op.runs == "integer" for op in checked.ops if op.op_type in kernels} == kernels
    assert checked.broken == () and not any(op.rule == "unknown" for op in checked.ops)


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("ort-cpu", "activation=uint16", "ort-cpu does not compute with uint16 activations, but in float"),
        ("ort-cpu", "weight=int16", "ort-cpu does not compute with int16 weights, but in float"),
        ("ort-cpu", "weight=int4", None),
        ("tensorrt", "weight=int4", "tensorrt takes int4 weights next to float data only"),
        ("qnn-htp", "activation=uint16 weight=int4", None),
    ],
)
def test_a_format_that_the_target_lacks_is_noted(target: str, options: str, said: str | None) -> None:
    _, context, _ = apply(f"insert-quantizers{{{options}}}", parse(CONV_NET), target)
    assert len(context.notes) == (said is not None)
    assert all(note.startswith(str(said)) for note in context.notes)


@pytest.mark.parametrize(
    "text",
    [
        CONV_NET,
        "g (float[2, 4] x) => (float[2, 3] y) <float[4, 3] w, float[3] b> { m = MatMul(x, w) y = Add(m, b) }",
    ],
)
def test_a_bias_may_have_the_floats_of_its_weight(text: str) -> None:
    model = parse(text)
    assert qc.compile(model, "fp16", data=random_feeds(model, 1), threads=1).notes == []


def test_a_mask_of_infinity_is_the_reason_to_stay_float() -> None:
    text = """g (float[2, 4] x, bool[2, 4] m) => (float[2, 4] y) <float[4, 4] w, float far = {-1}> {
        s = MatMul(x, w)  c = Where(m, s, far)  y = Softmax(c)
    }"""
    model = parse(text)
    far = next(tensor for tensor in model.graph.initializer if tensor.name == "far")
    far.CopyFrom(onnx.numpy_helper.from_array(np.float32(-np.inf), "far"))
    feeds = [{"x": np.ones((2, 4), np.float32), "m": np.eye(2, 4, dtype=bool)}]
    _, context, _ = apply(f"{QUANTIZE},insert-qdq", model, "qnn-htp", feeds)
    (where,) = (op for op in qc.check(artifact(context, "qdq"), "qnn-htp").ops if op.op_type == "Where")
    assert (
        where.runs in ("float", "refused")
        and where.rule == "infinity"
        and "'c' can hold an infinity" in where.why
    )


def test_constants_that_data_is_compared_with_have_grids() -> None:
    """Beside a float constant, the compiler of the HTP gives a comparison up."""
    text = """g (float[1, 4] x) => (float[1, 4] y) <float half = {0.5}, float one = {1}> {
        is_half = Equal(x, half)
        y = Where(is_half, one, x)
    }"""
    model = lowered(text, "qnn-htp")
    made = {node.output[0]: node.op_type for node in model.graph.node}
    (compared,) = (node for node in model.graph.node if node.op_type == "Equal")
    assert [made[name] for name in compared.input] == ["DequantizeLinear"] * 2
    assert broken(model, "qnn-htp") == []


def test_a_scalar_input_has_no_free_dimension() -> None:
    text = "g (float[1, 4] x, bool s) => (float[1, 4] y) { y = Where(s, x, x) }"
    assert not [
        one for one in violations(lift(parse(text)), load_target("qnn-htp")) if "dimension" in one.text
    ]


def test_an_rms_normalization_is_one_op_on_the_htp_and_its_scale_unsigned() -> None:
    model = parse(
        """<ir_version: 9, opset_import: ["" : 17]>
        g (float[1, 4, 32] x) => (float[1, 4, 32] y)
        <float two = {2}, float tiny = {0.00001}, float one = {1}, float[32] scale, float[32, 32] w> {
            squares = Pow(x, two)
            mean = ReduceMean<axes = [-1]>(squares)
            sum = Add(mean, tiny)
            root = Sqrt(sum)
            inverse = Div(one, root)
            n = Mul(x, inverse)
            scaled = Mul(n, scale)
            y = MatMul(scaled, w)
        }"""
    )
    feeds = random_feeds(model, 4)
    result = qc.compile(model, "w8a8", data=feeds, target="qnn-htp")
    check = qc.check(result.model, "qnn-htp", feeds[:1])
    assert [(op.op_type, op.runs) for op in check.counted] == [
        ("RMSNormalization", "integer"),
        ("MatMul", "integer"),
    ]
    assert check.broken == ()


@pytest.mark.parametrize(("op", "most"), [("Tanh", 4), ("Gelu", 4), ("Sigmoid", None)])
def test_an_op_of_more_dimensions_than_it_is_run_in_is_named(op: str, most: int | None) -> None:
    text = f"g (float[2, 3, 4, 5, 6] x) => (float[2, 3, 4, 5, 6] y) {{ y = {op}(x) }}"
    found = [(one.rule, one.text) for one in broken(lowered(text, "qnn-htp"), "qnn-htp")]
    told = ("dimensions", f"it has 5 dimensions; qnn-htp runs it in {most} at most")
    assert found == ([told] if most is not None else [])
