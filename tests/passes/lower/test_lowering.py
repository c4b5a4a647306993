"""The lowering passes: QDQ models that load and compute what the simulation does, and what cannot be said."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import PLACE, QUANTIZE, apply, artifact, check, run_model
from support.placement import value

from qc.ir import lift
from qc.ir.errors import ModelError, UsageError
from qc.ir.quant.spec import Encoding, QuantSpec
from qc.ir.quant_table import Site
from qc.ir.verifier import verify
from qc.passes import PassContext

MATMUL = "g (float[1, 4] x) => (float[1, 2] y) <float[4, 2] w> { y = MatMul(x, w) }"
NEWEST_IR = {13: 7, 21: 10, 25: 13}


def lowered(model: ModelProto, options: str = "", target: str = "npu", more: str = "") -> PassContext:
    """The context after calibration and both lowerings, with options for insert-quantizers."""
    place = PLACE.replace("insert-quantizers", f"insert-quantizers{{{options}}}")
    pipeline = f"{place}{more},calibrate,insert-qdq,to-simulation"
    return apply(pipeline, model, target, random_feeds(model))[1]


def assert_equal_results(context: PassContext, model: ModelProto) -> None:
    qdq, simulation = artifact(context, "qdq"), artifact(context, "simulation")
    check(qdq)
    verify(lift(qdq))
    for feed in random_feeds(model, seed=1):
        real, simulated = run_model(qdq, feed), run_model(simulation, feed)
        for name, array in real.items():
            np.testing.assert_allclose(simulated[name], array, atol=1e-5)


WEIGHTS = ["int2", "uint2", "int3", "int4", "uint4", "int7", "int8", "uint8", "int12", "int16"]
FLOATS = ["float8e4m3fn", "float8e5m2", "bfloat16", "float16"]
ACTIVATIONS = ["uint4", "int8", "uint8", "int16", "uint16"]


@pytest.mark.parametrize("opset", NEWEST_IR)
@pytest.mark.parametrize(
    ("weight", "activation"),
    [*((weight, "uint8") for weight in WEIGHTS + FLOATS), *(("int8", kind) for kind in ACTIVATIONS + FLOATS)],
)
def test_every_format_runs_or_is_refused(weight: str, activation: str, opset: int) -> None:
    model = parse(f'<ir_version: {NEWEST_IR[opset]}, opset_import: ["" : {opset}]>{MATMUL}')
    options = f"weight={weight} activation={activation}"
    try:
        context = lowered(model, options, "ort-cpu")
    except UsageError as error:
        assert "needs opset" in str(error) and opset < 25
        return
    assert_equal_results(context, model)


def test_blocks_need_a_new_opset() -> None:
    pipeline = PLACE.replace("per-channel", "per-channel{block_size=2}") + ",calibrate,insert-qdq{opset=keep}"
    for opset in (10, 13, 19):
        model = parse(f'<ir_version: 5, opset_import: ["" : {opset}]>{MATMUL}')
        with pytest.raises(UsageError, match=f"block.0,2., which needs opset 21; the model has {opset}"):
            apply(pipeline, model, "ort-cpu", random_feeds(model))


@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
def test_branches_read_the_rounded_value(target: str) -> None:
    text = """g (float[1, 4] x, bool c) => (float[1, 4] y) <float[4, 4] w, float[4, 4] w2> {
        a = MatMul(x, w)
        b = MatMul(a, w2)
        y = If(c) <
            then_branch = t () => (float[1, 4] r) { r = Neg(a) },
            else_branch = e () => (float[1, 4] u) { u = Add(a, b) }
        >
    }"""
    model = parse(text)
    context = lowered(model, target=target)
    assert_equal_results(context, model)
    captured = {name.name for op in lift(artifact(context, "qdq")).graph.ops() for name in op.captures}
    assert ("a_DequantizeLinear_Output" in captured) == (target == "npu")


def test_a_constant_that_is_shown_stays() -> None:
    model = parse(MATMUL.replace("=> (", "=> (float[4, 2] w, "))
    context = lowered(model)
    assert_equal_results(context, model)
    expected = numpy_helper.to_array(model.graph.initializer[0])
    for name in ("qdq", "simulation"):
        results = run_model(artifact(context, name), random_feeds(model)[0])
        np.testing.assert_array_equal(results["w"], expected)


def test_an_input_that_is_an_output_stays() -> None:
    model = parse(MATMUL.replace("=> (", "=> (float[1, 4] x, "))
    ir = lift(model)
    spec = QuantSpec.of("uint8")
    quantizer = ir.quant.place(Site(value(ir, "x")), spec, "by hand")
    ir.quant.calibrate(quantizer, Encoding(spec, np.asarray(0.5), np.asarray(128)), "by hand")
    context = apply("insert-qdq,to-simulation", ir)[1]
    assert_equal_results(context, model)
    feed = {"x": np.asarray([[0.1, 0.2, 0.3, 0.4]], np.float32)}
    for name in ("qdq", "simulation"):
        made = artifact(context, name)
        assert made.graph.input[0].name == made.graph.output[0].name == "x"
        np.testing.assert_array_equal(run_model(made, feed)["x"], feed["x"])
        assert not np.array_equal(run_model(made, feed)["y"], run_model(model, feed)["y"])


def test_a_use_may_have_a_grid_of_its_own() -> None:
    model = parse("g (float[1, 4] x) => (float[1, 4] y, float[1, 4] z) { a = Neg(x) y = Abs(a) z = Exp(a) }")
    ir = lift(model)
    coarse = QuantSpec.of("uint8")
    reader = value(ir, "y").producer
    assert reader is not None
    for site, scale in ((Site(value(ir, "a")), 0.25), (Site(value(ir, "a"), reader, 0), 1.0)):
        quantizer = ir.quant.place(site, coarse, "by hand")
        ir.quant.calibrate(quantizer, Encoding(coarse, np.asarray(scale), np.asarray(128)), "by hand")
    context = apply("insert-qdq,to-simulation", ir)[1]
    assert_equal_results(context, model)
    feed = {"x": np.asarray([[0.1, 0.3, 0.6, 1.4]], np.float32)}
    results = run_model(artifact(context, "qdq"), feed)
    np.testing.assert_array_equal(results["y"], np.asarray([[0, 0, 0, 2]], np.float32))  # twice rounded
    np.testing.assert_allclose(results["z"], np.exp([[0, -0.25, -0.5, -1.5]]), rtol=1e-6)


def test_names_that_are_taken() -> None:
    names = ["x", "x_scale", "x_QuantizeLinear_Output", "x_DequantizeLinear_Output", "x_simulated"]
    nodes = [helper.make_node("Neg", [name], [f"y{index}"]) for index, name in enumerate(names)]
    outputs = [floats(f"y{index}", 1, 4) for index in range(len(names))]
    model = model_of(nodes, [floats(name, 1, 4) for name in names], outputs)
    assert_equal_results(lowered(model), model)


def test_old_models_may_hold_new_constants() -> None:
    text = """<ir_version: 3, opset_import: ["" : 10]>
    g (float[1, 4] x, float[4, 2] w) => (float[1, 2] y)
    <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { y = MatMul(x, w) }"""
    model = parse(text)
    context = lowered(model)
    assert_equal_results(context, model)
    assert artifact(context, "qdq").ir_version == 4


def test_quantizers_of_the_simulation_can_be_changed() -> None:
    model = parse(MATMUL)
    context = lowered(model)
    simulation, feed = artifact(context, "simulation"), random_feeds(model)[0]
    off = {
        info.name: np.zeros((), np.float32) for info in simulation.graph.input if info.name.endswith("/scale")
    }
    assert len(off) == 2
    result = run_model(simulation, {**feed, **off})["y"]
    codes = run_model(simulation, feed)["y"]
    assert not np.array_equal(result, codes)
    np.testing.assert_allclose(result, run_model(model, feed)["y"], atol=0.05)


def test_one_calibrated_model_is_lowered_in_many_ways() -> None:
    model = parse(MATMUL)
    _, context, _ = apply(
        f"{QUANTIZE},insert-qdq,to-simulation,to-encodings", model, "npu", random_feeds(model)
    )
    assert list(context.artifacts) == ["qdq", "simulation", "encodings"]


def test_the_encodings_of_a_tensor_with_several_grids() -> None:
    text = """g (float[1, 2] x) => (float[1, 4] y, float[1, 2] z) { a = Neg(x) b = Exp(x)
        y = Concat<axis = 1>(a, b) z = Abs(a) }"""
    model = parse(text)
    _, context, _ = apply(f"{PLACE},calibrate,to-encodings", model, "npu", random_feeds(model))
    assert context.notes == [
        "the encodings file has one grid for each tensor, which leaves out that of 'a' into Concat of 'y'"
    ]
    document = json.loads(str(context.artifacts["encodings"].payload))
    names = [entry["name"] for entry in document["activation_encodings"]]
    assert sorted(names) == ["a", "b", "x", "y", "z"]


def test_an_axis_that_a_file_cannot_say_is_told_with_the_option() -> None:
    """One window for a transform by a convolution and for its way back."""
    text = """g (float[1, 1, 32] x) => (float[1, 1, 32] y) <float[6, 1, 4] w> {
        a = Conv<strides = [4]>(x, w)  b = Tanh(a)  y = ConvTranspose<strides = [4]>(b, w) }"""
    model, feeds = parse(text), random_feeds(parse(text))
    pipeline = "configure-quantizers{config=htp_v73},calibrate-as-aimet,to-encodings"
    with pytest.raises(UsageError, match=r"'w' has scales .* --opt to-encodings.version=2.0.0"):
        apply(pipeline, model, feeds=feeds)
    assert "encodings" in apply(f"{pipeline}{{version=2.0.0}}", model, feeds=feeds)[1].artifacts


def test_sparse_weights_are_quantized_as_dense_ones() -> None:
    numbers = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, -2.0, 0.5])
    for indices in ([0, 3, 7], [[0, 0], [1, 1], [3, 1]]):
        flat = np.asarray(indices, np.int64)
        places = helper.make_tensor("places", TensorProto.INT64, flat.shape, flat.ravel())
        model = parse(MATMUL)
        dense = np.zeros((4, 2), np.float32)
        dense[[0, 1, 3], [0, 1, 1]] = [1.0, -2.0, 0.5]
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(dense, "w"))
        sparse = parse(MATMUL)
        del sparse.graph.initializer[:]
        sparse.graph.sparse_initializer.append(helper.make_sparse_tensor(numbers, places, [4, 2]))
        expected, result = lowered(model), lowered(sparse)
        feed = random_feeds(model)[0]
        for name in ("qdq", "simulation"):
            np.testing.assert_array_equal(
                run_model(artifact(result, name), feed)["y"], run_model(artifact(expected, name), feed)["y"]
            )


# -- options ------------------------------------------------------------------------------------------

CONV = """g (float[2, 3, 5, 5] x) => (float[2, 6] y)
<float[4, 3, 3, 3] w1, float[4] b1, float[4, 6] w2, float[6] b2> {
    c = Conv(x, w1, b1)
    r = Relu(c)
    p = GlobalAveragePool(r)
    f = Flatten(p)
    y = Gemm(f, w2, b2)
}"""


def stored(model: ModelProto) -> dict[str, int]:
    """The element types of the initializers."""
    return {tensor.name: tensor.data_type for tensor in model.graph.initializer}


@pytest.mark.parametrize("search", ["min-max", "mse"])
@pytest.mark.parametrize("bits", [2, 3, 4, 5, 8, 12, 16])
@pytest.mark.parametrize("kind", ["channel", "block"])
def test_weights_in_float_give_the_codes_of_stored_ones(kind: str, bits: int, search: str) -> None:
    model = parse(f'<ir_version: 13, opset_import: ["" : 25]>{CONV}')
    channels = "annotate-per-channel" + ("{block_size=2}" if kind == "block" else "")
    place = (
        f"match-supergroups,insert-quantizers{{weight=int{bits}}},{channels},calibrate{{weights={search}}}"
    )
    made = {}
    for weights in ("codes", "float"):
        context = apply(f"{place},insert-qdq{{weights={weights}}}", model, "npu", random_feeds(model))[1]
        made[weights] = artifact(context, "qdq")
    check(made["float"])
    assert stored(made["codes"])["w1_quantized"] not in (TensorProto.FLOAT,)
    assert any(name in ("w1", "w1_limited") for name in stored(made["float"]))
    assert stored(made["float"])["b1_quantized"] == TensorProto.INT32  # there is no other way
    for feed in random_feeds(model, seed=1):
        expected, found = run_model(made["codes"], feed), run_model(made["float"], feed)
        np.testing.assert_array_equal(found["y"], expected["y"])


def test_weights_in_float_come_in_and_go_out_again() -> None:
    model = parse(CONV)
    first = apply(f"{QUANTIZE},insert-qdq{{weights=float}}", model, "npu", random_feeds(model))[1]
    again = apply("import-qdq,insert-qdq{weights=float}", artifact(first, "qdq"), "npu")[1]
    assert artifact(again, "qdq").SerializeToString() == artifact(first, "qdq").SerializeToString()


@pytest.mark.parametrize("bias", ["int32", "float"])
@pytest.mark.parametrize("passes", ["insert-quantizers", "configure-quantizers"])
def test_biases_on_request(passes: str, bias: str) -> None:
    model = parse(CONV)
    place = f"{passes}{{bias={bias}}},annotate-per-channel,calibrate,insert-qdq,to-simulation"
    context = apply(place, model, "npu", random_feeds(model))[1]
    kinds = stored(artifact(context, "qdq"))
    for name in ("b1", "b2"):
        found = kinds.get(f"{name}_quantized", kinds.get(name))
        assert found == (TensorProto.INT32 if bias == "int32" else TensorProto.FLOAT)
    assert_equal_results(context, model)


@pytest.mark.parametrize("opset", [10, 13, 17, 19])
def test_the_opset_is_raised_where_it_has_to_be(opset: int) -> None:
    model = parse(f'<ir_version: 5, opset_import: ["" : {opset}]>{MATMUL}')
    place = PLACE.replace("per-channel", "per-channel{block_size=2}") + ",calibrate"
    context = apply(f"{place},insert-qdq", model, "ort-cpu", random_feeds(model))[1]
    made = artifact(context, "qdq")
    assert made.opset_import[0].version == 21 and made.ir_version >= 10
    assert f"the model was converted from opset {opset} to 21, which its grids need" in context.notes
    check(made)
    assert "w_quantized" in stored(made)
    feed = random_feeds(model)[0]
    np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], atol=0.1)


def test_the_opset_stays_where_it_can() -> None:
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]>{CONV}')
    context = apply(f"{QUANTIZE},insert-qdq", model, "ort-cpu", random_feeds(model))[1]
    assert artifact(context, "qdq").opset_import[0].version == 17 and not context.notes


@pytest.mark.parametrize(("activation", "opset"), [("uint8", 10), ("float8e4m3fn", 19)])
def test_a_model_without_ops_of_onnx_gets_an_opset(activation: str, opset: int) -> None:
    """As models of trees are, which import the domain of classical models alone."""
    model = parse(
        '<ir_version: 8, opset_import: ["ai.onnx.ml" : 1]>'
        'g (float[1, 4] x) => (float[1, 4] y) { y = ai.onnx.ml.Normalizer <norm = "L1"> (x) }'
    )
    ir = lift(model)
    spec = QuantSpec.of(activation)
    quantizer = ir.quant.place(Site(value(ir, "x")), spec, "by hand")
    ir.quant.calibrate(quantizer, Encoding(spec, np.asarray(0.01), np.asarray(0)), "by hand")
    made = artifact(apply("insert-qdq", ir, "ort-cpu")[1], "qdq")
    assert {one.domain: one.version for one in made.opset_import} == {"": opset, "ai.onnx.ml": 1}
    assert [node.op_type for node in made.graph.node] == ["QuantizeLinear", "DequantizeLinear", "Normalizer"]
    feed = {"x": np.float32([[0, 0.5, 1, 2]])}
    assert run_model(made, feed)["y"].shape == (1, 4)


def test_a_grid_of_one_reader_is_carried_over() -> None:
    text = (
        "g (float[1, 4] x) => (float[1, 2] y, float[1, 4] z) <float[4, 2] w> { y = MatMul(x, w) z = Exp(x) }"
    )
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]>{text}')
    pipeline = "insert-quantizers{activation=float8e4m3fn},calibrate,insert-qdq"
    made = artifact(apply(pipeline, model, "ort-cpu", random_feeds(model))[1], "qdq")
    kinds = [(node.op_type, node.input[0]) for node in made.graph.node]
    assert made.opset_import[0].version == 19 and ("QuantizeLinear", "x") in kinds and ("Exp", "x") in kinds


def test_a_model_that_cannot_be_converted_is_refused() -> None:
    text = """<ir_version: 8, opset_import: ["" : 12]>
    g (float[1, 4] x) => (float[1, 2] y, float z) <float[4, 2] w> { y = MatMul(x, w) z = Unknown(x) }"""
    ir = lift(parse(text))
    spec = QuantSpec.of("float8e4m3fn")
    quantizer = ir.quant.place(Site(value(ir, "x")), spec, "by hand")
    ir.quant.calibrate(quantizer, Encoding(spec, np.asarray(0.5), np.asarray(0)), "by hand")
    with pytest.raises(ModelError, match="need opset 19, the model has 12, and ONNX cannot convert it"):
        apply("insert-qdq", ir)
