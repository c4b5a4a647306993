"""Sums of very many products of large codes, which would leave the 32 bits of an accumulator."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from support.models import parse, random_feeds

import qc
from qc.runtime import open_session

COUNT = 70_000


def summing(op: str, bias: float) -> ModelProto:
    """A product of 70,000 ones by ones in its first channel, and by one in its second."""
    weight = np.ones((COUNT, 2), np.float32)
    weight[1:, 1] = 0
    model = parse(f"g (float[1, {COUNT}] x) => (float[1, 2] y) {{ y = {op} }}")
    for name, array in (("w", weight), ("t", weight.T.copy()), ("b", np.full(2, bias, np.float32))):
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize("bias", [0.0, -30_000.0, 30_000.0])
@pytest.mark.parametrize("op", ["Gemm(x, w, b)", "Gemm<transB = 1>(x, t, b)", "MatMul(x, w)"])
def test_sums_do_not_wrap_around(op: str, bias: float) -> None:
    model = summing(op, bias)
    feeds = [{"x": np.ones((1, COUNT), np.float32)}] * 2
    made = qc.compile(model, "w8a8", data=feeds, target="npu")
    wanted, found = (open_session(one).run(None, feeds[0])[0] for one in (model, made.model))
    np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.01 * COUNT)


KEPT = {
    "matrices": ("g (float[64, 1, 512] x) => (float[64, 1, 8] y) { y = MatMul(x, w) }", (64, 512, 8)),
    "groups": (
        "g (float[1, 256, 2, 2] x) => (float[1, 1024, 5, 5] y) { y = ConvTranspose<group = 16>(x, w) }",
        (256, 64, 4, 4),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_each_sum_of_a_large_weight_counts_for_itself(name: str) -> None:
    text, shape = KEPT[name]
    model = parse(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), "w"))
    made = qc.compile(model, "w8a8", data=random_feeds(model, 2), target="npu")
    for weight in made.ir.quant.quantizers():
        if weight.spec.symmetric and weight.encoding is not None:
            np.testing.assert_allclose(weight.encoding.scale, 1 / 127, rtol=1e-6)


def test_sums_of_few_products_keep_their_scales() -> None:
    model = parse("g (float[1, 300] x) => (float[1, 2] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((300, 2), np.float32), "w"))
    made = qc.compile(model, "w8a8", data=[{"x": np.ones((1, 300), np.float32)}] * 2, target="npu")
    (weight,) = [one for one in made.ir.quant.quantizers() if one.spec.symmetric and one.encoding is not None]
    assert weight.encoding is not None
    np.testing.assert_allclose(weight.encoding.scale, 1 / 127, rtol=1e-6)
