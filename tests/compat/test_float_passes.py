"""Equalization, folding and re-estimation by AIMET's names, without the defects that AIMET's have."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper
from onnxruntime.quantization.onnx_model import ONNXModel
from support.graph_text import build_model

import qc
from qc.compat.aimet_onnx import QuantizationSimModel
from qc.compat.aimet_onnx.batch_norm_fold import fold_all_batch_norms, fold_all_batch_norms_to_weight
from qc.compat.aimet_onnx.bn_reestimation import reestimate_bn_stats
from qc.compat.aimet_onnx.cross_layer_equalization import equalize_model
from qc.runtime import open_session

from .networks import typed

_RANDOM = np.random.default_rng(0)
IMAGE = "float[2,4,8,8] x"
# Channels of very different ranges
UNEVEN = np.exp(_RANDOM.normal(scale=2, size=8))
CONSTANTS = {
    "W": _RANDOM.normal(size=(8, 4, 3, 3)) * UNEVEN[:, np.newaxis, np.newaxis, np.newaxis],
    "D": _RANDOM.normal(size=(8, 1, 3, 3)),
    "V": _RANDOM.normal(size=(4, 8, 3, 3)),
    "b": _RANDOM.normal(size=8),
} | {name: _RANDOM.uniform(0.5, 1.5, 8) for name in ("g", "h", "m", "v")}
PRODUCTS = {
    "M": _RANDOM.normal(size=(4, 8)),
    "N": _RANDOM.normal(size=(8, 4)),
    "S": _RANDOM.normal(size=(4, 3)),
    "F": _RANDOM.normal(size=(256, 8)),
    "L": _RANDOM.normal(size=(64, 8)),
    "rows": np.array([2, 256]),
} | {name: _RANDOM.uniform(0.5, 1.5, 4) for name in ("g4", "h4", "m4", "v4")}
ROWS = "float[2,4] x"
PAIR = "c = Conv(x, W, b); r = Relu(c); y = Conv(r, V)"  # without the attribute group, which is 1 then (B15)
TRIPLE = "c = Conv(x, W, b); r = Relu(c); d = Conv<group=8>(r, D); s = Relu(d); y = Conv(s, V)"
NORMED = "c = Conv(x, W); n = BatchNormalization(c, g, h, m, v); r = Relu(n); y = Conv(r, V)"
FEED = {"x": _RANDOM.normal(size=(2, 4, 8, 8)).astype(np.float32)}


def outputs_of(model: ModelProto) -> list[np.ndarray]:
    return list(open_session(model).run(None, FEED))


def spread_of(model: ModelProto) -> float:
    """By what factor the ranges of the filters of the first convolution differ."""
    node = next(node for node in model.graph.node if node.op_type == "Conv")
    (weight,) = (numpy_helper.to_array(one) for one in model.graph.initializer if one.name == node.input[1])
    ranges = np.abs(weight).max((1, 2, 3))
    return float(ranges.max() / ranges.min())


@pytest.mark.parametrize("body", [PAIR, TRIPLE, NORMED])
def test_equalized_models_compute_the_same(body: str) -> None:
    model = typed(build_model(body, inputs=IMAGE, constants=CONSTANTS))
    before, spread = outputs_of(model), spread_of(model)
    equalize_model(ONNXModel(model))
    np.testing.assert_allclose(outputs_of(model)[0], before[0], rtol=1e-4, atol=1e-3)
    assert spread_of(model) < spread / 3
    assert all(node.op_type != "BatchNormalization" for node in model.graph.node)
    assert model.graph.node[0].input[1] == "W"


@pytest.mark.parametrize("shown", ["y c", "y r"])
def test_b14_what_the_model_shows_is_not_rescaled(shown: str) -> None:
    model = typed(build_model(PAIR, shown, IMAGE, constants=CONSTANTS))
    before = outputs_of(model)
    equalize_model(model)
    for expected, found in zip(before, outputs_of(model), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_an_epsilon_of_zero_is_zero() -> None:
    body = "c = Conv(x, W); y = BatchNormalization<epsilon=0.0>(c, g, h, m, v)"
    model = typed(build_model(body, inputs=IMAGE, constants=CONSTANTS | {"v": np.full(8, 1e-4)}))
    before = outputs_of(model)[0]
    assert fold_all_batch_norms is fold_all_batch_norms_to_weight
    fold_all_batch_norms(model)
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    np.testing.assert_allclose(outputs_of(model)[0], before, rtol=1e-3, atol=1e-3 * np.abs(before).max())


BEHIND = "BatchNormalization(c, g, h, m, v)"
IN_FRONT = "c = BatchNormalization(x, g4, h4, m4, v4)"


@pytest.mark.parametrize(
    ("body", "inputs", "behind", "in_front"),
    [
        (f"c = MatMul(x, M); y = {BEHIND}", ROWS, [("Gemm", ["x", "M", "/fc/Gemm.bias"])], []),
        (
            f"t = Transpose(N); c = MatMul(x, t); y = {BEHIND}",
            ROWS,
            [("Gemm", ["x", "N", "/fc/Gemm.bias"])],
            [],
        ),
        (
            f"i = Identity(W); c = Conv(x, i); y = {BEHIND}",
            IMAGE,
            [("Conv", ["x", "W", "/fc/MatMul.bias"])],
            [],
        ),
        (
            "c = Conv(x, W, b); i = Identity(m); j = Identity(v); y = BatchNormalization(c, g, h, i, j)",
            IMAGE,
            [("Conv", ["x", "W", "b"])],
            [],
        ),
        (f"{IN_FRONT}; y = MatMul(c, M)", ROWS, [], [("Gemm", ["x", "M", "/fc/Gemm.bias"])]),
        (f"{IN_FRONT}; f = Flatten(c); y = Gemm(f, F, b)", IMAGE, [], [("Gemm", ["f", "F", "b"])]),
        (
            f"{IN_FRONT}; f = Reshape(c, rows); y = MatMul(f, F)",
            IMAGE,
            [],
            [("Gemm", ["f", "F", "/fc/Gemm.bias"])],
        ),
        (f"{IN_FRONT}; y = Conv(c, W)", IMAGE, [], [("Conv", ["x", "W", "/fc/MatMul.bias"])]),
        (f"c = MatMul(x, S); y = {BEHIND}", "float[2,8,4] x", [], []),  # the channels are no columns
        (f"{IN_FRONT}; f = Flatten<axis=2>(c); y = MatMul(f, L)", IMAGE, [], []),
    ],
)
def test_norms_are_folded_into_products_on_both_sides(
    body: str,
    inputs: str,
    behind: list[tuple[str, list[str]]],
    in_front: list[tuple[str, list[str]]],
) -> None:
    model = typed(build_model(body, inputs=inputs, constants=CONSTANTS | PRODUCTS))
    for node in model.graph.node:
        if node.op_type in ("MatMul", "Gemm", "Conv"):
            node.name = "/fc/MatMul"
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feed = {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    (before,) = open_session(model).run(None, feed)
    found = fold_all_batch_norms_to_weight(model)
    for pairs, expected in zip(found, (behind, in_front), strict=True):
        assert [(layer.op_type, list(layer.input)) for layer, _ in pairs] == expected
        assert all(norm.bn_layer.op_type == "BatchNormalization" for _, norm in pairs)
    assert ("BatchNormalization" in {node.op_type for node in model.graph.node}) == (not behind + in_front)
    np.testing.assert_allclose(open_session(model).run(None, feed)[0], before, rtol=1e-3, atol=1e-3)


def test_statistics_of_the_quantized_model() -> None:
    model = typed(build_model(NORMED, inputs=IMAGE, constants=CONSTANTS))
    random = np.random.default_rng(1)
    feeds = [{"x": random.normal(size=(2, 4, 8, 8)).astype(np.float32)} for _ in range(8)]
    made = np.concatenate([conv(model, feed) for feed in feeds])  # what the network was trained to see
    for name, array in (("m", made.mean((0, 2, 3))), ("v", made.var((0, 2, 3)))):
        (tensor,) = (one for one in model.graph.initializer if one.name == name)
        tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), name))
    exact = open_session(model)
    sim = QuantizationSimModel(model, param_type="int2")
    for name in ("g", "V"):
        sim.qc_quantize_op_dict[name].enabled = False
    with pytest.raises(qc.UsageError, match="call compute_encodings before"):
        reestimate_bn_stats(sim, feeds)
    sim.compute_encodings(feeds)

    def error() -> float:
        pairs = [(exact.run(None, feed)[0], sim.session.run(None, feed)[0]) for feed in feeds]
        return float(sum(np.square(b - a).sum() for a, b in pairs))

    before = error()
    reestimate_bn_stats(sim, feeds, num_batches=100)
    sim.compute_encodings(feeds)
    assert error() < before


def conv(model: ModelProto, feed: dict[str, np.ndarray]) -> np.ndarray:
    """What the first convolution makes."""
    shown = ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.add().name = "c"
    return np.asarray(open_session(shown).run(["c"], feed)[0])
