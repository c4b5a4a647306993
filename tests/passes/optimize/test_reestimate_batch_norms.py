"""The pass reestimate-batch-norms: normalized results are distributed as in float, whatever the grids do."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from support.folders import FIXTURES
from support.models import parse, random_feeds
from support.pipelines import PLACE, Feeds, apply, artifact, run_model

from qc.ir import lift
from qc.ir.errors import DataError
from qc.ir.facts.constants import constant_numbers
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.passes import PassContext
from qc.passes.optimize.reestimate_batch_norms import ChannelMoments, _BatchNorm
from qc.runtime import expose_tensors

INT4 = PLACE.replace("insert-quantizers", "insert-quantizers{weight=int4}").replace(
    "annotate-per-channel,", ""
)
NETWORK = """g (float[4, 3, 8, 8] x) => (float[4, 2, 8, 8] y)
    <float[6, 3, 3, 3] v, float[6] b, float[6, 1, 3, 3] d, float[2, 6, 1, 1] w,
     float[6] scale1, float[6] shift1, float[6] mean1, float[6] var1, float[6] scale2, float[6] shift2> {
    c = Conv<pads = [1, 1, 1, 1]>(x, v, b)
    n = BatchNormalization<epsilon = 0.01>(c, scale1, shift1, mean1, var1)
    r = Relu(n)
    e = Conv<pads = [1, 1, 1, 1], group = 6>(r, d)
    m = BatchNormalization(e, scale2, shift2, mean1, var1)
    s = Relu(m)
    y = Conv(s, w)
}"""


def reestimated(
    source: onnx.ModelProto, feeds: Feeds, last: str = ",reestimate-batch-norms"
) -> tuple[Model, PassContext]:
    return apply(f"{INT4},calibrate{last},to-simulation", source, "npu", feeds)[:2]


def moments(model: onnx.ModelProto, feeds: Feeds, name: str) -> np.ndarray:
    """Mean and deviation of each channel of a tensor over all feeds; shape (2, channels)."""
    shown = expose_tensors(model, [name])
    arrays = np.concatenate([run_model(shown, feed)[name] for feed in feeds]).astype(np.float64)
    return np.stack([arrays.mean(axis=(0, 2, 3)), arrays.std(axis=(0, 2, 3))])


def test_normalized_results_have_the_moments_of_the_float_model() -> None:
    source = parse(NETWORK)
    feeds = random_feeds(source, 6)
    plain, made = (
        artifact(reestimated(source, feeds, last)[1], "simulation")
        for last in ("", ",reestimate-batch-norms")
    )
    for name in ("n", "m"):
        exact = moments(source, feeds, name)
        np.testing.assert_allclose(moments(made, feeds, name), exact, atol=1e-4)
        assert np.abs(moments(plain, feeds, name) - exact).max() > 0.02


def test_statistics_that_are_stored_in_float16() -> None:
    source = parse(re.sub(r"float\b", "float16", NETWORK))
    feeds = [{"x": feed["x"].astype(np.float16)} for feed in random_feeds(parse(NETWORK), 6)]
    passes = f"convert-to-float32,{INT4},calibrate,reestimate-batch-norms,to-simulation"
    made = artifact(apply(passes, source, "npu", feeds)[1], "simulation")
    for name in ("n", "m"):
        np.testing.assert_allclose(moments(made, feeds, name), moments(source, feeds, name), atol=0.01)


def test_a_network_of_three_bits_reads_digits_again() -> None:
    source = onnx.load(FIXTURES / "digits_cnn.onnx")
    images = np.load(FIXTURES / "digits_calibration.npz")["image"]
    test = np.load(FIXTURES / "digits_test.npz")
    feeds = [{"image": images[start : start + 16]} for start in range(0, len(images), 16)]
    correct = []
    for last in ("", ",reestimate-batch-norms"):
        text = f"{INT4.replace('int4', 'int3')},calibrate{{weights=mse}}{last},to-simulation"
        made = artifact(apply(text, source, "npu", feeds)[1], "simulation")
        (scores,) = run_model(made, {"image": test["image"]}).values()
        correct.append(np.mean(scores.argmax(axis=1) == test["label"]))
    assert correct[0] < 0.9 < 0.96 < correct[1]


def test_samples_count_alike_whatever_the_size_of_a_feed() -> None:
    """Moments are those of all samples, not the averages of what each feed has."""
    source = parse(NETWORK.replace("float[4, 3", "float[N, 3").replace("float[4, 2", "float[N, 2"))
    whole = random_feeds(source, 1, size=7)[0]["x"] * np.linspace(0.1, 3, 7, dtype=np.float32).reshape(
        -1, 1, 1, 1
    )
    shares = [[{"x": whole}], [{"x": whole[:1]}, {"x": whole[1:3]}, {"x": whole[3:]}]]
    found = [
        [value.const.numpy() for value in model.graph.values() if value.name in ("var1", "var1_0")]
        for model, _ in (reestimated(source, feeds) for feeds in shares)
    ]
    for first, second in zip(*found, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-5)


def test_a_channel_that_has_died_keeps_its_deviation() -> None:
    source = parse(NETWORK)
    weight = next(tensor for tensor in source.graph.initializer if tensor.name == "v")
    array = onnx.numpy_helper.to_array(weight).copy()
    array[0], array[1] = 0, 1e-3 * array[1]  # nothing in either model; nothing on the grid
    weight.CopyFrom(onnx.numpy_helper.from_array(array, "v"))
    feeds = random_feeds(source, 4)
    made = artifact(reestimated(source, feeds)[1], "simulation")
    assert np.isfinite(run_model(made, feeds[0])["y"]).all()
    np.testing.assert_allclose(moments(made, feeds, "n")[0], moments(source, feeds, "n")[0], atol=1e-3)


def test_what_has_no_deviation_stays() -> None:
    """A variance that is left of the digits of two large squares is none; nor is there anything by 0."""
    model = lift(
        parse(
            """g (float[4, 3, 8, 8] x) => (float[4, 3, 8, 8] y)
                <float[3] scale, float[3] shift, float[3] mean = {0.5, 0.5, 0.5}, float[3] var = {4, 0, 1}> {
                y = BatchNormalization<epsilon = 0.0>(x, scale, shift, mean, var)
            }"""
        )
    )
    norm = _BatchNorm.of(model, next(iter(model.graph.ops())))
    assert norm is not None
    wanted = ChannelMoments(np.array([3e6, 1.0, 1.0]), np.array([1e-3, 0.0, 1.0]))
    found = ChannelMoments(np.array([3e6, 2.0, 2.0]), np.array([1e-9, 0.0, 4.0]))
    norm.change(Rewriter(model), wanted, found)
    (op,) = model.graph.ops()
    mean, variance = (constant_numbers(value) for value in op.inputs[3:])
    np.testing.assert_array_equal(mean, [0.5, 0.5, 1.0])
    np.testing.assert_array_equal(variance, [4, 0, 4])


FIRST, SECOND = (line for line in NETWORK.splitlines() if "BatchNormalization" in line)


@pytest.mark.parametrize(
    "norm",
    [
        "k = Abs(var1) n = BatchNormalization(c, scale1, shift1, mean1, k)",
        "n, o, p = BatchNormalization<training_mode = 1>(c, scale1, shift1, mean1, var1)",
    ],
)
def test_statistics_that_are_not_constant_stay(norm: str) -> None:
    source = parse(NETWORK.replace(FIRST, norm).replace(SECOND, "m = Identity(e)"))
    model, _ = reestimated(source, random_feeds(source, 2))
    assert not any("statistics" in remark.reason for remark in model.journal.actions())


def test_a_model_without_quantizers_stays() -> None:
    source = parse(NETWORK)
    assert not apply("reestimate-batch-norms", source, feeds=random_feeds(source, 1))[2].actions


def test_it_needs_samples() -> None:
    with pytest.raises(DataError, match="'reestimate-batch-norms' needs calibration data"):
        apply("reestimate-batch-norms", parse(NETWORK), feeds=[])


def test_what_quantization_makes_infinite_is_told() -> None:
    source = parse(
        """g (float[1, 1, 1, 4] x) => (float[1, 1, 1, 4] y)
        <float[1, 1, 1, 1] w = {1}, float[1] g = {1}, float[1] b = {0}, float[1] m = {0}, float[1] v = {1}> {
            c = Conv(x, w)
            k = Reciprocal(c)
            y = BatchNormalization(k, g, b, m, v)
        }"""
    )
    feeds = [{"x": np.array([[[[0.0001, 1, 2, 3]]]], np.float32)}]
    with pytest.raises(DataError, match="'k' becomes NaN or infinite where it is quantized"):
        apply("insert-quantizers,calibrate,reestimate-batch-norms", source, feeds=feeds)
