"""``qc auto``: recipes, verdicts with sampling errors, more bits for some ops, the recipe that is written."""

from __future__ import annotations

import json
import math
import re
import textwrap
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from support.folders import FIXTURES
from support.models import parse, random_feeds
from support.recurrent import recurrent

import qc as package
from qc.auto import Judge, MaxDrop, Recipe, RecipeSearch, Trial, ladder, load_ladder
from qc.ir.errors import UsageError
from qc.runtime import Latency, load_data, model_inputs, parse_metric

PLAIN_W4 = next(one for one in ladder(4) if one.only_for != "products")
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

def constant(outputs):
    return 0.5
"""


@pytest.fixture(autouse=True)
def user(qc) -> None:
    Path("user.py").write_text(CODE)
    with np.load(FIXTURES / "digits_test.npz") as test:
        np.savez("test.npz", image=test["image"])
        np.save("labels.npy", test["label"])


def test_the_first_recipe_that_is_good_enough_is_written_and_compiles_again_to_the_same_bytes(qc) -> None:
    result = qc("auto", MODEL, "--data", DATA, *JUDGED, "--weights", "4", "--log", "trials.jsonl")
    assert (result.code, result.made) == (0, ["model.auto.onnx", "model.auto.recipe.toml", "trials.jsonl"])
    assert "wrote trials.jsonl, " in result.err and "tried in" in result.out
    record = tomllib.loads(Path("model.auto.recipe.toml").read_text())["record"]
    trials = [json.loads(line) for line in Path("trials.jsonl").read_text().splitlines()]
    assert record["trial"] == trials and [trial["accepted"] for trial in trials][-1]
    assert trials[-1]["float"] - trials[-1]["score"] <= 0.01 * trials[-1]["float"]
    again = qc(MODEL, "--data", DATA, "--pipeline", "model.auto.recipe.toml", "-o", "again.onnx")
    assert again.code == 0
    assert Path("again.onnx").read_bytes() == Path("model.auto.onnx").read_bytes()


def test_what_cannot_be_reached_is_told_and_written_only_if_asked(qc, monkeypatch) -> None:
    monkeypatch.setattr("qc.auto.climb.Climb._widen", lambda climb: "nothing is left to try")
    asked = ("auto", MODEL, "--data", DATA, "--weights", "4", "--max-drop", "0", "--metric", "max-error")
    refused = qc(*asked, "--cache", "kept")
    assert (refused.code, refused.made) == (5, ["kept"])
    assert "no recipe keeps 'max-error' within 0 of" in refused.err and "--keep-best" in refused.err
    kept = qc(*asked, "--cache", "kept", "--keep-best")
    assert (kept.code, kept.made) == (5, ["model.auto.onnx", "model.auto.recipe.toml"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--metric", "user.py:broken"], "failed on feed 0 with KeyError"),
        (["--metric", "user.py:nan"], "is NaN for the float model"),
        (["--metric", "sqnr"], "'sqnr' is infinite for the float model"),
        (
            ["--metric", "user.py:constant"],
            "is 0.5 for the float model, and the same for outputs of other samples",
        ),
        (["--recipes", "r.toml", "--weights", "4"], "give --recipes or --weights, not both"),
        (["--weights", "9"], "9 is more than 8"),
        (["--metric", "user.py:accuracy"], "takes a label, and there are none"),
        (["--labels", "labels.npy"], "--labels is for a function as --metric"),
        (["--points", "4"], "--points is for --front"),
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
    assert not verdict.is_accepted and verdict.is_certain
    assert verdict.samples < 597
    whole = judge(compilation.proto())  # the float model is known for a part of the samples by now
    assert (whole.samples, whole.drop, whole.error) == (597, 0, 0)
    again = judge(ruined)
    assert again == verdict


def test_what_harms_one_class_alone_is_judged_on_all_of_them() -> None:
    exact = parse("g (float[1, 2] x) => (float[1, 2] y) { y = Identity(x) }")
    harmed = parse("g (float[1, 2] x) => (float[1, 2] y) <float[2] low = {20, 0}> { y = Max(x, low) }")
    feeds = [{"x": np.array([[number, 10]], np.float32)} for number in range(256)]  # of class 1 are 10
    data = load_data(feeds, model_inputs(exact))
    verdict = Judge(exact, data, MaxDrop.parse("5%"), parse_metric("top-1"), threads=1)(harmed)
    assert verdict.is_accepted and verdict.drop == pytest.approx(10 / 256)


def test_a_metric_that_fails_in_the_middle_leaves_a_judge_that_judges_on(qc) -> None:
    labels = np.load("labels.npy")
    compilation, judge = digits_judge("1%", labels=labels, metric=parse_metric("user.py:accuracy", True))
    calls = iter(range(1000))

    def stop() -> None:
        if next(calls) == 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(compilation.proto(), stop)
    verdict = judge(compilation.proto())
    assert (verdict.samples, verdict.drop) == (597, 0)


def test_the_sampling_error_of_a_mean_is_that_of_the_differences(qc) -> None:
    labels = np.load("labels.npy")
    compilation, judge = digits_judge("1%", labels=labels, metric=parse_metric("user.py:accuracy", True))
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


def test_a_share_of_nothing_is_refused_before_anything_is_tried(qc) -> None:
    result = qc("auto", MODEL, "--data", DATA, "--metric", "max-error", "--max-drop", "1%")
    assert (result.code, result.made) == (2, [])
    assert "is 0 for the float model, and 1% of that is nothing: give the drop as a number" in result.err


@pytest.mark.parametrize("drop", ["1", "2", "100%"])
def test_a_drop_that_allows_anything_is_refused(qc, drop: str) -> None:
    result = qc("auto", MODEL, "--data", DATA, "--max-drop", drop)
    assert (result.code, result.made) == (2, [])
    assert f"a drop of {drop} allows anything, as the float model has 1: give a share, such" in result.err


def digits_search(recipes: list[Recipe], **more) -> RecipeSearch:
    settings = {"data": DATA, "max_drop": "0", "metric": "cosine", "threads": 1}
    return RecipeSearch("model.onnx", recipes=recipes, **(settings | more))


def eight(name: str, *rules: str) -> Recipe:
    return Recipe(name, package.resolve_pipeline("w8a8"), rules)


def test_an_interrupt_gives_the_best_so_far(qc) -> None:
    def interrupt(trial: Trial) -> None:
        raise KeyboardInterrupt

    found = digits_search([eight("one"), eight("two")], on_trial=interrupt).run()
    assert (len(found.trials), found.ended) == (1, "it was interrupted")
    assert re.fullmatch(
        r"one: score [\d.]+ ± \S+, float 1: refused, 0 may be lost \(\d+ s\)", str(found.trials[0])
    )


def test_a_recipe_that_fails_is_told_of_and_the_others_are_tried(qc) -> None:
    bad = eight("bad", "op:none=off")
    told = []
    found = digits_search([bad, eight("good")], max_drop="1%", on_failure=told.append).run()
    assert [trial.recipe.name for trial in found.trials] == ["good"] and found.is_accepted
    assert [failure.recipe for failure in found.failures] == [bad] == [failure.recipe for failure in told]
    with pytest.raises(UsageError, match="op:none"):
        digits_search([bad]).run()


def test_what_runs_when_the_minutes_are_over_is_ended(qc, monkeypatch) -> None:
    front = "qc.auto.mixed_precision.mixer.find_front"
    monkeypatch.setattr(front, lambda *given, **named: pytest.fail("it measures"))
    found = digits_search([eight("one"), eight("two")], minutes=1e-6).run()
    assert ([trial.recipe.name for trial in found.trials], found.ended) == (["one"], "the time was over")


def test_the_objective_decides_between_all_recipes_that_are_accepted(qc) -> None:
    small = Recipe("small", PLAIN_W4.pipeline)
    recipes = [eight("eight"), small, eight("half", "Gemm=off")]
    found = digits_search(recipes, max_drop="5%", objective="bits").run()
    assert len(found.trials) == 3 and found.best.recipe is small
    assert [trial.weight_bits > 8 for trial in found.trials] == [False, False, True]
    assert RecipeSearch("model.onnx", data=DATA, objective="bits").ladder[0] == PLAIN_W4


def test_for_size_weights_are_packed_where_the_target_has_one_in_each_byte(qc) -> None:
    asked = ("auto", MODEL, "--data", DATA, "--max-drop", "5%", "--threads", "1", "--weights", "4")
    found = qc(*asked, "--objective", "size", "-o", "size.onnx")
    assert found.code == 0 and "one code in each byte" not in found.err
    again = qc(MODEL, "--data", DATA, "--pipeline", "size.recipe.toml", "-o", "again.onnx")
    assert again.code == 0 and Path("again.onnx").read_bytes() == Path("size.onnx").read_bytes()
    wide = qc(*asked, "-o", "wide.onnx")
    assert "'--opt insert-qdq.storage=packed' of 'qc MODEL.onnx'" in " ".join(wide.err.split())
    option = ("--opt", "insert-qdq.storage=packed", "-o", "packed.onnx")
    assert qc(MODEL, "--data", DATA, "--pipeline", "wide.recipe.toml", *option).code == 0
    sizes = [Path(name).stat().st_size for name in ("size.onnx", "packed.onnx", "wide.onnx")]
    assert sizes[0] == sizes[1] < 0.9 * sizes[2]
    assert RecipeSearch("model.onnx", data=DATA, objective="size", target="qnn-htp").ladder[0] == PLAIN_W4


def paced(quick_without: str):
    """A pace at which everything is slower than float that has a quantized op of a type."""

    class Paced:
        def __init__(self, *given) -> None:
            pass

        def of(self, made: package.Compiled) -> Latency:
            quantized, _ = made.coverage.ops.get(quick_without, (1, 1))
            ratio = 1.5 if quantized else 0.5
            return Latency(1.0, ratio, (1.0, 1.0), (ratio, ratio))

    return Paced


def test_what_is_quicker_in_float_stays_there_if_the_objective_is_latency(qc, monkeypatch) -> None:
    monkeypatch.setattr("qc.auto.climb.Pace", paced("Gemm"))
    found = digits_search([eight("eight")], max_drop="5%", objective="latency").run()
    assert found.is_accepted and found.best.recipe.rules == ("type:Gemm=off",)
    assert found.latency is not None and found.latency.ratio == 0.5 and len(found.trials) == 2
    monkeypatch.setattr("qc.auto.climb.Pace", paced("no such op"))
    slow = digits_search([eight("eight")], max_drop="5%", objective="latency").run()
    assert not slow.is_accepted and "takes 1.50 times as long as float" in slow.ended


@pytest.mark.parametrize(
    ("ratio", "low", "accepted", "warned"),
    [
        (1.03, 1.02, False, False),
        (1.03, 0.99, True, True),
        (1.002, 1.001, True, False),
        (0.9, 0.8, True, False),
    ],
)
def test_what_is_surely_slower_than_float_is_refused(
    qc, monkeypatch, ratio: float, low: float, accepted: bool, warned: bool
) -> None:
    latency = Latency(1.0, ratio, (1.0, 1.0), (low, ratio + 0.02))
    pace = SimpleNamespace(of=lambda made: latency)
    monkeypatch.setattr("qc.auto.climb.Pace", lambda *given: pace)
    result = qc("auto", MODEL, "--data", DATA, "--max-drop", "5%", "--objective", "latency", "--threads", "1")
    assert (result.code == 0) is accepted
    assert ("within the noise of timing" in " ".join(result.err.split())) is warned


def test_the_latency_is_measured_told_and_written(qc) -> None:
    result = qc("auto", MODEL, "--data", DATA, "--objective", "latency", "--keep-best", "--threads", "1")
    assert "times as long as float on this machine" in result.out
    assert tomllib.loads(Path("model.auto.recipe.toml").read_text())["record"]["latency"] > 0


def test_a_target_of_a_file_is_in_the_recipe_by_its_path(qc) -> None:
    Path("mine.toml").write_text('name = "mine"\nextends = "ort-cpu"\n')
    asked = (MODEL, "--data", DATA, "--threads", "1")
    assert qc("auto", *asked, "--target", "mine.toml", "--max-drop", "50%", "-o", "first.onnx").code == 0
    assert qc(*asked, "--pipeline", "first.recipe.toml", "-o", "second.onnx").code == 0
    assert Path("first.onnx").read_bytes() == Path("second.onnx").read_bytes()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "holds [[recipe]] tables"),
        ("recipe = []", "holds [[recipe]] tables"),
        ("[[recipe]]\nafterwards = 'a'", "unknown key 'afterwards' (did you mean 'after'?)"),
        ("[[recipe]]\npipeline = 'w8a9'", "w8a9"),
        ("[[recipe]]\npipeline = 'w8'\nbefore = 'equalize'", "no place for 'before', as 'w8' has no match-"),
        ("[[recipe]]\npipeline = 'fold-constants'\nafter = 'correct-bias'", "no place for 'after'"),
        ("[[recipe]]\npipeline = 'mine.py:DropRelu'", "only --passes takes a pass of a Python file"),
        ("[[recipe]]\nafter = 3", "is a table of texts"),
        (
            "[[recipe]]\nfor = 'cats'",
            "is for 'cats'; it can be for products or wide-data, or for all without 'for'",
        ),
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


def test_a_wrong_number_of_labels_is_told_before_anything_is_tried(qc) -> None:
    np.save("few.npy", np.load("labels.npy")[:-1])
    judged = ["--eval-data", "test.npz", "--labels", "few.npy", "--metric", "user.py:accuracy"]
    result = qc("auto", MODEL, "--data", DATA, *judged, "--log", "log.json")
    assert result.code == 4 and result.err.count("give one for each feed") == 1
    assert not Path("log.json").read_text()


def test_free_dimensions_get_lengths_in_the_recipe_too(qc) -> None:
    result = qc("auto", MODEL, "--data", DATA, *JUDGED, "--fix-shape", "batch=1")
    assert result.code == 0, result.err
    assert "batch=1" in Path("model.auto.recipe.toml").read_text()
    assert model_inputs(onnx.load("model.auto.onnx"))[0].shape[0] == 1


def test_a_metric_that_fails_on_a_part_of_the_samples_names_them(qc) -> None:
    code = """
    class Rare:
        def __init__(self): self.labels = []
        def update(self, outputs, feed, label): self.labels.append((label, outputs["logits"].max()))
        def compute(self):
            rare = [score for label, score in self.labels if label == 77]
            return sum(rare) / len(rare)
    """
    Path("rare.py").write_text(textwrap.dedent(code))
    labels = np.load("labels.npy")
    labels[:10:2] = 77
    np.save("rare.npy", labels)
    judged = ["--eval-data", "test.npz", "--labels", "rare.npy", "--metric", "rare.py:Rare"]
    result = qc("auto", MODEL, "--data", DATA, *judged)
    assert result.code == 2 and "on a tenth of the samples from all over the data" in result.err


def test_weights_of_an_lstm_that_quantizes_its_data_itself_count_as_quantized() -> None:
    model = recurrent("LSTM", 64, 64)
    found = package.find_recipe(model, data=random_feeds(model, 4), max_drop=0.99, recipes=ladder(8)[:1])
    assert found.best.quantized_share == 1


def test_the_table_says_in_a_word_which_recipe_is_the_result(qc) -> None:
    result = qc("auto", MODEL, "--data", DATA, *JUDGED)
    assert "best" in result.out and "*" not in result.out


def test_long_names_of_recipes_break_no_numbers_in_80_columns(qc) -> None:
    name = "whole ranges, outliers apart and in weights, rounded weights"
    Path("mine.toml").write_text(f'[[recipe]]\nname = "{name}"\npipeline = "w8a8"\n')
    result = qc("auto", MODEL, "--data", DATA, *JUDGED, "--recipes", "mine.toml")
    _, titles, row, *more = (line for line in result.out.splitlines() if line)
    assert titles.split() == ["score", "float", "±", "quantized", "bits", "tried", "in", "recipe"]
    assert row.startswith("best ") and len(row) <= 80
    start = titles.index("recipe")
    shown = [line[start:].strip() for line in (row, *more)]
    assert " ".join(shown) == name and shown[0] == "whole ranges,"
    assert not "".join(line[:start] for line in more).strip()


def test_the_result_of_a_compilation_stays_to_compare_with(qc) -> None:
    assert qc(MODEL, "--data", DATA, "--no-verdict").made == ["model.q.onnx"]
    before = Path("model.q.onnx").read_bytes()
    assert qc("auto", MODEL, "--data", DATA, *JUDGED).made == ["model.auto.onnx", "model.auto.recipe.toml"]
    assert Path("model.q.onnx").read_bytes() == before
