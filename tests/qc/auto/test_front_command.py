"""``qc auto`` with candidates: the front of mixtures of precisions, written, drawn and measured."""

from __future__ import annotations

import itertools
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from support.folders import FIXTURES

from qc.auto.recipes import Recipe
from qc.auto.trial import Trial
from qc.auto.trials import Trials
from qc.auto.watch import OutOfTime

AUTO = (
    *("auto", "model.onnx", "--data", "calibration.npz", "--eval-data", "test.npz", "--threads", "1"),
    *("--recipes", "plain.toml", "--candidates", "w4a8,w8a8,float"),
)


@pytest.fixture
def few_samples(qc) -> None:
    with np.load(FIXTURES / "digits_test.npz") as test:
        np.savez("test.npz", image=test["image"][:64])
    Path("plain.toml").write_text("[[recipe]]\nname = 'plain'\npipeline = 'w8a8'\n")


def test_the_front_is_written_measured_and_not_beaten_by_uniform_precisions(few_samples, qc) -> None:
    asked = (*AUTO, "--metric", "cosine", "--max-drop", "2%", "--points", "7")
    assert qc(*asked, "--front", "front.json").code == 0
    document = json.loads(Path("front.json").read_text())
    assert (document["candidates"], document["cost"]) == (["w4a8", "w8a8", "float"], "size")
    names = ["all w4a8", "all w8a8", "all float"]
    uniform = {one["name"]: one for one in document["measured"] if one["name"] in names}
    assert list(uniform) == names and len(document["measured"]) > 3
    best = [one for one in document["measured"] if one["best"]]
    for one in uniform.values():
        assert any(other["bits"] <= one["bits"] and other["drop"] <= one["drop"] for other in best)
    for one, after in itertools.pairwise(best):
        assert one["bits"] < after["bits"] and one["drop"] > after["drop"]
    record = tomllib.loads(Path("model.auto.recipe.toml").read_text())["record"]
    assert record["accepted"]
    accepted = [trial for trial in record["trial"] if trial["accepted"]]
    assert min(trial["weight_bits"] for trial in accepted) < 7
    assert record["score"] == min(accepted, key=lambda trial: trial["weight_bits"])["score"]
    again = qc(*asked[1:4], "--pipeline", "model.auto.recipe.toml", "--threads", "1", "-o", "again.onnx")
    assert again.code == 0
    assert Path("again.onnx").read_bytes() == Path("model.auto.onnx").read_bytes()


def test_the_page_of_a_front_shows_what_was_measured(few_samples, qc) -> None:
    pick = ("--points", "2", "--max-drop", "1%")
    result = qc(*AUTO, "--metric", "cosine", *pick, "--front", "front.html")
    page = Path("front.html").read_text()
    assert result.code == 0 and "Mixed precision of model.onnx" in page
    assert "wrote front.html, " in result.err
    assert "all w8a8" in page and "all float" in page and "http" not in page
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[-2:] for line in lines if "front  " in line][-1] == ["all", "float"]
    titles = ["bits", "operations", "score", "loss", "expected", "choice"]
    assert titles in [line.split() for line in lines]


def test_bits_of_a_weight_are_as_asked(few_samples, qc) -> None:
    asked = (*AUTO, "--metric", "cosine", "--max-drop", "1%")
    assert qc(*asked, "--bits", "5.5").code == 0
    trials = tomllib.loads(Path("model.auto.recipe.toml").read_text())["record"]["trial"]
    assert [5 < trial["weight_bits"] <= 5.5 for trial in trials] == [False, True]
    refused = qc(*AUTO, "--metric", "cosine", "--max-drop", "0.01%", "--bits", "4.1", "-o", "other.onnx")
    assert (refused.code, refused.made) == (5, [])


def test_a_note_tells_why_nothing_was_mixed(few_samples, qc) -> None:
    asked = ("auto", "model.onnx", "--data", "calibration.npz", "--threads", "1", "--max-drop", "50%")
    result = qc(*asked, "--bits", "5.2", "--candidates", "w4a8,w8a8")
    told = " ".join(result.err.split())
    assert result.code == 0 and "precisions were not mixed, as '" in told and "good enough with 4." in told
    assert "--bits tells how many it has at most, --candidates is for mixing" in told
    assert "not mixed" not in qc(*asked, "-o", "other.onnx").err


def test_a_front_that_is_not_measured_in_time_is_told_of(few_samples, qc) -> None:
    asked = (*AUTO, "--metric", "cosine", "--max-drop", "1%", "--minutes", "1e-6")
    late = qc(*asked, "--front", "front.html")
    assert (late.code, late.made) == (5, ["model.auto.onnx", "model.auto.recipe.toml"])
    assert "'front.html' is not written, as nothing was measured: the time was over" in late.err


def test_a_front_by_time_is_timed_and_of_all_groups(few_samples, qc, monkeypatch) -> None:
    monkeypatch.setattr("qc.auto.climb.is_slower", lambda latency: True)  # so that kinds of ops stay float
    asked = (*AUTO, "--metric", "cosine", "--objective", "latency")
    qc(*asked, "--points", "2", "--keep-best", "--front", "front.json")
    document = json.loads(Path("front.json").read_text())
    assert document["cost"] == "time" and len(document["groups"]) > 5
    times = [one["time"] for one in document["measured"]]
    assert times == sorted(times) and all(one["expected_time"] > 0 for one in document["expected"])
    assert {one["name"]: one["time"] for one in document["measured"]}["all float"] == 1
    eight = qc(*asked, "--target", "openvino", "--minutes", "1e-6", "-o", "other.onnx")
    assert "has no costs of kernels: if precisions are mixed, bit operations stand for time" in eight.err


def test_what_was_measured_of_a_front_in_time_is_written(few_samples, qc, monkeypatch) -> None:
    whole, tried = Trials.result, []

    def result(trials: Trials, recipe: Recipe, may_be_late: bool = False) -> Trial:
        tried.append(recipe)
        if len(tried) > 3:
            raise OutOfTime("the time is over")
        return whole(trials, recipe, may_be_late)

    monkeypatch.setattr(Trials, "result", result)
    asked = (*AUTO, "--metric", "cosine", "--max-drop", "5%", "--points", "9")
    assert qc(*asked, "--front", "front.json").code == 0
    measured = json.loads(Path("front.json").read_text())["measured"]
    assert 2 <= len(measured) <= 4 and "all w4a8" in [one["name"] for one in measured]


def test_no_two_trials_have_one_name(few_samples, qc) -> None:
    qc(*AUTO, "--metric", "cosine", "--points", "30", "--front", "front.json", "--log", "log.jsonl")
    names = [json.loads(line)["name"] for line in Path("log.jsonl").read_text().splitlines()]
    assert len(names) > 15 and len(set(names)) == len(names)
    assert any(name.endswith(" (2)") for name in names)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--bits", "5", "--weights", "4"], "bits of weights are given twice"),
        (["--front", "front.png"], "a front is written as .html or as .json"),
        (["--candidates", "w8"], "a candidate is w and a with 2 to 16 bits"),
        (["--candidates", "w8a16", "--max-drop", "0"], "does not run w8a16"),
        (["--front", "model.onnx"], "a front is written as .html"),
        (["--candidates", "w8a8"], "w8a8 alone leaves nothing to mix; give two candidates or more"),
        (["--bits", "3.9"], "no mixture has 3.9 bits of a weight: of the candidates w4a8 has fewest"),
    ],
)
def test_what_cannot_be_mixed(few_samples, qc, options: list[str], sentence: str) -> None:
    base = AUTO[:-4] if "--weights" in options else AUTO
    result = qc(*base, "--metric", "max-error", *options)
    assert (result.code, result.made) == (2, []) and sentence in result.err
