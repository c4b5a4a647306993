"""Metrics equal their definitions, and careless ones end in one sentence that names the place."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.folders import ROOT
from support.models import parse

import qc.runtime.metrics
from qc.ir.errors import DataError, ModelError, UsageError
from qc.runtime import evaluate, load_labels, parse_metric
from qc.runtime.metrics.ctc import edit_distance
from qc.runtime.metrics.metric import Sample
from qc.runtime.metrics.parse import known_metrics

TWO = parse("two (float[n, 3] x) => (float[n, 3] y, float[n, 3] z) { y = Identity(x)  z = Neg(x) }")
ROUNDED = parse("two (float[n, 3] x) => (float[n, 3] y, float[n, 3] z) { y = Round(x)  z = Neg(x) }")


def sample(x: Any, y: Any, index: int = 0, label: Any = None) -> Sample:
    """A sample of a model with the output ``y``, which gave ``y`` where the float model gave ``x``."""
    return Sample(index, {"y": np.asarray(y)}, {"y": np.asarray(x)}, {"x": np.asarray(x)}, label)


def measure(text: str, *samples: Sample, has_labels: bool = False) -> float:
    tally = parse_metric(text, has_labels).start()
    for one in samples:
        tally.add(one)
    return tally.value()


# -- built in -----------------------------------------------------------------------------------------------


rows = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.just(6)), elements=st.sampled_from([-1, 0, 0.5, 2])
)


@given(st.lists(st.tuples(rows, st.integers(0, 99)), min_size=1, max_size=3), st.integers(1, 6))
def test_agreement_is_where_the_best_is_among_the_best(
    batches: Sequence[tuple[np.ndarray, int]], most: int
) -> None:
    agreed = total = 0
    samples = []
    for x, seed in batches:
        y = np.random.default_rng(seed).choice(np.float32([-1, 0, 1]), x.shape)
        samples.append(sample(x, y))
        for float_row, other_row in zip(x, y, strict=True):
            ranked = sorted(range(6), key=lambda i, row=other_row: (-row[i], i))  # type: ignore[misc]
            agreed += int(np.argmax(float_row)) in ranked[:most]
            total += 1
    assert measure(f"top-{most}", *samples) == pytest.approx(agreed / total)


def test_agreement_of_nan_and_of_nothing() -> None:
    nan = np.nan
    assert measure("top-1", sample([[1.0, 2.0]], [[nan, 0.0]])) == 1
    assert measure("top-1", sample([[1.0, 2.0]], [[0.0, nan]])) == 0
    assert (
        measure(
            "top-2",
            sample(np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)),
            sample([1.0, 2.0], [2.0, 1.0]),
        )
        == 1
    )
    with pytest.raises(
        UsageError, match="'top-1' is for floating-point outputs with an axis, and there is none to compare"
    ):
        measure("top-1", sample(np.int64([1, 2]), np.int64([1, 2])))
    with pytest.raises(UsageError, match="'top-3' needs more than the 2 elements that the last axis"):
        measure("top-3", sample([1.0, 2.0], [1.0, 2.0]))


def test_scores_are_of_the_worst_output_or_of_one() -> None:
    feeds = [{"x": np.float32([[0.25, 1.5, 3.0]])}]
    result = evaluate(
        TWO,
        {"rounded": ROUNDED},
        feeds,
        latency_seconds=0,
        metrics=["sqnr", "sqnr(z)", "cosine(y)", "max-error", "top-1"],
    )
    scores = {score.output: score for score in result.candidates[0].outputs}
    values = {metric.name: metric.candidates[0] for metric in result.metrics}
    assert values == {
        "sqnr": scores["y"].sqnr_db,
        "sqnr(z)": np.inf,
        "cosine(y)": scores["y"].cosine,
        "max-error": 0.5,
        "top-1": 1.0,
    }
    assert [metric.reference for metric in result.metrics] == [np.inf, np.inf, 1, 0, 1]


# -- of the user --------------------------------------------------------------------------------------------

CODE = """
import numpy as np

def of_two(outputs, label):
    return outputs["y"] == label

def mean(outputs):
    return outputs["y"].mean()

def shifted(outputs, feed, weight=2.0):
    return weight * float((outputs["y"] - feed["x"]).sum())

def accuracy(outputs, feed, label):
    return outputs["y"].argmax() == label

class Largest:
    def __init__(self):
        self.seen = []

    def update(self, outputs, feed):
        self.seen.append(outputs["y"].max())

    def compute(self):
        return np.max(self.seen)

class Half:
    def update(self, outputs):
        pass

def words(outputs):
    return "good"

def array(outputs):
    return outputs["y"]

def nothing(outputs):
    pass

def helper(outputs):
    return outputs["logits"]

def wrong(outputs):
    return helper(outputs).mean()

def no_argument():
    return 1

def named(outputs, *, threshold):
    return 1

def everything(*given):
    return len(given)

number = 3
"""
WRONG_LINE = CODE.splitlines().index('    return outputs["logits"]') + 1


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in with the functions of ``CODE`` in ``user.py``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user.py").write_text(CODE)
    return tmp_path


def test_a_function_is_averaged_and_a_class_asked_at_the_end(user: Path) -> None:
    first, second = sample([1.0, 2.0], [1.0, 3.0], label=1), sample([4.0, 0.0], [2.0, 0.0], 1, label=1)
    assert measure("user.py:mean", first, second) == 1.5
    assert measure("user.py:shifted", first, second) == -1
    assert measure("user.py:Largest", first, second) == 3
    assert measure("user.py:accuracy", first, second, has_labels=True) == 0.5
    assert measure("user.py:everything", first) == 2
    assert measure("user.py:everything", first, has_labels=True) == 3


def test_metrics_that_do_not_fit_the_model() -> None:
    with pytest.raises(UsageError, match=r"'cosine\(x\)' names the output 'x', which the model does"):
        evaluate(TWO, {"same": TWO}, [{"x": np.zeros((1, 3), np.float32)}], metrics=["cosine(x)"])
    whole = parse("g (float[2] x) => (int64[1] y) { y = ArgMax(x) }")
    with pytest.raises(UsageError, match="'top-1' compares floats, and the outputs have none"):
        evaluate(whole, {"same": whole}, [{"x": np.zeros(2, np.float32)}], metrics=["top-1"])


def test_outputs_that_only_a_candidate_has_do_not_count() -> None:
    one = parse("one (float[n, 3] x) => (float[n, 3] y) { y = Identity(x) }")
    feeds = [{"x": np.float32([[0.25, 1.5, 3.0]])}]
    result = evaluate(one, {"two": ROUNDED}, feeds, latency_seconds=0, metrics=["max-error", "top-1"])
    assert [metric.candidates for metric in result.metrics] == [(0.5,), (1.0,)]
    assert [score.output for score in result.candidates[0].outputs] == ["y"]


def test_dashes_can_be_underscores() -> None:
    one = sample([1.0, 2.0], [1.0, 2.5])
    assert measure("max_error", one) == measure("max-error(y)", one) == 0.5
    assert measure("top_1", one) == 1


def test_the_metric_in_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (code,) = (block for block in blocks if "OutputMetric" in block)
    (tmp_path / "mean_error.py").write_text(code)
    monkeypatch.setattr(qc.runtime.metrics, "__path__", [*qc.runtime.metrics.__path__, str(tmp_path)])
    known_metrics.cache_clear()
    try:
        one = sample([1.0, 2.0], [1.0, 3.0])
        assert measure("mean-error", one) == measure("mean_error(y)", one) == 0.5
        assert not parse_metric("mean-error").higher_is_better
    finally:
        known_metrics.cache_clear()
        sys.modules.pop("qc.runtime.metrics.mean_error")


def test_every_model_has_its_own_object(user: Path) -> None:
    feeds = [{"x": np.float32([[0.25, 1.5, 3.25]])}, {"x": np.float32([[0, 1, 2.5]])}]
    result = evaluate(TWO, {"rounded": ROUNDED}, feeds, latency_seconds=0, metrics=["user.py:Largest"])
    assert (result.metrics[0].reference, result.metrics[0].candidates) == (3.25, (3.0,))


def test_labels_go_with_the_feeds(user: Path) -> None:
    feeds = [{"x": np.float32([[1, 5, 2]])}, {"x": np.float32([[9, 0, 2]])}]
    np.save("labels.npy", np.array([1, 2]))

    def run(labels: object) -> float:
        asked = {"metrics": ["user.py:accuracy"], "labels": labels, "latency_seconds": 0}
        return evaluate(TWO, {"same": TWO}, feeds, **asked).metrics[0].reference  # type: ignore[arg-type]

    assert run(load_labels("labels.npy")) == 0.5
    assert run([1, 0]) == 1
    with pytest.raises(DataError, match="there are 3 labels for 2 feeds; give one for each feed"):
        run([1, 0, 0])
    with pytest.raises(DataError, match="there is 1 label for at least 2 feeds; give one for each"):
        run([1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user.py:words", "returned 'good' on feed 0; let it return a number"),
        ("user.py:array", r"returned an array of shape \(2,\) on feed 0; let it return a number"),
        ("user.py:nothing", "returned None on feed 0; let it return a number"),
        (
            "user.py:wrong",
            rf"failed on feed 0 with KeyError: 'logits' \(.*user.py, line {WRONG_LINE}\); "
            "the outputs are a dictionary by name, of 'y'",
        ),
        ("user.py:Half", "the metric class 'user.py:Half' has no method 'compute'"),
        ("user.py:no_argument", r"takes \(\); let it take \(outputs\), \(outputs, feed\) or"),
        ("user.py:named", r"takes \(outputs, \*, threshold\); let it take \(outputs\)"),
        (
            "user.py:accuracy",
            "takes a label, and there are none: give --labels FILE.npy, or data that",
        ),
        ("user.py:of_two", r"takes \(outputs, label\), where its second argument would be the feed; let it"),
        ("user.py:number", "'user.py' has no function 'number'"),
        ("user.py:Larges", r"has no function 'Larges' \(did you mean 'Largest'\?\)"),
        ("absent.py:f", "the Python file 'absent.py' for the metric does not exist"),
        ("no_such_module:f", "cannot import 'no_such_module' for the metric: ModuleNotFoundError"),
        (
            "sqrn",
            r"unknown metric 'sqrn' \(did you mean 'sqnr'\?\); known: cosine, ctc-K, equal,",
        ),
        ("top-0", "'top-0' needs a number of at least 1"),
        ("top-five", "unknown metric 'top-five'"),
        ("cosine()", r"name an output in the parentheses"),
    ],
)
def test_careless_metrics(user: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        measure(text, sample([1.0, 2.0], [1.0, 2.0]))


def test_labels_that_are_none(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.array(3))
    (tmp_path / "text.npy").write_text("not an array")
    np.savez(tmp_path / "many.npz", a=np.ones(2))
    for name, message in {
        "one.npy": "hold a single number; give one for each feed",
        "text.npy": "cannot read data from",
        "many.npz": "are not an .npy file; save them with numpy.save",
        "absent.npy": "labels '.*absent.npy' do not exist",
    }.items():
        with pytest.raises(DataError, match=message):
            load_labels(tmp_path / name)


def one_output(name: str, reference: np.ndarray, output: np.ndarray) -> float:
    tally = parse_metric(name).start()
    tally.add(Sample(0, {"y": output}, {"y": reference}, {}, None))
    return tally.value()


def test_expected_accuracy_asks_the_reference_how_probable_the_class_is_that_is_found() -> None:
    p = np.float32([[0.5, 0.4, 0.1], [0.9, 0.05, 0.05]])
    y = np.float32([[0, 1, 0], [1, 0, 0]])
    assert one_output("expected-accuracy", p, p) == 1
    assert one_output("expected-accuracy", p, y) == pytest.approx((0.4 + 0.9) / (0.5 + 0.9))
    assert one_output("expected-accuracy", np.log(p), y) == pytest.approx((0.4 + 0.9) / (0.5 + 0.9))
    image = np.moveaxis(p.reshape(1, 1, 2, 3), -1, 1)
    found = one_output("expected-accuracy", image, np.moveaxis(y.reshape(1, 1, 2, 3), -1, 1))
    assert found == pytest.approx(13 / 14)
    yes = one_output("expected-accuracy", np.float32([[0.7], [0.1]]), np.float32([[0.4], [0.2]]))
    assert yes == pytest.approx((0.3 + 0.9) / (0.7 + 0.9))


def test_likelihood_is_the_exponential_of_the_divergence() -> None:
    p, q = np.float64([[0.5, 0.25, 0.25]]), np.float64([[0.25, 0.5, 0.25]])
    expected = np.exp(-(p * np.log(p / q)).sum())
    assert one_output("likelihood", p, q) == pytest.approx(expected)
    assert one_output("likelihood", np.log(p) + 3, np.log(q) - 1) == pytest.approx(expected)
    assert one_output("likelihood", p, p) == 1


@pytest.mark.parametrize("shape", [(8, 3), (8, 1), (2, 3, 4, 5)])
@pytest.mark.parametrize("text", ["top-1", "expected-accuracy", "expected-iou", "likelihood"])
def test_rows_of_no_numbers_agree_with_nothing_but_such_rows(text: str, shape: tuple[int, ...]) -> None:
    if text == "likelihood" and shape[1] == 1:
        return  # it is of several classes
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    none = np.full(shape, np.nan, np.float32)
    assert one_output(text, x, none) == pytest.approx(0, abs=1e-9)
    assert one_output(text, x, x) == 1
    half = np.concatenate([x[: len(x) // 2], none[len(x) // 2 :]])
    assert 0 <= one_output(text, x, half) < 1
    if text != "expected-iou":
        assert one_output(text, half, half) == 1
        assert one_output(text, x, np.full(shape, np.inf, np.float32)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    "text",
    ["top-1", "expected-accuracy", "expected-iou", "likelihood", "sqnr", "cosine", "max-error", "equal"],
)
def test_other_ranks_are_told(text: str) -> None:
    with pytest.raises(
        ModelError, match=r"output 'y' on feed 0 has shape \(3,\), the reference has \(2, 3\)"
    ):
        one_output(text, np.zeros((2, 3), np.float32), np.zeros(3, np.float32))


@given(st.lists(st.integers(0, 3), max_size=7), st.lists(st.integers(0, 3), max_size=7))
def test_edit_distance_is_the_shortest_way(first: list[int], second: list[int]) -> None:
    found = edit_distance(first, second)
    assert found == edit_distance(second, first)
    assert abs(len(first) - len(second)) <= found <= max(len(first), len(second))
    if first and second:
        ways = edit_distance(first[1:], second) + 1, edit_distance(first, second[1:]) + 1
        assert found == min(*ways, edit_distance(first[1:], second[1:]) + (first[0] != second[0]))


def test_texts_are_read_without_blanks_and_repetitions() -> None:
    def scores(text: str) -> np.ndarray:
        return np.eye(27, dtype=np.float32)[
            [[" abcdefghijklmnopqrstuvwxyz".index(letter) for letter in text]]
        ]

    assert one_output("ctc-0", scores("hh e l ll oo"), scores("h eel  l  o ")) == 1
    assert one_output("ctc-0", scores("h e l lo"), scores("h a llo ")) == pytest.approx(1 - 2 / 5)
    assert np.isnan(one_output("ctc-0", scores("   "), scores(" a ")))  # a sample without a text is no error
    with pytest.raises(UsageError, match="needs more than the 27 classes"):
        one_output("ctc-27", scores("a"), scores("a"))


def test_masks_overlap() -> None:
    x, y = np.float32([0.9, 0.6, 0.2, 0.1]), np.float32([0.8, 0.4, 0.6, 0])
    assert one_output("expected-iou", x > 0.5, y > 0.5) == pytest.approx(1 / 3)
    assert one_output("expected-iou", x, x) == 1
    own, found = 1.5 / (2 + 0.3), 1.1 / (2 + 0.7)  # what is marked is there by 1.5 and 1.1
    assert one_output("expected-iou", x, y) == pytest.approx(found / own)
    assert one_output("expected-iou", np.zeros(4, np.float32), np.zeros(4, np.float32)) == 1
    assert one_output("equal", np.int64([1, 2, 3, 4]), np.int64([1, 2, 4, 4])) == 0.75


def test_borders_of_masks_may_move_a_little() -> None:
    x = np.zeros((1, 1, 480, 640), np.float32)
    x[..., 100:120, 100:500] = x[..., 200:203, 100:500] = 1
    within, thin, farther = x.copy(), x.copy(), x.copy()
    within[..., 98:100, 100:500] = within[..., 120:122, 100:500] = 1
    thin[..., 200:203, :] = 0
    farther[..., 94:100, 100:500] = 1
    assert one_output("expected-iou", x, within) == 1
    assert one_output("expected-iou", x, thin) == pytest.approx(20 / 23)
    assert one_output("expected-iou", x, farther) == pytest.approx(23 / 27)
    assert one_output("expected-iou", x[..., :100, :100], within[..., :100, :100]) == 1  # nothing is there
    assert one_output("expected-iou", x[0], within[0]) == pytest.approx(23 / 27)
