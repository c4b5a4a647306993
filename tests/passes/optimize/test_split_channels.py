"""The pass split-channels: large channels become several, and the float model computes the same."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply, artifact, run_model
from support.properties import check_outputs

from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.passes.optimize.split_channels import _copies

CONVOLUTIONS = """g (float[2, 3, 6, 6] x) => (float[2, 5, 3, 3] y)
    <float[20, 3, 1, 1] v, float[20] b, float[20, 1, 3, 3] d, float[20] c, float[5, 20, 1, 1] w> {
    a = Conv(x, v, b)
    r = Relu(a)
    e = Conv<pads = [1, 1, 1, 1], group = 20>(r, d, c)
    s = LeakyRelu(e)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(s)
    y = Conv(p, w)
}"""
PRODUCTS = """g (float[N, 3] x) => (float[N, 4] y, float[N, 2] z)
    <float[3, 20] v, float[20] b, float[20, 4] w, float[2, 20] u> {
    m = MatMul(x, v)
    a = Add(b, m)
    r = Relu(a)
    y = MatMul(r, w)
    z = Gemm<transB = 1>(r, u)
}"""


def with_outlier(text: str, name: str = "v", channel: int = 3, factor: float = 30) -> onnx.ModelProto:
    """The model with one large channel, along the axis of length 20."""
    model = parse(text)
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    array = np.clip(numpy_helper.to_array(tensor), -1, 1)
    np.moveaxis(array, array.shape.index(20), 0)[channel] *= factor
    tensor.CopyFrom(numpy_helper.from_array(array, name))
    return model


def split(source: onnx.ModelProto, options: str = "") -> Model:
    feeds = random_feeds(source, 3)
    model, _, _ = apply(f"split-channels{options}", source, feeds=feeds)
    check_outputs(source, lower(model), feeds[0], 1e-5)
    onnx.checker.check_model(lower(model), full_check=True)
    return model


def reasons(model: Model) -> list[str]:
    return [remark.reason for remark in model.journal.actions()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CONVOLUTIONS, "2 of 20 into 5, the largest range of activations is 0.47 of what it was"),
        (PRODUCTS, "1 of 20 into 5, the largest range of activations is 0.2 of what it was"),
    ],
)
def test_a_large_channel_becomes_several(text: str, said: str) -> None:
    assert reasons(split(with_outlier(text), "{share=0.2}")) == [f"split channels: {said}"]


def test_columns_of_weights_are_divided() -> None:
    model = split(with_outlier(CONVOLUTIONS, "w"), "{of=weights}")
    found = next(
        value.const.numpy() for value in model.graph.values() if "w_split" in value.name and value.const
    )
    assert found.shape == (5, 22, 1, 1)
    np.testing.assert_array_equal(found[:, 3], found[:, 20])


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (CONVOLUTIONS, "{share=0.04}"),  # no channel may be added
        (CONVOLUTIONS, "{of=weights}"),  # no column is large
        (CONVOLUTIONS.replace("LeakyRelu(e)", "Sigmoid(e)"), ""),
        (CONVOLUTIONS.replace("LeakyRelu(e)", "Add(e, r)"), ""),
        (CONVOLUTIONS.replace("[2, 5, 3, 3] y", "[2, 5, 3, 3] y, float[2, 20, 6, 6] e"), ""),
        (PRODUCTS.replace("Gemm<transB = 1>(r, u)", "MatMul(a, k) k = Transpose(u)"), ""),
    ],
)
def test_channels_stay(text: str, options: str) -> None:
    assert not reasons(split(with_outlier(text), options))


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([CONVOLUTIONS, PRODUCTS]),
    st.sampled_from(["activations", "weights"]),
    st.integers(0, 19),
    st.sampled_from([0.5, 10, 1000]),
    st.sampled_from([0.1, 0.3, 1]),
)
def test_the_model_computes_the_same(text: str, of: str, channel: int, factor: float, share: float) -> None:
    split(with_outlier(text, "w" if of == "weights" else "v", channel, factor), f"{{of={of} share={share}}}")


def test_it_helps_where_one_channel_ruins_a_tensor() -> None:
    source = with_outlier(CONVOLUTIONS)
    feeds = random_feeds(source, 4)
    errors = []
    for first in ("", "split-channels{share=0.3},"):
        made = artifact(
            apply(f"{first}{PLACE},calibrate,to-simulation", source, "npu", feeds)[1], "simulation"
        )
        errors.append(
            np.mean([(run_model(made, one)["y"] - run_model(source, one)["y"]) ** 2 for one in feeds])
        )
    assert errors[1] < errors[0] / 2


def test_memory_grows_with_the_channels_and_not_with_their_square() -> None:
    ranges = np.random.default_rng(0).lognormal(sigma=2.0, size=2000)
    tracemalloc.start()
    try:
        copies = _copies(ranges, 1.0)
        assert tracemalloc.get_traced_memory()[1] < 1000 * ranges.size
    finally:
        tracemalloc.stop()
    assert (ranges / copies).max() < ranges.max() / 2 and copies.sum() <= 2 * ranges.size
