"""The whole job on a voice detector that is nothing but an If with two large branches, one for each rate."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto
from support.speech import speech

import qc
from qc.runtime import open_session

STREAMS = 8
RATES = {16000: 512, 8000: 256}  # samples per second, and in a frame

Feed = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def detector() -> ModelProto:
    package = find_spec("silero_vad")  # not imported: it wants PyTorch, the model does not
    if package is None or package.origin is None:
        pytest.skip("the package silero-vad, which the Makefile installs, is not here")
    return onnx.load(Path(package.origin).parent / "data" / "silero_vad.onnx")


def listen(model: ModelProto, rate: int, seed: int) -> Iterator[tuple[Feed, np.ndarray, np.ndarray]]:
    """Runs over some seconds of speech; for each frame what was fed, the scores, and who speaks."""
    session = open_session(model, threads=1)
    rng = np.random.default_rng(seed)
    sounds, spoken = map(np.stack, zip(*(speech(rng, 5, rate) for _ in range(STREAMS)), strict=True))
    size = RATES[rate]
    before = np.zeros((STREAMS, size // 8), np.float32)
    state = np.zeros((2, STREAMS, 128), np.float32)
    for start in range(0, sounds.shape[1] - size + 1, size):
        frame = sounds[:, start : start + size]
        feed = {"input": np.concatenate([before, frame], axis=1), "state": state, "sr": np.asarray(rate)}
        scores, state = session.run(None, feed)
        yield feed, scores[:, 0], spoken[:, start : start + size].mean(axis=1) > 0.5
        before = frame[:, -size // 8 :]


def area_under_curve(scores: np.ndarray, labels: np.ndarray) -> float:
    """The chance that a frame with speech scores higher than one without."""
    ranks = np.argsort(np.argsort(scores)) + 1
    positive = int(labels.sum())
    above = ranks[labels].sum() - positive * (positive + 1) / 2
    return float(above / (positive * (labels.size - positive)))


def quality(model: ModelProto, rate: int) -> float:
    _, scores, labels = zip(*listen(model, rate, seed=1), strict=True)
    return area_under_curve(np.concatenate(scores), np.concatenate(labels))


def test_both_branches_of_a_voice_detector_keep_their_accuracy(detector: ModelProto) -> None:
    feeds = [feed for rate in RATES for feed, _, _ in list(listen(detector, rate, seed=0))[::8]]
    compiled = qc.compile(detector, "w8a8", data=feeds, threads=1)
    assert compiled.coverage.ops["Conv"] == (12, 12)
    for model in (compiled.model, compiled.simulation):
        assert [node.op_type for node in model.graph.node] == ["Equal", "If"]
        for rate in RATES:
            expected = quality(detector, rate)
            assert expected > 0.9
            assert quality(model, rate) >= 0.99 * expected
