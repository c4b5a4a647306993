"""The pass round-weights: codes for which the results of layers change least on data."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from support.models import parse, random_feeds
from support.pipelines import PLACE, Feeds, apply, artifact, run_model

import qc
from qc.ir.model import Model
from qc.ir.quant.arithmetic import rounded
from qc.passes import PassContext
from qc.passes.optimize.weights.coordinate import coordinate_descent
from qc.passes.optimize.weights.gptq import gptq
from qc.passes.optimize.weights.problem import Problem

INT4 = (
    PLACE.replace("insert-quantizers", "insert-quantizers{weight=int4}") + ",annotate-per-channel,calibrate"
)
LAYERS = {
    "padded convolution": """g (float[4, 3, 8, 8] x) => (float[4, 6, 4, 4] y)
        <float[6, 3, 3, 3] w, float[6] b> { y = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b) }""",
    "groups": """g (float[4, 8, 6, 6] x) => (float[4, 6, 2, 2] y)
        <float[6, 4, 3, 3] w> { y = Conv<group = 2, dilations = [2, 2]>(x, w) }""",
    "depthwise": """g (float[4, 8, 6, 6] x) => (float[4, 8, 6, 6] y)
        <float[8, 1, 3, 3] w> { y = Conv<group = 8, auto_pad = "SAME_UPPER">(x, w) }""",
    "gemm": """g (float[64, 24] x) => (float[64, 6] y)
        <float[6, 24] w, float[6] b> { y = Gemm<transB = 1, alpha = 0.5>(x, w, b) }""",
    "transposed gemm": """g (float[24, 64] x) => (float[64, 6] y)
        <float[24, 6] w> { y = Gemm<transA = 1>(x, w) }""",
    "product": """g (float[4, 16, 24] x) => (float[4, 16, 6] y) <float[24, 6] w> { y = MatMul(x, w) }""",
}
DEEP = """g (float[8, 3, 8, 8] x) => (float[8, 10] y)
    <float[8, 3, 3, 3] v, float[8] b, float[8, 1, 3, 3] d, float[16, 8, 1, 1] w, float[16, 10] f> {
    c = Conv<pads = [1, 1, 1, 1]>(x, v, b)
    r = Relu(c)
    e = Conv<pads = [1, 1, 1, 1], group = 8>(r, d)
    s = Relu(e)
    t = Conv(s, w)
    u = Relu(t)
    m = GlobalAveragePool(u)
    n = Flatten(m)
    y = MatMul(n, f)
}"""


def problem(rng: np.random.Generator, outputs: int, features: int, bits: int = 4, groups: int = 1) -> Problem:
    """A problem with features that depend on each other."""
    mixed = rng.normal(size=(groups, features, features))
    data = rng.normal(size=(groups, 4 * features, features)) @ mixed
    gram = np.swapaxes(data, 1, 2) @ data / data.shape[1] + 1e-3 * np.eye(features)
    wanted = rng.normal(size=(groups, outputs, features))
    scale = np.broadcast_to(np.abs(wanted).max(2, keepdims=True) / (2 ** (bits - 1) - 1), wanted.shape)
    return Problem(wanted, gram, scale, np.zeros_like(wanted), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def error_with(given: Problem, codes: np.ndarray) -> np.ndarray:
    """What a problem wants to be least, for each output."""
    error = given.wanted - given.numbers(codes)
    return np.einsum("goi,gij,goj->go", error, given.gram, error)


def gptq_by_inverse(
    weight: np.ndarray, gram: np.ndarray, scale: np.ndarray, low: int, high: int
) -> np.ndarray:
    """GPTQ as its paper has it, by the inverse of the Gram matrix: one row of weights."""
    order = np.argsort(-np.diag(gram), kind="stable")
    weight, gram, scale = weight[order].copy(), gram[np.ix_(order, order)], scale[order]
    inverse = np.linalg.inv(gram)
    codes = np.empty_like(weight)
    for i in range(len(weight)):
        codes[i] = np.clip(np.rint(weight[i] / scale[i]), low, high)
        error = (weight[i] - codes[i] * scale[i]) / inverse[i, i]
        weight[i:] -= error * inverse[i, i:]
        inverse -= np.outer(inverse[:, i], inverse[i]) / inverse[i, i]
    return codes[np.argsort(order)]


def test_gptq_is_that_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    for features in (1, 2, 7, 30, 150):
        given = problem(rng, 5, features, groups=2)
        found = gptq(given)
        for group, output in np.ndindex(2, 5):
            expected = gptq_by_inverse(
                given.wanted[group, output], given.gram[group], given.scale[group, output], -8, 7
            )
            np.testing.assert_array_equal(found[group, output], expected)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 3), st.sampled_from([2, 3, 4, 8]))
def test_descent_ends_where_no_single_code_can_be_better(
    seed: int, size: int, groups: int, bits: int
) -> None:
    given = problem(np.random.default_rng(seed), 3, size, bits, groups)
    start = given.nearest(given.wanted)
    found = coordinate_descent(given, start, sweeps=1000)
    least = error_with(given, found)
    assert (least <= error_with(given, start) * (1 + 1e-9)).all()
    for feature, step in itertools.product(range(size), (-1, 1)):
        moved = found.copy()
        moved[..., feature] = np.clip(moved[..., feature] + step, given.lowest, given.highest)
        assert (error_with(given, moved) >= least * (1 - 1e-9)).all()


def test_most_codes_of_small_layers_are_the_best_there_are() -> None:
    rng = np.random.default_rng(1)
    cases = [problem(rng, 1, 4, bits=2) for _ in range(200)]
    best = 0
    for case in cases:
        every = np.array(list(itertools.product(range(-2, 2), repeat=4)), np.float64)
        least = min(error_with(case, codes[np.newaxis, np.newaxis])[0, 0] for codes in every)
        found = error_with(case, coordinate_descent(case, gptq(case)))[0, 0]
        assert least * (1 - 1e-9) <= found
        best += found <= least * (1 + 1e-9)
    assert best > 130


def compiled(
    source: onnx.ModelProto, feeds: Feeds, passes: str = f"{INT4},round-weights"
) -> tuple[Model, PassContext]:
    return apply(f"{passes},insert-qdq{{opset=raise}}", source, "npu", feeds)[:2]


def error_of(source: onnx.ModelProto, context: PassContext, feeds: Feeds) -> float:
    """The mean square of what the quantized output differs by from the float one, as a share of that."""
    made = artifact(context, "qdq")
    pairs = [(run_model(source, feed)["y"], run_model(made, feed)["y"]) for feed in feeds]
    return float(sum(np.square(b - a).sum() for a, b in pairs) / sum(np.square(a).sum() for a, _ in pairs))


def dependent_feeds(source: onnx.ModelProto, count: int) -> Feeds:
    """Random feeds whose neighbours are alike, as those of pictures and sentences are, and not of mean 0."""
    found = []
    for feed in random_feeds(source, count):
        x = feed["x"].astype(np.float64)
        for axis in range(x.ndim):
            x = x + np.roll(x, 1, axis)
        found.append({"x": (x + 0.5).astype(np.float32)})
    return found


@pytest.mark.parametrize("name", list(LAYERS))
def test_every_kind_of_layer_comes_nearer_to_float(name: str) -> None:
    source = parse(LAYERS[name])
    feeds = dependent_feeds(source, 4)
    plain = error_of(source, compiled(source, feeds, INT4)[1], feeds)
    model, context = compiled(source, feeds)
    assert error_of(source, context, feeds) < 0.8 * plain
    (remark,) = [one for one in model.journal.remarks if one.reason.startswith("gptq-coordinate: ")]
    assert "with the nearest" in remark.reason


def test_later_layers_make_up_for_earlier_ones() -> None:
    source = parse(DEEP)
    feeds = dependent_feeds(source, 6)
    unseen = dependent_feeds(source, 12)[6:]
    plain, alone, together = (
        error_of(source, compiled(source, feeds, f"{INT4}{rounding}")[1], unseen)
        for rounding in ("", ",round-weights{mismatch=0}", ",round-weights")
    )
    assert together < alone < plain


def test_the_chosen_codes_are_written() -> None:
    source = parse(DEEP)
    feeds = dependent_feeds(source, 4)
    model, context = compiled(source, feeds)
    chosen = [quantizer for quantizer in model.quant.quantizers() if quantizer.codes is not None]
    assert len(chosen) == 4
    stored = [numpy_helper.to_array(one) for one in artifact(context, "qdq").graph.initializer]
    for quantizer in chosen:
        (site,) = model.quant.sites_of(quantizer)
        assert quantizer.codes is not None and site.value.const is not None
        assert any(
            np.array_equal(np.asarray(one, np.int32), quantizer.codes)
            for one in stored
            if one.dtype != np.float32
        )
        assert not np.array_equal(rounded(site.value.const.numpy(), quantizer), site.value.const.numpy())


def test_weights_that_others_read_too_and_wide_ones_keep_the_nearest_codes() -> None:
    source = parse(
        """g (float[4, 8] x) => (float[4, 8] y) <float[8, 8] w> { h = MatMul(x, w) y = MatMul(h, w) }"""
    )
    feeds = list(random_feeds(source, 2))
    wide = INT4.replace("int4", "int16")
    for passes in (INT4, wide):
        model, _ = compiled(source, feeds, f"{passes},round-weights")
        assert all(quantizer.codes is None for quantizer in model.quant.quantizers())


def test_only_layers_that_are_named() -> None:
    source = parse(DEEP)
    names = ["first", "second", "third", "fourth"]
    layers = [node for node in source.graph.node if node.op_type in ("Conv", "MatMul")]
    for node, name in zip(layers, names, strict=True):
        node.name = name
    feeds = dependent_feeds(source, 2)
    model, _ = compiled(source, feeds, f"{INT4},round-weights{{only=[second,fourth]}}")
    chosen = [quantizer for quantizer in model.quant.quantizers() if quantizer.codes is not None]
    assert [str(model.quant.sites_of(one)[0].value.name) for one in chosen] == ["d", "f"]
    with pytest.raises(
        qc.UsageError, match=r"no layer 'secnd' in the main graph \(did you mean 'second'\?\)"
    ):
        compiled(source, feeds, f"{INT4},round-weights{{only=[secnd]}}")


def test_what_is_computed_from_constants_and_what_is_empty_is_left_alone() -> None:
    source = parse("""g (float[4, 8] x) => (float[4, 3] y, float[2, 8] z, float[4, 0] e)
        <float[8, 3] w, float[8, 8] v, float[2, 8] c, float[8, 0] n> {
        y = MatMul(x, w)
        z = MatMul(c, v)
        e = MatMul(x, n)
    }""")
    model, _ = compiled(source, list(random_feeds(source, 2)))
    chosen = [quantizer for quantizer in model.quant.quantizers() if quantizer.codes is not None]
    assert [str(model.quant.sites_of(one)[0].value.name) for one in chosen] == ["w"]


def test_without_data_weights_keep_the_nearest_codes_and_a_note_says_so() -> None:
    source = parse(LAYERS["gemm"])
    recorded = qc.observe(source, data=list(random_feeds(source, 2)), target="npu")
    made = qc.compile(
        source, f"{INT4},round-weights,insert-qdq{{opset=raise}}", statistics=recorded, target="npu"
    )
    assert all(quantizer.codes is None for quantizer in made.ir.quant.quantizers())
    assert any("needs data" in note for note in made.notes)
