"""The pass absorb-biases: what results are at least moves to the biases behind the Relu."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.models import parse, random_feeds
from support.pipelines import apply
from support.properties import check_outputs

from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.runtime import OrtExecutor

HIGH = "{50, 0, 1, 20, 90, 3}"
CONVOLUTIONS = f"""g (float[2, 3, 5, 5] x) => (float[A, B, C, D] y, float[E, F, G, H] z)
    <float[6, 3, 1, 1] v, float[6] b = {HIGH}, float[6, 1, 3, 3] d, float[4, 6, 1, 1] w, float[4] c> {{
    a = Conv(x, v, b)
    r = Relu(a)
    y = Conv<group = 6>(r, d)
    z = Conv(r, w, c)
}}"""
PRODUCTS = f"""g (float[N, 3] x) => (float[N, 4] y, float[N, 2] z)
    <float[3, 6] v, float[6] b = {HIGH}, float[6, 4] w, float[2, 6] u, float[1, 2] c, float[4] k,
     float zero = {{0}}> {{
    m = MatMul(x, v)
    a = Add(b, m)
    r = Clip(a, zero)
    s = MatMul(r, w)
    y = Add(s, k)
    z = Gemm<transB = 1, alpha = 0.5, beta = 2.0>(r, u, c)
}}"""


def absorbed(source: onnx.ModelProto) -> Model:
    feeds = random_feeds(source, 3)
    model, _, report = apply("absorb-biases", source, feeds=feeds)
    for feed in feeds:
        check_outputs(source, lower(model), feed, 1e-5)
    assert report.actions == sum("absorb biases" in remark.reason for remark in model.journal.actions())
    return model


def least(model: onnx.ModelProto) -> np.ndarray:
    """The least result of each channel in front of the Relu."""
    runs = OrtExecutor(threads=1).run(model, random_feeds(model, 3), ["a"])
    arrays = [np.moveaxis(run["a"], 1, 0).reshape(6, -1).min(axis=1) for run in runs]
    return np.min(arrays, axis=0)


@pytest.mark.parametrize("text", [CONVOLUTIONS, PRODUCTS])
def test_what_a_channel_is_at_least_moves(text: str) -> None:
    source = parse(text)
    before, after = least(source), least(lower(absorbed(source)))
    high = before > 0.2
    assert 2 <= high.sum() < 6
    np.testing.assert_allclose(after[high], 0, atol=1e-4)
    np.testing.assert_array_equal(after[before <= 0], before[before <= 0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("z = Conv(r, w, c)", "z = Conv<pads = [0, 1, 0, 0]>(r, w, c)"),
        ("z = Conv(r, w, c)", 'z = Conv<auto_pad = "SAME_LOWER">(r, w, c)'),
        ("z = Conv(r, w, c)", "z = Neg(r)"),
        ("z = Conv(r, w, c)", "z = Neg(a)"),
        ("z = Conv(r, w, c)", "k = Identity(c) z = Conv(r, w, k)"),
        ("r = Relu(a)", "r = Sigmoid(a)"),
        (HIGH, "{0, 0, 0, 0, 0, 0}"),
    ],
)
def test_biases_stay(old: str, new: str) -> None:
    assert not absorbed(parse(CONVOLUTIONS.replace(old, new))).journal.actions()
