"""The pass correct-bias: means of results are what they were in float, whatever the grids do to them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.models import parse, random_feeds
from support.pipelines import PLACE, Feeds, apply, artifact, run_model

import qc
from qc.ir.model import Model
from qc.passes import PassContext
from qc.runtime import OrtExecutor, expose_tensors

INT4 = PLACE.replace("insert-quantizers", "insert-quantizers{weight=int4}")
CORRECT = f"{INT4},calibrate,correct-bias"
CHAIN = """g (float[4, 3, 8, 8] x) => (float[4, 2, 8, 8] y)
    <float[6, 3, 3, 3] v, float[6] b, float[6, 1, 3, 3] d, float[2, 6, 1, 1] w> {
    c = Conv<pads = [1, 1, 1, 1]>(x, v, b)
    r = Relu(c)
    e = Conv<pads = [1, 1, 1, 1], group = 6>(r, d)
    s = Relu(e)
    y = Conv(s, w)
}"""
TENSORS = ("c", "e", "y")


def positive_feeds(source: onnx.ModelProto, count: int) -> list[dict[str, np.ndarray]]:
    """Numbers around 1, so that rounded weights shift means by more than chance does."""
    return [{"x": 1 + feed["x"] / 8} for feed in random_feeds(source, count)]


def corrected(
    source: onnx.ModelProto, feeds: Feeds, passes: str = CORRECT, target: str = "npu"
) -> tuple[Model, PassContext]:
    return apply(f"{passes},to-simulation,insert-qdq", source, target, feeds)[:2]


def means(model: onnx.ModelProto, feeds: Feeds, name: str) -> np.ndarray:
    """The mean of each channel of a result, before it is rounded."""
    shown = expose_tensors(model, [name])
    arrays = np.concatenate([run_model(shown, feed)[name] for feed in feeds]).astype(np.float64)
    return np.asarray(np.moveaxis(arrays, 1, -1).reshape(-1, arrays.shape[1]).mean(axis=0))


def shifts(source: onnx.ModelProto, context: PassContext, feeds: Feeds, name: str) -> np.ndarray:
    made = artifact(context, "simulation")
    inner = name if any(name in node.output for node in made.graph.node) else f"{name}_simulated"
    return means(made, feeds, inner) - means(source, feeds, name)


def step_of(model: Model, name: str) -> float:
    """The largest step of the grid of a bias."""
    value = next(value for value in model.graph.values() if value.name == name)
    (quantizer,) = model.quant.quantizers_on(value)
    assert quantizer.encoding is not None
    return float(quantizer.encoding.scale.max())


def test_every_mean_is_that_of_the_float_model() -> None:
    source = parse(CHAIN)
    feeds = positive_feeds(source, 1) * 2
    plain = corrected(source, feeds, f"{INT4},calibrate")[1]
    model, context = corrected(source, feeds)
    for bias, name in (("b", "c"), ("e_bias", "e")):
        before, after = (np.abs(shifts(source, one, feeds, name)).max() for one in (plain, context))
        assert after < step_of(model, bias) < before, name  # biases before it are rounded
    encodings = [q.encoding for q in model.quant.quantizers() if q.spec.derived]
    assert len(encodings) == 3 and None not in encodings  # those that were made have grids too
    reasons = [remark.reason for remark in model.journal.remarks]
    assert (
        reasons.count("a bias of its own") == 2
        and sum(reason.startswith("correct bias") for reason in reasons) == 3
    )


def test_the_quantized_model_has_the_corrected_biases() -> None:
    source = parse(CHAIN)
    feeds = positive_feeds(source, 1) * 2
    context = corrected(source, feeds)[1]
    outputs = [run_model(artifact(context, name), feeds[0])["y"] for name in ("simulation", "qdq")]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-4)
    exact = run_model(source, feeds[0])["y"]
    plain = artifact(corrected(source, feeds, f"{INT4},calibrate")[1], "qdq")
    errors = [
        np.abs((run_model(one, feeds[0])["y"] - exact).mean()) for one in (artifact(context, "qdq"), plain)
    ]
    assert errors[0] < errors[1]


PRODUCTS = """g (float[8, 4] x) => (float[8, 2] y)
    <float[4, 5] u, float[5] b, float[5, 4] v, float[1, 4] c, float[4, 2] w> {
    m = MatMul(x, u)
    a = Add(b, m)
    e = Gemm<beta = 0.5>(a, v, c)
    y = MatMul(e, w)
}"""


def test_products() -> None:
    source = parse(PRODUCTS)
    feeds = positive_feeds(source, 1) * 2
    model, context = corrected(source, feeds, CORRECT.replace("int4", "int3"))
    for name, bias in (("a", "b"), ("e", "c")):
        assert np.abs(shifts(source, context, feeds, name)).max() < 0.51 * step_of(model, bias), name
    assert corrections(model) == LAYERS  # the last product has no bias
    assert [op.op_type for op in model.graph.ops()] == ["MatMul", "Add", "Gemm", "MatMul"]


LAYERS = ["MatMul of 'm'", "Gemm of 'e'"]


def corrections(model: Model) -> list[str]:
    """The ops whose biases were corrected."""
    return [one.subject for one in model.journal.remarks if one.reason.startswith("correct bias: ")]


def test_what_would_harm_the_outputs_is_left() -> None:
    source = parse(PRODUCTS)
    first, second = random_feeds(source, 2)
    feeds = [first, {"x": -second["x"]}]  # what shifts the one to one side shifts the other to the other side
    plain = corrected(source, feeds, f"{INT4},calibrate")[1]
    model, context = corrected(source, feeds)
    assert artifact(context, "simulation") == artifact(plain, "simulation")
    told = "keeps its bias: the outputs' squared error is 0.017 of their size without, 0.0226 with it"
    assert [one.subject for one in model.journal.remarks if one.reason == told] == LAYERS


UNEVEN = """g (float[1, 8] x) => (float[1, 2] y)
    <float[8, 2] v = {1, 0, 0.4, 0, 0.4, 0, 0.4, 0, 0, 1, 0, 0.4, 0, 0.4, 0, 0.4}, float[2] b = {0, 0},
     float[2, 2] w = {1, 1, 0, 0}> {
    m = Gemm(x, v, b)
    y = MatMul(m, w)
}"""


def test_a_shift_that_varies_where_nothing_reads_it_does_not_shrink_others() -> None:
    source = parse(UNEVEN)
    feeds = [{"x": np.float32([[1, 1, 1, 1, *4 * [sign]]])} for sign in (1, 1, -1, -1, 1, 1, -1, -1)]
    _, context = corrected(source, feeds, CORRECT.replace("int4", "int2"))
    assert np.abs(shifts(source, context, feeds, "y")).max() < 0.05


@pytest.mark.filterwarnings("error")
def test_masked_outputs_are_no_harm() -> None:
    body = CHAIN.replace("y = Conv(s, w)", "o = Conv(s, w) y = Add(o, m)")
    masked = parse(body.replace("w> {", "w, float[8] m = {inf, 0, 0, 0, 0, 0, 0, 0}> {"))
    assert corrections(corrected(masked, positive_feeds(masked, 2))[0])


def test_what_adds_axes_to_a_product_is_no_bias() -> None:
    source = parse("""g (float[2, 4] x) => (float[1, 2, 3] y) <float[4, 3] w, float[1, 1, 3] b> {
        a = MatMul(x, w)
        y = Add(a, b)
    }""")
    assert not corrections(corrected(source, list(random_feeds(source, 2)))[0])


def test_a_bias_of_two_layers_becomes_two() -> None:
    source = parse("""g (float[2, 3, 6, 6] x) => (float[2, 3, 6, 6] y)
        <float[3, 3, 1, 1] v, float[3] b, float[3, 3, 1, 1] w> {
        a = Conv(x, v, b)
        y = Conv(a, w, b)
    }""")
    feeds = positive_feeds(source, 1) * 2
    model, context = corrected(source, feeds)
    assert np.abs(shifts(source, context, feeds, "a")).max() < 0.51 * step_of(model, "b")
    biases = [op.inputs[2] for op in model.graph.ops()]
    assert len(set(biases)) == 2


def test_biases_stay_float_where_others_are() -> None:
    source = parse(CHAIN)
    feeds = positive_feeds(source, 2)
    place = INT4.replace("{weight=int4}", "{weight=int4 bias=float}")
    model = corrected(source, feeds, f"{place},calibrate,correct-bias")[0]
    assert corrections(model)
    assert not any(quantizer.spec.derived for quantizer in model.quant.quantizers())


def test_what_is_not_quantized_is_left_alone() -> None:
    source = parse(CHAIN)
    feeds = list(random_feeds(source, 2))
    model = apply("correct-bias", source, "npu", feeds)[0]
    assert model.action_count == 0


def test_without_data_that_can_be_read_again_biases_stay() -> None:
    source = parse(CHAIN)
    feeds = list(random_feeds(source, 3))
    passes = f"{CORRECT},to-simulation"
    recorded = qc.observe(source, passes, data=feeds, target="npu")
    alone = qc.compile(source, passes, target="npu", statistics=recorded)
    once = qc.compile(source, passes, data=iter(feeds), target="npu")
    assert alone.model == once.model
    found = [note for one in (alone, once) for note in one.notes if note.startswith("biases stay")]
    told = "biases stay as they are: pass 'correct-bias' needs data"
    advice = "give --data (data= in Python), beside statistics too"
    assert found == [f"{told} to measure shifts on; {advice}", f"{told} that can be read again"]


def test_recorded_statistics_do_for_calibration() -> None:
    source = parse(CHAIN)
    feeds = list(random_feeds(source, 3))
    passes = f"{CORRECT},to-simulation"
    recorded = qc.observe(source, passes, data=feeds, target="npu")
    plain = qc.compile(source, passes, data=feeds, target="npu")
    assert qc.compile(source, passes, data=feeds, target="npu", statistics=recorded).model == plain.model


def biases(model: Model) -> list[np.ndarray]:
    """The biases that have a grid."""
    sites = (
        site for held in model.quant.quantizers() if held.spec.derived for site in model.quant.sites_of(held)
    )
    return [site.value.const.numpy() for site in sites if site.value.const is not None]


def test_results_without_a_mean_tell_nothing() -> None:
    source = parse(
        CHAIN.replace("float[4, 3, 8, 8] x", "float[N, 3, 8, 8] x").replace("float[4, 2", "float[N, 2")
    )
    feeds = positive_feeds(parse(CHAIN), 2)
    overflowing, empty = ({"x": np.full((4, 3, 8, 8), 1e38, np.float32)}, {"x": feeds[0]["x"][:0]})
    executor = OrtExecutor(allow_nonfinite=True)
    recorded = qc.observe(source, CORRECT, data=feeds, target="npu")
    found = [
        qc.compile(source, CORRECT, data=data, target="npu", executor=executor, statistics=recorded).ir
        for data in (feeds, [feeds[0], feeds[1], empty, empty], [*feeds, overflowing, overflowing])
    ]
    assert [len(corrections(model)) for model in found] == [3, 3, 3]
    assert all(np.isfinite(array).all() for model in found for array in biases(model))


@pytest.mark.parametrize("before", ["", "round-weights", "correct-bias"])
def test_the_float_model_keeps_its_biases(before: str) -> None:
    source = parse(CHAIN)
    feeds = positive_feeds(source, 4)
    passes = f"{INT4},calibrate,{before},correct-bias,to-simulation".replace(",,", ",")
    made = qc.compile(source, passes, data=feeds, target="npu")
    exact = run_model(source, feeds[0])["y"]
    np.testing.assert_allclose(run_model(made.float_model, feeds[0])["y"], exact, rtol=1e-5)
    errors = [
        np.square(run_model(made.simulation, feed)["y"] - run_model(source, feed)["y"]).sum()
        for feed in feeds
    ]
    plain = qc.compile(source, passes.replace(",correct-bias", ""), data=feeds, target="npu").simulation
    others = [np.square(run_model(plain, feed)["y"] - run_model(source, feed)["y"]).sum() for feed in feeds]
    assert sum(errors) <= sum(others)


UNUSUAL = {
    "no floats": """s = Conv(x, v, b) y = If(c) <
        then_branch = t () => (int64[1, 1, 8, 8] o) { o = ArgMax<axis = 1>(s) },
        else_branch = e () => (int64[1, 1, 8, 8] p) { p = ArgMin<axis = 1>(s) }>""",
    "found things": """s = Conv(x, v, b) zero = Constant<value = float {0.0}>() above = Greater(s, zero)
        places = NonZero(above) turned = Transpose(places) y = GatherND(s, turned)""",
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_outputs_that_tell_nothing_are_not_judged(name: str) -> None:
    kind = "int64[1, 1, 8, 8]" if name == "no floats" else "float[N]"
    head = f"g (float[1, 3, 8, 8] x, bool c) => ({kind} y) <float[6, 3, 1, 1] v, float[6] b>"
    source = parse(f"{head} {{ {UNUSUAL[name]} }}")
    feeds = list(random_feeds(source, 4))
    qc.compile(source, "w8a8", data=feeds, target="ort-cpu")
    model = qc.compile(source, f"{CORRECT},insert-qdq", data=feeds, target="npu").ir
    assert not corrections(model)


def test_integers_are_judged_by_the_floats_that_they_are_made_of() -> None:
    body = CHAIN.replace("float[4, 2, 8, 8] y", "int64[4, 8, 8] y")
    source = parse(body.replace("y = Conv(s, w)", "o = Conv(s, w) y = ArgMax<axis = 1, keepdims = 0>(o)"))
    model = corrected(source, positive_feeds(source, 4), target="ort-cpu")[0]
    assert corrections(model) == ["Conv of 'c'", "Conv of 'e'", "Conv of 'o'"]


def test_an_output_of_zeros_does_not_decide() -> None:
    body = CHAIN.replace("(float[4, 2, 8, 8] y)", "(float[4, 2, 8, 8] y, float[4, 2, 8, 8] z)")
    source = parse(body.replace("y = Conv(s, w)", "y = Conv(s, w) n = Abs(y) m = Neg(n) z = Relu(m)"))
    assert corrections(corrected(source, positive_feeds(source, 4))[0])


def test_one_sample_tells_nothing() -> None:
    source = parse(CHAIN)
    model = corrected(source, positive_feeds(source, 1))[0]
    assert any(one.reason.startswith("keeps its bias: a single sample") for one in model.journal.remarks)


def test_only_so_many_samples_are_used() -> None:
    source = parse(CHAIN)
    feeds = positive_feeds(source, 4)
    recorded = qc.observe(source, CORRECT, data=feeds, target="npu")
    passes = f"{INT4},calibrate,correct-bias{{samples=2}},to-simulation"
    made = [
        qc.compile(source, each, data=data, target="npu", statistics=recorded).model
        for each, data in ((passes, feeds), (passes, feeds[::2]), (passes.replace("2", "4"), feeds))
    ]
    assert made[0] == made[1] != made[2]


ALONE = {
    "groups": """g (float[8, 4, 9, 9] x) => (float[8, 6, 7, 7] y)
        <float[6, 2, 3, 3] w> { y = Conv<group = 2>(x, w) }""",
    "transposed": """g (float[8, 4, 40, 40] x) => (float[8, 6, 81, 81] y)
        <float[4, 3, 3, 3] w> { y = ConvTranspose<group = 2, strides = [2, 2]>(x, w) }""",
    "gemm": """g (float[64, 8] x) => (float[64, 6] y) <float[6, 8] w, float[6] b> {
        y = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(x, w, b) }""",
    "product": """g (float[4, 16, 8] x) => (float[4, 16, 6] y) <float[8, 6] w, float[6] b> {
        m = MatMul(x, w)
        y = Add(b, m) }""",
    "vector": """g (float[8] x) => (float[6] y) <float[8, 6] w, float[6] b> {
        m = MatMul(x, w)
        y = Add(b, m) }""",
    "older": """<ir_version: 8, opset_import: ["" : 13]> g (float[8, 4, 9, 9] x) => (float[8, 6, 7, 7] y)
        <float[6, 4, 3, 3] w> { y = Conv(x, w) }""",
}


@pytest.mark.parametrize("name", ALONE)
def test_shifts_of_other_samples_are_taken_back(name: str) -> None:
    source = parse(ALONE[name])
    feeds = positive_feeds(source, 64)
    int3 = INT4.replace("int4", "int3")
    found = []
    for passes in ("calibrate", "calibrate,correct-bias"):
        made = artifact(apply(f"{int3},{passes},to-simulation", source, "npu", feeds[:32])[1], "simulation")
        outputs = [(run_model(made, feed)["y"], run_model(source, feed)["y"]) for feed in feeds[32:]]
        channel = 1 if name in ("groups", "transposed", "older") else -1
        error = np.moveaxis(np.stack([a - b for a, b in outputs]), channel if channel < 0 else channel + 1, 0)
        found.append(np.abs(error.reshape(len(error), -1).mean(axis=1)).max())
    assert found[1] < 0.35 * found[0]


def test_one_run_on_each_sample_corrects_a_chain() -> None:
    source = parse(CHAIN)
    feeds = positive_feeds(source, 16)
    plain = corrected(source, feeds, f"{INT4},calibrate")[1]
    _, context = corrected(source, feeds)
    for name in TENSORS:
        before, after = (np.abs(shifts(source, one, feeds, name)).mean() for one in (plain, context))
        assert after < 0.3 * before, name
