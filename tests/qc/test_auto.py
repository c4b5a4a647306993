"""``qc auto``: recipes, verdicts with sampling errors, more bits for some ops, the recipe that is written."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from support.models import parse, random_feeds

import qc as package
from qc.auto.climb import Climb, Trial
from qc.auto.judging import Judge, MaxDrop, agreement
from qc.auto.recipes import Recipe, ladder, load_ladder
from qc.ir.errors import UsageError
from qc.runtime import Metric, load_data, model_inputs

FIXTURES = Path(__file__).parents[1] / "fixtures"
MODEL, DATA = "model.onnx", "calibration.npz"
JUDGED = (
    *("--eval-data", "test.npz", "--labels", "labels.npy", "--metric", "user.py:accuracy"),
    *("--threads", "1"),
)
CODE = """
def accuracy(outputs, feed, label):
    return outputs["logits"].argmax() == label

def broken(outputs):
    raise KeyError("logit")

def nan(outputs):
    return float("nan")
"""


@pytest.fixture(autouse=True)
def user(qc) -> None:
    Path("user.py").write_text(CODE)
    with np.load(FIXTURES / "digits_test.npz") as test:
        np.savez("test.npz", image=test["image"])
        np.save("labels.npy", test["label"])


def test_the_first_recipe_that_is_good_enough_is_written_and_compiles_again_to_the_same_bytes(qc) -> None:
    result = qc("auto", MODEL, "--data", DATA, *JUDGED, "--weights", "4", "--log", "trials.jsonl")
    assert (result.code, result.made) == (0, ["model.q.onnx", "model.q.recipe.toml", "trials.jsonl"])
    record = tomllib.loads(Path("model.q.recipe.toml").read_text())["record"]
    trials = [json.loads(line) for line in Path("trials.jsonl").read_text().splitlines()]
    assert record["trial"] == trials and [trial["accepted"] for trial in trials][-1]
    assert trials[-1]["float"] - trials[-1]["score"] <= 0.01 * trials[-1]["float"]
    again = qc(MODEL, "--data", DATA, "--pipeline", "model.q.recipe.toml", "-o", "again.onnx")
    assert again.code == 0
    assert Path("again.onnx").read_bytes() == Path("model.q.onnx").read_bytes()


def test_what_cannot_be_reached_is_told_and_written_only_if_asked(qc, monkeypatch) -> None:
    monkeypatch.setattr("qc.auto.climb.Climb._widen", lambda climb: "nothing is left to try")
    asked = ("auto", MODEL, "--data", DATA, "--weights", "4", "--max-drop", "0", "--metric", "max-error")
    refused = qc(*asked)
    assert (refused.code, refused.made) == (5, [])
    assert "no recipe keeps 'max-error' within 0 of" in refused.err and "--keep-best" in refused.err
    kept = qc(*asked, "--keep-best")
    assert (kept.code, kept.made) == (5, ["model.q.onnx", "model.q.recipe.toml"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--metric", "user.py:broken"], "failed on feed 0 with KeyError"),
        (["--metric", "user.py:nan"], "is NaN for the float model"),
        (["--metric", "sqnr"], "'sqnr' is infinite for the float model"),
        (["--metric", "user.py:accuracy"], "takes a label, and there are none"),
        (["--labels", "labels.npy"], "--labels is for a function as --metric"),
        (["--max-drop", "little"], "a drop is a share such as 1% or a number such as 0.5, not 'little'"),
        (["--metric", "accuracy"], "unknown metric 'accuracy'"),
    ],
)
def test_bad_input_is_one_sentence(qc, options: list[str], sentence: str) -> None:
    result = qc("auto", MODEL, "--data", DATA, *options)
    assert (result.code, result.made) == (2, []) and sentence in result.err


def digits_judge(max_drop: str, **more) -> tuple[package.Compilation, Judge]:
    compilation = package.Compilation("model.onnx", data=DATA, threads=1)
    data = load_data("test.npz", model_inputs(compilation.proto()))
    return compilation, Judge("model.onnx", data, MaxDrop.parse(max_drop), threads=1, **more)


def test_a_hopeless_model_is_refused_after_a_part_of_the_samples(qc) -> None:
    compilation, judge = digits_judge("1%")
    ruined = compilation.proto()
    for tensor in ruined.graph.initializer:
        if len(tensor.dims) == 4:
            tensor.raw_data = bytes(len(tensor.raw_data))
    verdict = judge(ruined)
    assert judge.metric.name == "top-1" and not verdict.is_accepted
    assert verdict.samples < 597
    assert judge(compilation.proto()).drop == 0


def test_the_sampling_error_of_a_mean_is_that_of_the_differences(qc) -> None:
    labels = np.load("labels.npy")
    compilation, judge = digits_judge(
        "1%", labels=labels, metric=package.runtime.parse_metric("user.py:accuracy", True)
    )
    made = package.compile("model.onnx", "w4a8", data=DATA, threads=1).model
    verdict = judge(made)
    images = np.load("test.npz")["image"]
    import onnxruntime as ort

    right = []
    for model in (compilation.proto(), made):
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs = [session.run(["logits"], {"image": image})[0].argmax() for image in _feeds(images, session)]
        right.append(np.array(outputs) == labels)
    difference = right[0].astype(float) - right[1]
    assert verdict.drop == pytest.approx(difference.mean())
    assert verdict.error == pytest.approx(2 * difference.std() / math.sqrt(len(labels)), rel=0.75)


def _feeds(images: np.ndarray, session):
    rank = len(session.get_inputs()[0].shape)
    return (image if image.ndim == rank else image[np.newaxis] for image in images)


def chain_of_products(*names: str):
    """Three products, one after the other, whose ops have the names."""
    model = parse(
        """g (float[8, 16] x) => (float[8, 16] y) <float[16, 16] a, float[16, 16] b, float[16, 16] c> {
            p = MatMul(x, a)
            q = MatMul(p, b)
            y = MatMul(q, c)
        }"""
    )
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name
    return model


@pytest.mark.parametrize("names", [("op0", "op1", "op2"), ("", "", "")])
def test_groups_that_harm_most_get_more_bits_and_no_more_than_needed(names: tuple[str, ...]) -> None:
    model = chain_of_products(*names)
    feeds = random_feeds(model, 8)
    data = load_data(feeds, model_inputs(model))
    compilation = package.Compilation(model, data=data, threads=1)
    tried: list[Trial] = []
    judge = Judge(model, data, MaxDrop(12.0, is_share=False), package.runtime.parse_metric("max-error"))
    plain = Recipe("nearest", package.resolve_pipeline("w8a8"), ("MatMul=w3",))
    first = judge(package.compile(model, data=feeds, precision=("MatMul=w3",), threads=1).model)
    judge.max_drop = MaxDrop(0.8 * first.drop, is_share=False)
    found = Climb(compilation, judge, 10.0, tried.append).run([plain])
    assert found.best.verdict.is_accepted and len(tried) > 1
    assert found.best.recipe.rules[1:] and found.best.integer_share == 1  # more bits were enough
    accepted = [trial for trial in tried if trial.verdict.is_accepted]
    assert found.best is accepted[-1]


def test_an_interrupt_gives_the_best_so_far(qc, monkeypatch) -> None:
    compilation, judge = digits_judge("0", metric=package.runtime.parse_metric("cosine"))
    calls = iter([judge.__call__, None])

    class Interrupted(Judge):
        def __call__(self, *given, **named):
            if next(calls) is None:
                raise KeyboardInterrupt
            return super().__call__(*given, **named)

    judge.__class__ = Interrupted
    found = Climb(compilation, judge, 10.0).run([*ladder(4), *ladder(4)])
    assert (len(found.trials), found.ended) == (1, "it was interrupted")


def test_a_recipe_that_fails_ends_it_with_the_best_so_far(qc) -> None:
    compilation, judge = digits_judge("0", metric=package.runtime.parse_metric("cosine"))
    good, bad = Recipe("good", package.resolve_pipeline("w8a8")), Recipe("bad", ladder(4)[0].pipeline, ("=",))
    found = Climb(compilation, judge, 10.0).run([good, bad])
    assert [trial.recipe for trial in found.trials] == [good]
    assert found.ended.startswith("what was tried next failed: ")
    with pytest.raises(UsageError):
        Climb(compilation, judge, 10.0).run([bad, good])


def test_nothing_is_begun_after_the_minutes(qc, monkeypatch) -> None:
    compilation, judge = digits_judge("0", metric=package.runtime.parse_metric("cosine"))
    monkeypatch.setattr("qc.auto.climb.find_front", lambda *given, **named: pytest.fail("it measures"))
    found = Climb(compilation, judge, 1e-6).run([Recipe("r", package.resolve_pipeline("w8a8"))] * 2)
    assert len(found.trials) == 1 and "minutes were over" in found.ended


def test_a_target_of_a_file_is_in_the_recipe_by_its_path(qc) -> None:
    Path("mine.toml").write_text('name = "mine"\nextends = "ort-cpu"\n')
    asked = (MODEL, "--data", DATA, "--threads", "1")
    assert qc("auto", *asked, "--target", "mine.toml", "--max-drop", "50%", "-o", "first.onnx").code == 0
    assert qc(*asked, "--pipeline", "first.recipe.toml", "-o", "second.onnx").code == 0
    assert Path("first.onnx").read_bytes() == Path("second.onnx").read_bytes()


@pytest.mark.parametrize(
    ("shape", "name"), [((1, 10), "top-1"), ((1, 1), "cosine"), ((1, 8, 4), "cosine"), ((5,), "cosine")]
)
def test_agreement_follows_the_form_of_the_outputs(shape: tuple[int, ...], name: str) -> None:
    metric: Metric = agreement({"y": np.zeros(shape, np.float32)})
    assert metric.name == name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "holds [[recipe]] tables"),
        ("[[recipe]]\nafterwards = 'a'", "unknown key 'afterwards' (did you mean 'after'?)"),
        ("[[recipe]]\npipeline = 'w8a9'", "w8a9"),
        ("[[recipe]]\npipeline = 'w8'\nbefore = 'equalize'", "no place for 'before', as 'w8' has no match-"),
        ("[[recipe]]\npipeline = 'fold-constants'\nafter = 'correct-bias'", "no place for 'after'"),
        ("[[recipe]]\nafter = 3", "is a table of texts"),
        ("[[recipe", "is not valid TOML"),
    ],
)
def test_a_file_of_recipes_that_is_none(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "ladder.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        load_ladder(tmp_path / "ladder.toml")
    assert sentence in str(error.value)


def test_a_recipe_puts_passes_around_the_calibration(tmp_path: Path) -> None:
    text = "[[recipe]]\nname = 'n'\nafter = 'correct-bias'\ncalibrate = 'calibrate{method=entropy}'\n"
    (tmp_path / "ladder.toml").write_text(text)
    (recipe,) = load_ladder(tmp_path / "ladder.toml")
    names = [str(step) for step in recipe.pipeline.pipeline.passes()]
    place = names.index("calibrate{method=entropy}")
    assert names[place + 1] == "correct-bias" and "calibrate{method=mse}" not in names
