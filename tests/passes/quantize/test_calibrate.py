"""Calibration: what is observed, what is left alone, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np
import pytest
from onnx import helper, numpy_helper
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import PLACE, apply, artifact
from support.placement import of_value, of_weight, reason, value

import qc
from qc.ir.errors import DataError, ModelError, UsageError
from qc.ir.model import Model
from qc.ir.quant.spec import Encoding, QuantSpec
from qc.ir.verifier import verify
from qc.passes import PassContext, parse_pipeline, run_pipeline
from qc.passes.framework.target import load_target
from qc.passes.quantize.calibration.spread import too_few
from qc.runtime import OrtExecutor
from qc.runtime.statistics.tensor import TensorStatistics

TWO_OUTPUTS = """g (float[1, 2000] x) => (float[1, 2000] y) {
    a = Neg(x)
    y = Neg(a)
}"""


def outliers(count: int = 3) -> list[dict[str, np.ndarray]]:
    """Feeds of normal numbers with one number in each that is far outside."""
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.normal(size=(1, 2000)).astype(np.float32)} for _ in range(count)]
    for feed in feeds:
        feed["x"][0, 0] = 50
    return feeds


def numbers(model: Model, name: str) -> Encoding:
    quantizer = of_value(model, name)
    assert quantizer is not None and quantizer.encoding is not None
    return quantizer.encoding


@pytest.mark.parametrize("method", ["percentile", "mse", "entropy"])
def test_an_output_keeps_its_full_range(method: str) -> None:
    pipeline = f"{PLACE.replace('insert-quantizers', 'insert-quantizers{activation=uint4}')},calibrate"
    options = "{method=percentile percentile=99.0}" if method == "percentile" else f"{{method={method}}}"
    model = apply(pipeline + options, parse(TWO_OUTPUTS), "npu", outliers())[0]
    assert float(numbers(model, "y").maximum) > 45
    assert abs(float(numbers(model, "a").minimum)) < 35
    assert float(numbers(model, "x").maximum) < 35


def test_the_average_range_weighs_every_feed_alike() -> None:
    feeds = [{"x": np.linspace(-k, 2 * k, 2000, dtype=np.float32).reshape(1, 2000)} for k in (1, 2, 6)]
    model = apply(f"{PLACE},calibrate{{method=moving-average}}", parse(TWO_OUTPUTS), "npu", feeds)[0]
    encoding = numbers(model, "x")
    assert float(encoding.minimum) == pytest.approx(-3, abs=0.02)
    assert float(encoding.maximum) == pytest.approx(6, abs=0.02)
    assert float(numbers(model, "y").maximum) == pytest.approx(12, abs=0.05)  # an output keeps its range


def test_the_range_is_that_of_all_feeds() -> None:
    feeds = [{"x": np.full((1, 2000), number, np.float32)} for number in (-3, 1, 7)]
    model = apply(f"{PLACE},calibrate", parse(TWO_OUTPUTS), "npu", feeds)[0]
    step = float(numbers(model, "x").scale)
    assert float(numbers(model, "x").minimum) == pytest.approx(-3, abs=step)
    assert float(numbers(model, "x").maximum) == pytest.approx(7, abs=step)


@pytest.mark.parametrize(
    ("activation", "options", "reach"),
    [
        ("uint16", "", 2.0),
        ("uint16", "{headroom=1}", 1.0),
        ("uint16", "{headroom=3 method=mse}", 3.0),
        ("uint16", "{method=percentile percentile=100}", 1.0),
        ("uint8", "", 1.0),
        ("uint8", "{headroom=3}", 1.0),
    ],
)
def test_grids_of_16_bits_reach_beyond_the_samples(activation: str, options: str, reach: float) -> None:
    feeds = [{"x": np.linspace(-2, 6, 2000, dtype=np.float32).reshape(1, 2000)}]
    place = PLACE.replace("insert-quantizers", f"insert-quantizers{{activation={activation}}}")
    model = apply(f"{place},calibrate{options}", parse(TWO_OUTPUTS), "npu", feeds)[0]
    found = numbers(model, "x")
    assert float(found.minimum) == pytest.approx(-2 * reach, abs=float(found.scale))
    assert float(found.maximum) == pytest.approx(6 * reach, abs=float(found.scale))


def test_an_end_at_zero_stays_there() -> None:
    feeds = [{"x": np.linspace(0, 6, 2000, dtype=np.float32).reshape(1, 2000)}]
    place = PLACE.replace("insert-quantizers", "insert-quantizers{activation=uint16}")
    found = numbers(apply(f"{place},calibrate", parse(TWO_OUTPUTS), "npu", feeds)[0], "x")
    assert float(found.minimum) == 0 and float(found.maximum) == pytest.approx(12, abs=float(found.scale))


@pytest.mark.parametrize(
    ("ops", "ends"),
    [
        ("a = HardSwish(x) y = Transpose<perm = [1, 0]>(a)", (-0.375, 10 / 3)),
        ("a = Constant<value_float = -1.5>() y = Clip(x, a)", (-1.5, 4)),
        ("y = Neg(x)", (-4, 4)),
    ],
)
def test_nor_do_grids_reach_where_no_data_can_be(ops: str, ends: tuple[float, float]) -> None:
    feeds = [{"x": np.linspace(-2, 2, 400, dtype=np.float32).reshape(20, 20)}]
    place = PLACE.replace("insert-quantizers", "insert-quantizers{activation=uint16}")
    model = parse(f"g (float[20, 20] x) => (float[20, 20] y) {{ {ops} }}")
    found = numbers(apply(f"{place},calibrate", model, "npu", feeds)[0], "y")
    assert (float(found.minimum), float(found.maximum)) == pytest.approx(ends, abs=float(found.scale))


def test_the_data_is_read_once() -> None:
    reads = 0

    class Feeds:
        def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
            nonlocal reads
            reads += 1
            yield from outliers(5)

    ir = apply(PLACE, parse(TWO_OUTPUTS), "npu")[0]
    context = PassContext(
        data=Feeds(), executor=OrtExecutor(threads=1), target=load_target("npu"), verify=verify
    )
    run_pipeline(parse_pipeline("calibrate{method=mse}"), ir, context)
    assert reads == 1


def test_what_is_calibrated_is_left_alone() -> None:
    model = apply(f"{PLACE},calibrate", parse(TWO_OUTPUTS), "npu", outliers())[0]
    before = {quantizer: quantizer.encoding for quantizer in model.quant.quantizers()}
    _, _, report = apply("calibrate", model, "npu", [{"x": np.zeros((1, 2000), np.float32)}])
    assert report.actions == 0
    assert all(quantizer.encoding is encoding for quantizer, encoding in before.items())


def test_weights_need_no_data() -> None:
    text = "g (float[1, 4] x) => (float[1, 2] y) <float[4, 2] w> { y = MatMul(x, w) }"
    model = apply("insert-quantizers{activation=float16},calibrate", parse(text))[0]
    weight = of_weight(model, "y")
    assert weight is not None and weight.encoding is not None


def test_tied_tensors_share_a_range_that_covers_all() -> None:
    text = """g (float[1, 4] x, float[1, 4] v) => (float[1, 12] y) <float[1, 4] k = {-9, 0, 0, 0}> {
        a = Neg(x)
        b = Abs(v)
        y = Concat<axis = 1>(a, b, k)
    }"""
    feeds = [{"x": np.full((1, 4), -2, np.float32), "v": np.full((1, 4), 5, np.float32)}]
    model = apply(f"{PLACE},calibrate", parse(text), "npu", feeds)[0]
    encoding = numbers(model, "y")
    assert of_value(model, "a") is of_value(model, "y")
    assert float(encoding.minimum) == pytest.approx(-9, abs=0.06)
    assert float(encoding.maximum) == pytest.approx(5, abs=0.06)


def test_tensors_that_were_always_empty_stay_float() -> None:
    text = "g (float[N, 4] x) => (float[N, 2] y) <float[4, 2] w> { y = MatMul(x, w) }"
    feeds = [{"x": np.zeros((0, 4), np.float32)}]
    model, context, _ = apply(f"{PLACE},calibrate,insert-qdq", parse(text), "npu", feeds)
    assert of_value(model, "x") is None and of_weight(model, "y") is not None
    assert reason(model, "x") == "no calibration sample reached it"
    assert context.notes and "reached 'x' and 1 more" in context.notes[0] and "not empty" in context.notes[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_is_no_number(bad: float) -> None:
    feeds = outliers()
    feeds[1]["x"][0, 5] = bad
    with pytest.raises(DataError, match="'x'"):
        apply(f"{PLACE},calibrate", parse(TWO_OUTPUTS), "npu", feeds)


def test_no_data() -> None:
    with pytest.raises(DataError):
        apply(f"{PLACE},calibrate", parse(TWO_OUTPUTS), "npu", [])
    with pytest.raises(UsageError, match="calibration data"):
        apply(f"{PLACE},calibrate", parse(TWO_OUTPUTS), "npu")


@pytest.mark.parametrize("name", ["w", "b"])
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_weights_that_are_no_numbers(name: str, bad: float) -> None:
    weights = {"w": np.ones((4, 2), np.float32), "b": np.ones(2, np.float32)}
    weights[name].flat[1] = bad
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    constants = [numpy_helper.from_array(array, key) for key, array in weights.items()]
    proto = model_of([node], [floats("x", 1, 4)], [floats("y", 1, 2)], constants)
    with pytest.raises(ModelError, match=f"'{name}' holds NaN or infinity"):
        apply(f"{PLACE},calibrate", proto, "ort-cpu", random_feeds(proto))


def test_a_fixed_range_needs_no_observation() -> None:
    model = apply(PLACE, parse(TWO_OUTPUTS), "npu")[0]
    quantizer = of_value(model, "a")
    assert quantizer is not None
    model.quant.respec(quantizer, QuantSpec.of("uint8", fixed_range=(-1.0, 1.0)), "by hand")
    apply("calibrate", model, "npu", outliers())
    assert float(numbers(model, "a").maximum) == pytest.approx(1, abs=0.01)
    assert value(model, "a").type.shape == (1, 2000)


@pytest.mark.parametrize("shared", [False, True], ids=["one reader", "two readers"])
def test_activations_behind_rounded_parameters(shared: bool) -> None:
    """Each reader of a weight sees it rounded to the grid that it has there."""
    second = "z = MatMul(x, w)" if shared else "z = Relu(y)"
    text = f"""g (float[1, 2] x) => (float[1, 1] y, float[1, 1] z) <float[2, 1] w = {{1, 0.2}}> {{
        y = MatMul(x, w)  {second}
    }}"""
    feeds = [{"x": np.array([[0, 1]], np.float32)}]
    passes = "insert-quantizers{weight=int3},calibrate{rounded_parameters=true}"
    model = apply(passes, parse(text), "npu", feeds)[0]
    for name in ("y", "z") if shared else ("y",):
        made = of_value(model, name)
        assert made is not None and made.encoding is not None
        assert float(made.encoding.maximum) == pytest.approx(1 / 3), "0.2 is rounded to a third"


def test_a_folded_constant_is_named_with_its_reader() -> None:
    proto = parse(
        """g (float[1, 4] x) => (float[1, 2] y) <float[4, 2] w = {0, 1, 1, 1, 1, 1, 1, 1}> {
            l = Log(w)
            y = MatMul(x, l)
        }"""
    )
    with pytest.raises(ModelError, match="the constant 'l' holds NaN or infinity, which MatMul of 'y' reads"):
        apply(f"fold-constants,{PLACE},calibrate", proto, "ort-cpu", random_feeds(proto))


def test_the_scales_of_a_dead_channel_stay_near_the_others_where_the_device_needs_it() -> None:
    weights = ", ".join(["1e-9"] * 4 + ["1", "-0.5", "0.25", "0.125"])
    source = parse(f"""g (float[1, 4, 2, 2] x) => (float[1, 2, 2, 2] y) <
        float[2, 4, 1, 1] w = {{{weights}}}, float[2] b = {{3, 4}}> {{ y = Conv(x, w, b) }}""")
    spans = {}
    for target in ("ort-cpu", "qnn-htp"):
        model, _, _ = apply(f"{PLACE},calibrate", source, target, random_feeds(source, 2))
        encoding = of_weight(model, "y").encoding
        assert encoding is not None
        spans[target] = float(encoding.scale.max() / encoding.scale.min())
    assert spans["ort-cpu"] > 10_000 and spans["qnn-htp"] == pytest.approx(1024)


@pytest.mark.parametrize("target, reach", [("qnn-htp", 0.01), ("npu", 2.0**-60 * 255)])
def test_what_is_always_zero_has_a_range_that_the_device_can_multiply(target: str, reach: float) -> None:
    """A state at its beginning; the HTP's emulator gives wrong codes of products on too small a range."""
    text = "g (float[1, 4] h) => (float[1, 4] y) <float[4, 4] w, float[4] b> { y = Gemm(h, w, b) }"
    model = apply(f"{PLACE},calibrate", parse(text), target, [{"h": np.zeros((1, 4), np.float32)}])[0]
    encoding = numbers(model, "h")
    assert float(encoding.maximum - encoding.minimum) == pytest.approx(reach)


def test_a_range_is_no_smaller_than_the_device_takes() -> None:
    feed = {"x": np.full((1, 2000), -1e-6, np.float32)}
    model, context, _ = apply(f"{PLACE},calibrate,insert-qdq", parse(TWO_OUTPUTS), "qnn-htp", [feed])
    assert not qc.check(artifact(context, "qdq"), "qnn-htp").broken
    for name in ("x", "a", "y"):
        encoding = numbers(model, name)
        assert float(encoding.maximum - encoding.minimum) == pytest.approx(1e-4, rel=0.02)
        assert float(encoding.minimum) <= 0 <= float(encoding.maximum)


@pytest.mark.parametrize("number, reach", [(1e-8, 1e-4), (0.0, 0.01)])
def test_nor_is_that_of_a_constant(number: float, reach: float) -> None:
    text = (
        f"g (float[1, 4] x) => (float[1, 4] y) <float z = {{{number:.9f}}}> {{ a = Relu(x) y = Add(a, z) }}"
    )
    feed = {"x": np.ones((1, 4), np.float32)}
    model, context, _ = apply(f"{PLACE},calibrate,insert-qdq", parse(text), "qnn-htp", [feed])
    assert not qc.check(artifact(context, "qdq"), "qnn-htp").broken
    (encoding,) = (
        quantizer.encoding
        for quantizer in model.quant.quantizers()
        if any(site.value.name == "z" for site in model.quant.sites_of(quantizer))
    )
    assert encoding is not None
    assert float(encoding.maximum - encoding.minimum) == pytest.approx(reach, rel=0.02)


def test_the_ranges_of_inputs_tell_nothing_of_the_spread_of_others() -> None:
    """Pictures are from 0 to 1, be there one of them or many."""
    source = parse("g (float[2] a, float[2] b, float[2] c) => (float[2] y) { y = Sum(a, b, c) }")
    model = apply("eliminate-dead-code", source)[0]
    seen = {one: spread(np.ones(16)) for one in model.graph.inputs}
    seen[value(model, "y")] = spread(0.5 ** np.arange(16))
    assert "or more with twice as many samples as these 16" in too_few(seen, model.graph.inputs)
    seen[value(model, "y")] = spread(np.linspace(0.9, 1, 16))
    assert not too_few(seen, model.graph.inputs)


def spread(tops: np.ndarray) -> TensorStatistics:
    """Statistics of feeds of numbers from 0 to each of ``tops``."""
    return reduce(TensorStatistics.merge, (TensorStatistics.from_array(np.array([0, top])) for top in tops))


@pytest.mark.parametrize("target", ["npu", "qnn-htp"])
def test_the_tanh_of_a_soft_cap_has_the_range_that_it_takes(target: str) -> None:
    """From -1 to 1 its results were a code or two."""
    model = parse("""g (float[1, 64] x) => (float[1, 64] y) <float cap = {50}> {
        small = Div(x, cap)
        bent = Tanh(small)
        y = Mul(bent, cap)
    }""")

    def highest(size: float, pipeline: str = "w8a8") -> float:
        feeds = [{"x": np.linspace(-size, size, 64, dtype=np.float32)[None]}]
        held = of_value(qc.compile(model, pipeline, data=feeds, target=target, threads=1).ir, "bent")
        assert held is not None and held.encoding is not None
        return float(held.encoding.maximum)

    assert 0.07 < highest(4.0) < 0.1
    assert highest(40.0) > 0.98
    for nothing in (0.0, 0.1):  # a branch that the data left idle
        assert highest(nothing) > 0.98
    if target == "qnn-htp":  # which fixes the scale itself
        assert highest(4.0, "w8a16") > 0.98
