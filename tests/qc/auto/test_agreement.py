"""Which metric tells that a model agrees with the float model, by what its outputs hold."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from qc.auto import agreement
from qc.runtime import InputInfo
from qc.runtime.metrics.metric import Sample

RANDOM = np.random.default_rng(0)


def classes(*shape: int, scale: float = 6.0) -> np.ndarray:
    return (scale * RANDOM.standard_normal(shape)).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def unit(*shape: int) -> np.ndarray:
    x = RANDOM.standard_normal(shape)
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def text(blank: int) -> np.ndarray:
    """Scores of 40 symbols along 20 positions, of which every second is blank."""
    scores = classes(1, 20, 40, scale=0.1)
    best = RANDOM.integers(1, 39, 20)
    best[::2] = blank
    scores[0, np.arange(20), best] = 9
    return scores


@pytest.mark.parametrize(
    ("outputs", "name", "words"),
    [
        ([classes(4, 10) for _ in range(4)], "expected-accuracy", "scores of classes"),
        ([softmax(classes(1, 5, scale=0.1)) for _ in range(4)], "expected-accuracy", "scores of classes"),
        ([classes(1, 21, 8, 8)], "expected-accuracy", "scores of classes"),
        ([np.float32([[0.2]]), np.float32([[0.9]])], "expected-accuracy", "a probability"),
        ([np.float32([[0.7]]), np.float32([[0.9]])], "cosine", "no kind that is known"),
        ([classes(1, 16, 300)], "likelihood", "scores of tokens"),
        ([text(0)], "ctc-0", "with blanks as class 0"),
        ([text(39)], "ctc-39", "with blanks as class 39"),
        ([RANDOM.beta(0.2, 0.2, (1, 1, 8, 8))], "expected-iou", "maps of probabilities"),
        ([RANDOM.random((1, 3, 8, 8), np.float32)], "cosine", "no kind that is known"),
        ([RANDOM.random((1, 8, 8)) > 0.5], "expected-iou", "masks"),
        ([unit(1, 64) for _ in range(4)], "cosine", "a vector"),
        ([classes(1, 8, 4, scale=0.1)], "cosine", "no kind that is known"),
        ([np.float32([1, 2, 3])], "cosine", "no kind that is known"),
        ([np.int64([[3, 1]])], "equal", "whole numbers"),
    ],
)
def test_the_metric_follows_what_an_output_holds(outputs: list[np.ndarray], name: str, words: str) -> None:
    found = agreement([{"y": output} for output in outputs])
    assert found.metric.name == name and words in found.reason and "'y' holds" in found.reason
    tally = found.metric.start()
    for index, output in enumerate(outputs):
        tally.add(Sample(index, {"y": output}, {"y": output}, {}, None))
    assert tally.value() == pytest.approx(1)


@pytest.mark.parametrize(
    ("elem_type", "shape", "name"),
    [
        (TensorProto.INT64, (None, 20), "likelihood"),
        (TensorProto.INT32, ("batch", "sequence"), "likelihood"),
        (TensorProto.INT64, ("batch",), "ctc-0"),  # lengths, as beside features of speech
        (TensorProto.INT64, (None, 1), "ctc-0"),
        (TensorProto.FLOAT, (1, 16000), "ctc-0"),
    ],
)
def test_a_model_that_reads_tokens_has_no_blanks(elem_type: int, shape: tuple, name: str) -> None:
    assert agreement([{"y": text(0)}], [InputInfo("x", elem_type, shape)]).metric.name == name


def test_a_feature_that_is_always_the_largest_is_no_class() -> None:
    hidden = classes(1, 12, 64, scale=1.0)
    hidden[:, :, 17] = 20
    assert agreement([{"y": hidden}]).metric.name == "cosine"


def test_a_forecast_of_few_channels_is_no_text() -> None:
    forecast = np.random.default_rng(0).normal([0, 0, 6], size=(1, 16, 3)).astype(np.float32)
    forecast[0, 3, 0] = 9  # so that the last channel is not the largest throughout
    assert agreement([{"y": forecast}]).metric.name == "cosine"


def test_tags_of_a_text_are_classes_however_few() -> None:
    tags = classes(20, 64, 3)
    tags[..., 0] += 12  # most words have none
    reads_tokens = [InputInfo("x", TensorProto.INT64, (1, 64))]
    assert agreement([{"y": tags}], reads_tokens).metric.name == "likelihood"


def test_masks_at_several_scales_count_as_one() -> None:
    large, small = RANDOM.random((1, 8, 3), np.float32), np.full((1, 4, 3), 0.2, np.float32)
    metric = agreement([{"a": large, "b": small}]).metric
    assert metric.name == "expected-iou(a, b)"
    marked = small.copy()
    marked[0, 0, 0] = 0.9
    count = int((large > 0.5).sum())
    tally = metric.start()
    tally.add(Sample(0, {"a": large, "b": marked}, {"a": large, "b": small}, {}, None))
    mass = float(large.sum() + small.sum())
    both = float(large[large > 0.5].sum())
    own, found = both / (count + mass - both), (both + 0.2) / (count + 1 + mass - both - 0.2)
    assert tally.value() == pytest.approx(found / own)


def test_of_several_outputs_the_worst_counts_and_states_do_not() -> None:
    sample = {"scores": classes(2, 8), "boxes": classes(2, 8, 4, scale=0.1), "state": classes(1, 2, 16)}
    state = InputInfo("state_in", TensorProto.FLOAT, (1, 2, 16))
    metric = agreement([sample], [state]).metric
    assert metric.name == "worst of expected-accuracy(scores), cosine(boxes)"
    tally = metric.start()
    tally.add(Sample(0, sample | {"boxes": -sample["boxes"]}, sample, {}, None))
    assert tally.value() == pytest.approx(-1)
    assert "(state)" in agreement([sample]).metric.name
