"""The pass smooth: outliers of activations move into weights, and float outputs stay what they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from support.models import parse, random_feeds
from support.pipelines import PLACE, Feeds, apply, artifact, run_model
from support.properties import check_outputs

import qc
from qc.ir.graph import Op, Value
from qc.ir.journal import SKIP
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.arithmetic import fake_quantize
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.passes.optimize.layers.layer import layers_of
from qc.passes.optimize.smoothing.objective import Ranges, Reading, Rounded
from qc.passes.quantize.calibration.ranges import covering, weight_encoding
from qc.runtime import OrtExecutor

# Each with a tensor of 8 channels that something in front of layers can divide.
SOURCES = {
    "layer normalization": """g (float[4, 16, 8] x) => (float[4, 16, 6] y, float[4, 16, 5] z, int64[3] s)
        <float[8] g, float[8] b, float[8, 6] w, float[8, 5] v> {
        n = LayerNormalization(x, g, b)
        s = Shape(n)
        y = MatMul(n, w)
        z = MatMul(n, v)
    }""",
    "simplified": """g (float[4, 16, 8] x) => (float[4, 16, 6] y)
        <float[8] g, float[8, 6] w, float[4, 16, 8] n> {
        n = SimplifiedLayerNormalization(x, g)
        y = MatMul(n, w)
    }""",
    "written out": """g (float[4, 16, 8] x) => (float[4, 16, 6] y)
        <float[8] g, float[8] b, float[8, 6] w, float e = {0.001}> {
        s = Mul(x, x)
        m = ReduceMean(s)
        a = Add(m, e)
        r = Sqrt(a)
        d = Div(x, r)
        h = Mul(d, g)
        n = Add(h, b)
        y = MatMul(n, w)
    }""",
    "batch normalization": """g (float[4, 8, 6, 6] x) => (float[4, 8, 6, 6] y)
        <float[8] g, float[8] b, float[8] m, float[8] var, float[8, 1, 3, 3] d> {
        n = BatchNormalization(x, g, b, m, var)
        r = Relu(n)
        y = Conv<group = 8, pads = [1, 1, 1, 1]>(r, d)
    }""",
    "convolution": """g (float[4, 3, 6, 6] x) => (float[4, 6, 2, 2] y)
        <float[8, 3, 3, 3] w, float[8] b, float[6, 4, 2, 2] v> {
        c = Conv<pads = [1, 1, 1, 1]>(x, w, b)
        r = LeakyRelu(c)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        y = Conv<group = 2>(p, v)
    }""",
    "gated unit": """g (float[4, 16, 5] x) => (float[4, 16, 6] y)
        <float[5, 8] u, float[8] b, float[5, 8] k, float[8, 6] w> {
        t = MatMul(x, u)
        p = Add(b, t)
        q = MatMul(x, k)
        s = Sigmoid(q)
        h = Mul(s, q)
        m = Mul(h, p)
        y = MatMul(m, w)
    }""",
    "reshaped": """g (float[4, 16, 8] x) => (float[64, 6] y)
        <float[8] g, float[6, 8] w, int64[2] s = {-1, 8}> {
        n = LayerNormalization(x, g)
        f = Reshape(n, s)
        y = Gemm<transB = 1>(f, w)
    }""",
    "transposed": """g (float[16, 5] x) => (float[16, 6] y) <float[5, 8] v, float[8] b, float[8, 6] w> {
        p = Gemm<alpha = 0.5, beta = 2.0>(x, v, b)
        t = Transpose<perm = [1, 0]>(p)
        y = Gemm<transA = 1>(t, w)
    }""",
}
# Convolutions behind functions that multiply what they read, in a few of the forms that exporters write.
GATES = {
    "SiLU": """s = Sigmoid(c)
        r = Mul(c, s)""",
    "HardSwish": "r = HardSwish(c)",
    "HardSwish in two ops": """s = HardSigmoid<alpha = 0.16666667>(c)
        r = Mul(s, c)""",
    "HardSwish in four ops": """a = Add(c, three)
        s = Clip(a, zero, six)
        m = Mul(c, s)
        r = Div(m, six)""",
    "Swish with a factor": """q = Mul(three, c)
        s = Sigmoid(q)
        r = Mul(c, s)""",
    "of a difference": """q = Sub(three, c)
        s = Sigmoid(q)
        r = Mul(s, c)""",
    "a function that is read again": """s = Sigmoid(c)
        t = Sigmoid(s)
        m = Mul(s, c)
        r = Mul(m, t)""",
    "two of one tensor": """s = Sigmoid(c)
        t = Tanh(c)
        m = Mul(c, s)
        n = Mul(t, c)
        r = Mul(m, three)
        z = Conv<group = 64, pads = [1, 1, 1, 1]>(n, e)""",
    "of more dimensions than the tensor": """q = Add(c, more)
        s = Sigmoid(q)
        p = Mul(s, c)
        r = Reshape(p, whole)""",
    "and a scale and a shift": """s = Sigmoid(c)
        m = Mul(c, s)
        n = Mul(m, six)
        r = Add(n, three)""",
}
# Where something else than layers reads the channels, or what divides them reaches others.
BARRIERS = {
    "residual": """g (float[4, 8] x) => (float[4, 8] y) <float[8] g, float[8, 8] w> {
        n = LayerNormalization(x, g)
        a = MatMul(n, w)
        y = Add(a, n)
    }""",
    "output": """g (float[4, 8] x) => (float[4, 8] n, float[4, 6] y) <float[8] g, float[8, 6] w> {
        n = LayerNormalization(x, g)
        y = MatMul(n, w)
    }""",
    "square": """g (float[4, 5] x) => (float[4, 6] y) <float[5, 8] v, float[8, 6] w> {
        p = MatMul(x, v)
        r = Relu(p)
        s = Mul(r, p)
        y = MatMul(s, w)
    }""",
    "gate": """g (float[4, 5] x) => (float[4, 6] y) <float[5, 8] v, float[8, 6] w> {
        p = MatMul(x, v)
        s = Sigmoid(p)
        r = Mul(s, p)
        y = MatMul(r, w)
    }""",
    "heads": """g (float[4, 16, 8] x) => (float[4, 16, 2, 6] y)
        <float[8] g, float[8] b, int64[4] s = {4, 16, 2, 4}, float[4, 6] w> {
        n = LayerNormalization(x, g, b)
        h = Reshape(n, s)
        y = MatMul(h, w)
    }""",
    "shared weight": """g (float[4, 8] x, float[4, 8] u) => (float[4, 6] y, float[4, 6] z)
        <float[8] g, float[8, 6] w> {
        n = LayerNormalization(x, g)
        y = MatMul(n, w)
        z = MatMul(u, w)
    }""",
    "body": """g (float[4, 8] x, bool c) => (float[4, 6] y, float[4, 8] z) <float[8] g, float[8, 6] w> {
        n = LayerNormalization(x, g)
        y = MatMul(n, w)
        z = If(c) <then_branch = t () => (float[4, 8] a) { a = Relu(n) },
                   else_branch = e () => (float[4, 8] d) { d = Neg(n) }>
    }""",
}


def with_outliers(source: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """The model with channels that differ by factors of hundreds where they are made."""
    rng = np.random.default_rng(seed)
    for tensor in source.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if tensor.name == "g" or (tensor.name in ("b", "v", "u") and array.shape[-1] == 8):
            array = array * np.exp(rng.normal(size=8, scale=2))
        elif tensor.name == "w" and array.shape[:2] == (8, 3):
            array = array * np.exp(rng.normal(size=(8, 1, 1, 1), scale=2))
        tensor.CopyFrom(numpy_helper.from_array(array.astype(tensor_dtype(tensor)), tensor.name))
    return source


def tensor_dtype(tensor: onnx.TensorProto) -> np.dtype:
    return onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)


def smoothed(
    source: onnx.ModelProto, feeds: Feeds, options: str = "", target: str = "ort-cpu"
) -> tuple[Model, PassContext]:
    return apply(f"{PLACE},smooth{options}", source, target, feeds)[:2]


def reasons(model: Model) -> list[str]:
    made = (remark for remark in model.journal.remarks if remark.pass_name == "smooth")
    return [remark.reason for remark in made if remark.kind != SKIP]


def errors(source: onnx.ModelProto, feeds: Feeds, passes: str, target: str = "ort-cpu") -> float:
    """The mean square of what the quantized outputs differ by from the float ones."""
    made = artifact(apply(f"{PLACE},{passes}calibrate,to-simulation", source, target, feeds)[1], "simulation")
    pairs = [(run_model(made, feed), run_model(source, feed)) for feed in feeds]
    return float(sum(np.square(a[name] - b[name]).sum() for a, b in pairs for name in b))


@pytest.mark.parametrize("name", SOURCES)
def test_outliers_move_into_weights(name: str) -> None:
    source = with_outliers(parse(SOURCES[name]))
    feeds = random_feeds(source, 24)
    model, _ = smoothed(source, feeds)
    (reason,) = reasons(model)
    assert reason.startswith("smooth: alpha ") and reason.endswith(" dB before")
    check_outputs(source, lower(model), feeds[0], 1e-5)
    assert errors(source, feeds, "smooth,") < errors(source, feeds, "")


@pytest.mark.parametrize("name", BARRIERS)
def test_channels_that_others_read_stay_as_they_are(name: str) -> None:
    source = with_outliers(parse(BARRIERS[name]))
    feeds = random_feeds(source, 2)
    assert not reasons(smoothed(source, feeds)[0])


def gated(function: str) -> onnx.ModelProto:
    """A convolution, large enough to be one of integers, a function, and a convolution of each channel."""
    text = f"""g (float[1, 32, 16, 16] x) => (float[1, 64, 16, 16] y) <float[64, 32, 3, 3] w, float[64] b,
        float[64, 1, 3, 3] d, float[64, 1, 3, 3] e, float[1, 1, 64, 1, 1] more, float three = {{3}},
        float zero = {{0}}, float six = {{6}}, int64[4] whole = {{1, 64, 16, 16}}, float[64, 1, 1] each> {{
        c = Conv<pads = [1, 1, 1, 1]>(x, w, b)
        {function}
        y = Conv<group = 64, pads = [1, 1, 1, 1]>(r, d)
    }}"""
    source = parse(text)
    factors = 0.1 * np.exp(np.random.default_rng(1).normal(size=(64, 1, 1, 1), scale=2))
    for tensor in source.graph.initializer:
        if tensor.name in ("w", "d", "e"):  # what is large in front of the function counts little behind it
            array = numpy_helper.to_array(tensor) * (factors if tensor.name == "w" else 1 / factors)
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
    return source


@pytest.mark.parametrize("name", GATES)
def test_scales_pass_functions_that_multiply_what_they_read(name: str) -> None:
    source = gated(GATES[name])
    feeds = random_feeds(source, 24)
    model, _ = smoothed(source, feeds)
    assert len(reasons(model)) == 1
    check_outputs(source, lower(model), feeds[0], 1e-5)
    assert errors(source, feeds, "smooth,") < 0.5 * errors(source, feeds, "")


@pytest.mark.parametrize("name", ["SiLU", "HardSwish", "HardSwish in two ops"])
def test_a_convolution_restores_what_such_functions_read_where_all_is_in_integers(name: str) -> None:
    source = gated(GATES[name])
    feeds = random_feeds(source, 24)
    model, _ = smoothed(source, feeds, target="qnn-htp")
    assert len([reason for reason in reasons(model) if reason.startswith("smooth: alpha ")]) == 1
    convolutions = [op for op in model.graph.ops() if op.is_type("Conv")]
    assert [op.attribute("group", 1) for op in convolutions] == [1, 64, 64]
    assert not {"silu", "hard_swish"} & {region.name for region in model.regions}
    assert all(any(model.quant.quantizers_on(value)) for op in model.graph.ops() for value in _data(op))
    check_outputs(source, lower(model), feeds[0], 1e-5)
    assert errors(source, feeds, "smooth,", "qnn-htp") < 0.1 * errors(source, feeds, "", "qnn-htp")


def test_scales_are_no_further_apart_than_those_of_weights_may_be() -> None:
    """One channel is large and hardly read, which takes nothing from the scales of the others."""
    source = gated(GATES["SiLU"])
    for tensor in source.graph.initializer:
        if tensor.name in ("w", "d"):
            array = numpy_helper.to_array(tensor).copy()
            array[0] *= 1e-4 if tensor.name == "d" else 1e3
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    model, context = smoothed(source, random_feeds(source, 24), target="qnn-htp")
    (scales,) = (
        value.const.numpy()
        for op in model.graph.ops()
        for value in op.inputs
        if value is not None and value.name.startswith("c_scale") and value.const is not None
    )
    assert context.target is not None and scales.shape == (64, 1, 1, 1)
    assert scales.max() / scales.min() <= context.target.grids.scale_span * 1.001
    assert np.unique(scales).size > 32


def _data(op: Op) -> list[Value]:
    return [value for value in (*op.inputs, *op.outputs) if value is not None]


def test_targets_that_compute_all_in_integers_keep_such_functions_as_they_are() -> None:
    source = gated(GATES["SiLU"])
    feeds = random_feeds(source, 4)
    assert not reasons(smoothed(source, feeds, target="npu")[0])
    layers = with_outliers(parse(SOURCES["convolution"]))
    assert reasons(smoothed(layers, random_feeds(layers, 24), target="npu")[0])
    assert not reasons(smoothed(layers, random_feeds(layers, 24), "{gates_only=true}", "npu")[0])


def test_what_is_nearer_to_a_layer_keeps_no_function_from_its_scales() -> None:
    source = gated("""s = Sigmoid(c)
        m = Mul(c, s)
        r = Mul(m, each)""")
    model, _ = smoothed(source, random_feeds(source, 8), "{gates_only=true}")
    (reason,) = reasons(model)
    assert "Conv of 'y'" in reason
    (product,) = (op for op in model.graph.ops() if op.is_type("Mul") and "_restored" in op.label)
    for value in _data(product)[1:]:  # what is multiplied has a grid
        assert "smoothed" in (model.quant.why_not(value) or "")


def test_functions_are_left_alone_where_data_is_read_once_or_nothing_has_a_quantizer() -> None:
    source = gated(GATES["SiLU"])
    feeds = random_feeds(source, 4)
    assert reasons(qc.compile(source, data=feeds).ir)
    assert not reasons(qc.compile(source, data=iter(feeds)).ir)
    model, context, _ = apply("smooth{gates_only=true}", source, "ort-cpu", feeds)
    assert not reasons(model) and not context.notes


@pytest.mark.parametrize(
    "function",
    [
        """q = Mul(c, c)
        s = Sigmoid(q)
        r = Mul(s, c)""",
        """s = Sigmoid(c)
        r = Add(s, c)""",
        """s = Softmax<axis = 1>(c)
        r = Mul(s, c)""",
    ],
)
def test_other_functions_stay_as_they_are(function: str) -> None:
    source = gated(function)
    assert not reasons(smoothed(source, random_feeds(source, 2))[0])


@settings(max_examples=15)
@given(st.sampled_from(sorted(SOURCES)), st.integers(0, 1000), st.sampled_from(["int4", "int8"]))
def test_float_outputs_stay_what_they_are(name: str, seed: int, weight: str) -> None:
    source = with_outliers(parse(SOURCES[name]), seed)
    feeds = random_feeds(source, 2, seed)
    place = PLACE.replace("insert-quantizers", f"insert-quantizers{{weight={weight}}}")
    model = apply(f"{place},smooth{{weights=mse}}", source, "ort-cpu", feeds)[0]
    check_outputs(source, lower(model), feeds[0], 1e-5)


def test_a_product_is_inserted_where_that_is_asked() -> None:
    source = with_outliers(parse(BARRIERS["residual"]))
    feeds = random_feeds(source, 24)
    model, _ = smoothed(source, feeds, "{insert=true}")
    check_outputs(source, lower(model), feeds[0], 1e-5)
    (product,) = [op for op in model.graph.ops() if op.is_type("Mul")]
    (result,) = product.outputs
    assert result is not None and list(model.quant.quantizers_on(result))
    assert errors(source, feeds, "smooth{insert=true},") < 0.7 * errors(source, feeds, "")


@pytest.mark.parametrize("passes", [f"{PLACE},calibrate,smooth", f"smooth,{PLACE}"])
def test_what_has_a_grid_or_none_to_come_is_left_alone(passes: str) -> None:
    source = with_outliers(parse(SOURCES["gated unit"]))
    model, context, _ = apply(passes, source, "ort-cpu", random_feeds(source, 2))
    assert not reasons(model)
    assert [note for note in context.notes if "between those that place quantizers and 'calibrate'" in note]


def test_nothing_is_done_where_channels_are_alike() -> None:
    source = parse("""g (float[64, 4] x) => (float[64, 4] y) <float[4] g = {1, 1, 1, 1},
        float[4, 4] w = {2, -2, 2, 2, 2, 2, -2, 2, -2, 2, 2, 2, 2, 2, 2, -2}> {
        n = LayerNormalization(x, g)
        y = MatMul(n, w)
    }""")
    assert not reasons(smoothed(source, random_feeds(source, 8))[0])


def test_without_samples_there_is_a_note() -> None:
    class Nothing(list):  # type: ignore[type-arg]
        length = 0

    source = parse(SOURCES["simplified"])
    model = apply(PLACE, source, "ort-cpu")[0]
    context = PassContext(data=Nothing(), executor=OrtExecutor(threads=1))

    run_pipeline(parse_pipeline("smooth"), model, context)
    (note,) = context.notes
    assert note.startswith(
        "channels stay as they are: pass 'smooth' needs data to scale them by; give --data"
    )


@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_the_objective_is_near_the_error_that_is_made(spread: float) -> None:
    rng = np.random.default_rng(0)
    source = parse("g (float[512, 8] x) => (float[512, 6] y) <float[8, 6] w> { y = MatMul(x, w) }")
    feeds = [{"x": (rng.normal(size=(512, 8)) * np.exp(rng.normal(size=8, scale=spread))).astype(np.float32)}]
    model = apply(PLACE, source, "ort-cpu", feeds)[0]
    (layer,) = layers_of(model)
    spec = next(model.quant.quantizers_on(layer.data)).spec
    x = feeds[0]["x"]
    gram = x.T.astype(np.float64) @ x / len(x)
    ranges = Ranges(x.min(0).astype(np.float64), x.max(0).astype(np.float64))
    rounded = Rounded(spec, ranges, ranges, np.diag(gram), len(x))
    power = float(np.square(x @ layer.weight.array).sum(axis=1).mean())
    reading = Reading(layer, ranges.largest, ranges.largest, np.diag(gram), power, (rounded,))
    for scale in (np.ones(8), np.sqrt(np.abs(x).max(0)).astype(np.float64)):
        weight = layer.weight.array * scale[:, np.newaxis].astype(np.float32)
        data = (x / scale).astype(np.float32)
        held = layer.weight.quantizer
        assert held is not None
        grids = covering(spec, float(data.min()), float(data.max())), weight_encoding(held.spec, weight)
        made = fake_quantize(data, grids[0]) @ fake_quantize(weight, grids[1])
        error = np.square(made - x @ layer.weight.array).sum(axis=1).mean()
        assert 0.6 * error < reading.error(scale, weight_encoding) < 1.5 * error


def test_errors_are_no_larger_than_what_is_rounded() -> None:
    source = parse("g (float[4, 8] x) => (float[4, 6] y) <float[8, 6] w> { y = MatMul(x, w) }")
    model = apply(PLACE, source, "ort-cpu", random_feeds(source, 1))[0]
    spec = next(model.quant.quantizers_on(layers_of(model)[0].data)).spec
    covered = Ranges(np.full(4, -1.0), np.full(4, 2.0))
    reached = Ranges(np.full(4, -100.0), np.full(4, 100.0))  # far beyond the grid, where g made nothing of it
    noise = Rounded(spec, covered, reached, np.array([0.0, 1e-30, 1e-3, 1.0]), 10).noise(np.ones(4))
    assert noise[0] == 0 and noise.max() <= 2
