"""``qc bench``: time, memory and size of every form of a model, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

MODEL, DATA = "model.onnx", "calibration.npz"
QUICK = ("--seconds", "0.01")


def forms(path: str = "b.json") -> dict[str, list[str]]:
    document = json.loads(Path(path).read_text())
    return {model["model"]: [form["name"] for form in model["forms"]] for model in document["models"]}


def test_float_simulation_and_integer_side_by_side(qc) -> None:
    result = qc("bench", MODEL, "--data", DATA, *QUICK, "--json", "b.json", "--threads", "2")
    assert (result.code, result.made) == (0, ["b.json"]) and result.err.startswith("wrote b.json, ")
    lines = result.out.splitlines()
    assert lines[0] == MODEL
    assert re.fullmatch(r"model +latency +± +to float +± +peak memory +size", lines[2])
    assert [line.split()[0] for line in lines[3:6]] == ["float", "simulation", "integer"]
    assert re.search(r"median of \d+ rounds, 2 threads; ± is half the distance", result.out)
    assert forms() == {MODEL: ["float", "simulation", "integer"]}
    check_schema(json.loads(Path("b.json").read_text()))


def check_schema(document: dict[str, Any]) -> None:
    assert set(document) == {"models"}
    model = document["models"][0]
    assert set(model) == {"model", "rounds", "device", "threads", "pinned", "forms"}
    assert model["threads"] == 2 and model["rounds"] >= 5 and isinstance(model["pinned"], bool)
    for form in model["forms"]:
        assert set(form) == {"name", "latency", "peak_memory", "file_size"}
        assert set(form["latency"]) == {"seconds", "ratio", "seconds_quartiles", "ratio_quartiles"}
        low, high = form["latency"]["seconds_quartiles"]
        assert 0 < low <= form["latency"]["seconds"] <= high
        assert form["peak_memory"] is None or form["peak_memory"] > 0
    sizes = {form["name"]: form["file_size"] for form in model["forms"]}
    assert sizes["float"] == Path(MODEL).stat().st_size > sizes["integer"]
    assert model["forms"][0]["latency"]["ratio"] == 1


def test_several_models_and_no_data(qc) -> None:
    shutil.copy(MODEL, "other.onnx")
    qc(MODEL, "--data", DATA)
    result = qc("bench", MODEL, "other.onnx", "model.q.onnx", *QUICK, "--json", "b.json")
    assert result.code == 0
    note, wrote = result.err.splitlines()
    assert note == "qc: note: without --data, random numbers are used, which is enough to measure costs"
    assert wrote.startswith("wrote b.json, ")
    whole = ["float", "simulation", "integer"]
    assert forms() == {MODEL: whole, "other.onnx": whole, "model.q.onnx": ["as it is"]}
    assert [line for line in result.out.splitlines() if line.endswith(".onnx")] == list(forms())


def test_models_that_are_quantized_already(qc) -> None:
    qc(MODEL, "--data", DATA)
    result = qc(
        "bench", MODEL, "--quantized", "model.q.onnx", "--quantized", MODEL, *QUICK, "--json", "b.json"
    )
    assert result.code == 0 and forms() == {MODEL: ["float", "model.q.onnx", MODEL]}


def test_options_of_a_compilation_are_never_ignored(qc) -> None:
    qc(MODEL, "--data", DATA)
    refused = qc("bench", "model.q.onnx", "--pipeline", "w8a8", *QUICK, "-q")
    assert refused.code == 3 and "the model is quantized already" in refused.err
    assert refused.made == []
    again = qc(
        "bench", "model.q.onnx", "--passes", "import-qdq, insert-qdq", *QUICK, "--json", "b.json", "-q"
    )
    assert again.code == 0 and forms() == {"model.q.onnx": ["as it is", "simulation", "integer"]}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "missing argument 'MODEL.onnx...'"),
        (["absent.onnx"], 3, "model 'absent.onnx' does not exist"),
        ([MODEL, "absent.onnx"], 3, "model 'absent.onnx' does not exist"),
        ([MODEL, MODEL], 2, "'model.onnx' is given 2 times; give it once"),
        ([MODEL, "--seconds", "0"], 2, "--seconds"),
        ([MODEL, "--seconds", "long"], 2, "'long' is not a number of seconds above 0"),
        ([MODEL, "--quantized", MODEL, "--device", "tpu"], 2, "unknown device 'tpu'"),
        ([MODEL, "--random-data", "99999999999999999999"], 2, "99999999999999999999 is more than 2147483647"),
        ([MODEL, "--random-data", "4", "--seed", "-1"], 2, "'-1' is not a number of at least 0"),
        ([MODEL, "--seconds", "inf"], 2, "'inf' is not a number of seconds above 0"),
        ([MODEL, "--size", "foo=3"], 2, "--size names 'foo', which no input has"),
        ([MODEL, "--threads", "0"], 2, "'0' is not a number of at least 1"),
        ([MODEL, "--json", MODEL], 2, "'model.onnx' is the input model"),
        ([MODEL, "--json", "absent/b.json"], 2, "the folder 'absent' does not exist"),
        ([MODEL, "--data", "absent.npz"], 4, "data 'absent.npz' does not exist"),
        ([MODEL, "--random-data", "2", "--data", DATA], 2, "give --data or --random-data, not both"),
        ([MODEL, "--quantized", "absent.onnx"], 3, "model 'absent.onnx' does not exist"),
        ([MODEL, "--quantized", DATA], 3, "model 'calibration.npz' cannot be read"),
        ([MODEL, "--quantized", MODEL, "--target", "npu"], 2, "--target is for compiling"),
        (
            [MODEL, "other.onnx", "--quantized", MODEL],
            2,
            "--quantized is for one MODEL.onnx, and there are 2",
        ),
    ],
)
def test_careless_questions(qc, arguments: list[str], code: int, words: str) -> None:
    shutil.copy(MODEL, "other.onnx")
    result = qc("bench", *arguments, "-q")
    assert (result.code, result.made, result.out) == (code, [], "")
    assert words in result.err and len(result.err.splitlines()) == 1


def test_an_error_tells_which_of_several_models_it_is_about(qc) -> None:
    shutil.copy(MODEL, "other.onnx")
    result = qc("bench", MODEL, "other.onnx", "--size", "width=3", *QUICK, "-q")
    assert result.code == 2 and "'width', which no input has" in result.err
    assert result.err.endswith("qc: note: this was about 'model.onnx'\n")
