"""The whole job on a network with a Loop: it keeps its accuracy with 8 bits inside and outside the body."""

from __future__ import annotations

import functools

import numpy as np
import onnx
from onnx import ModelProto
from support.folders import FIXTURES
from support.models import parse

import qc
from qc.runtime import open_session

HIDDEN = 64


@functools.cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images as (sample, row, column) and labels."""
    with np.load(FIXTURES / "digits_test.npz") as data:
        return data["image"][:, 0], data["label"]


@functools.cache
def weights() -> dict[str, np.ndarray]:
    """Weights of a network that reads an image row by row: random ones, and a fitted last layer."""
    rng = np.random.default_rng(0)
    found = {
        "inner": rng.normal(size=(HIDDEN, HIDDEN)) * 0.9 / np.sqrt(HIDDEN),
        "outer": rng.normal(size=(8, HIDDEN)) * 0.4,
        "shift": rng.normal(size=HIDDEN) * 0.1,
    }
    images, labels = digits()
    seen = features(images[:300], **found)
    wanted = np.eye(10)[labels[:300]] - 0.1
    return {**found, "last": np.linalg.solve(seen.T @ seen + 3 * np.eye(8 * HIDDEN), seen.T @ wanted)}


def features(images: np.ndarray, inner: np.ndarray, outer: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """The states after each row side by side, as (sample, 8 * HIDDEN)."""
    states = [np.zeros((len(images), HIDDEN))]
    for row in range(8):
        states.append(np.tanh(images[:, row] @ outer + states[-1] @ inner + shift))
    return np.concatenate(states[1:], axis=1)


def recurrent_network() -> ModelProto:
    """The network as a Loop over the rows."""
    text = f"""g (float[8, N, 8] rows, float[N, {HIDDEN}] zero) => (float[N, 10] y)
    <float[{HIDDEN}, {HIDDEN}] inner, float[8, {HIDDEN}] outer, float[{HIDDEN}] shift,
     float[{8 * HIDDEN}, 10] last, int64 steps = {{8}}, int64[2] flat = {{0, -1}}> {{
        state, all = Loop(steps, , zero) <
            body = step (int64 i, bool c, float[N, {HIDDEN}] h)
                => (bool d, float[N, {HIDDEN}] next, float[N, {HIDDEN}] shown) {{
                d = Identity(c)
                row = Gather<axis = 0>(rows, i)
                a = MatMul(row, outer)
                b = MatMul(h, inner)
                s = Add(b, shift)
                t = Add(a, s)
                next = Tanh(t)
                shown = Identity(next)
            }}
        >
        sides = Transpose<perm = [1, 0, 2]>(all)
        features = Reshape(sides, flat)
        y = MatMul(features, last)
    }}"""
    model = parse(text)
    for tensor in model.graph.initializer:
        if tensor.name in weights():
            array = weights()[tensor.name].astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return model


def image_feed(images: np.ndarray) -> dict[str, np.ndarray]:
    rows = np.ascontiguousarray(images.transpose(1, 0, 2))
    return {"rows": rows, "zero": np.zeros((len(images), HIDDEN), np.float32)}


def scores(model: ModelProto) -> np.ndarray:
    """The scores of the images that the last layer was not fitted to."""
    found: np.ndarray = open_session(model, threads=1).run(None, image_feed(digits()[0][300:]))[0]
    return found


def accuracy(found: np.ndarray) -> float:
    return float(np.mean(found.argmax(axis=1) == digits()[1][300:]))


def test_a_recurrent_network_keeps_its_accuracy() -> None:
    images, _ = digits()
    *inside, last = weights().values()
    expected = features(images[300:], *inside) @ last
    model = recurrent_network()
    np.testing.assert_allclose(scores(model), expected, atol=1e-3)
    assert accuracy(expected) > 0.9
    feeds = [image_feed(images[start : start + 50]) for start in range(0, 300, 50)]
    in_integers = "w8a8{insert-quantizers.slower=integer}"  # which such small products are not quicker in
    compiled = qc.compile(model, in_integers, data=feeds, threads=1)
    assert compiled.coverage.ops["MatMul"] == (3, 3)
    for quantized in (compiled.model, compiled.simulation):
        found = scores(quantized)
        assert accuracy(found) >= 0.99 * accuracy(expected)
        assert np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected)
