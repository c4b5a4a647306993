"""``qc eval``: metrics, labels, errors of single tensors; what is written, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.float_types import in_type
from support.models import parse

from qc.compiler import Compilation

MODEL, DATA = "model.onnx", "calibration.npz"
QUICK = ("--data", DATA, "--latency-seconds", "0")
SCORES = {"elements", "equal", "sqnr_db", "cosine", "max_abs_error", "left_out"}
DOCUMENT = {"feeds", "rounds", "device", "threads", "reference", "candidates", "metrics"}
CODE = """
def largest(outputs):
    return outputs["logits"].max()

def accuracy(outputs, feed, label):
    return outputs["logits"].argmax() == label

def text(outputs):
    return "x"

def odd(outputs):
    return outputs["logit"]
"""


@pytest.fixture(autouse=True)
def user(qc) -> None:
    Path("user.py").write_text(CODE)
    np.save("labels.npy", np.zeros(128, int))


def test_metrics_of_float_simulation_and_integer(qc) -> None:
    result = qc("eval", MODEL, *QUICK, "--metric", "top-1", "--metric", "user.py:largest", "--json", "e.json")
    assert (result.code, result.made) == (0, ["e.json"])
    assert re.search(r"^metric +float +simulation +integer$", result.out, re.MULTILINE)
    assert re.search(r"^top-1 +1 +[01]\.?\d* +[01]\.?\d*$", result.out, re.MULTILINE)
    top, largest = json.loads(Path("e.json").read_text())["metrics"]
    assert (top["name"], top["reference"]) == ("top-1", 1.0)
    assert largest["candidates"] == pytest.approx([largest["reference"]] * 2, rel=0.1)


def test_the_simulation_for_a_device_makes_its_codes(qc) -> None:
    target = ("--target", "qnn-htp", "--fix-shape", "batch=1")
    result = qc("eval", MODEL, *QUICK, *target, "--metric", "sqnr", "--json", "e.json")
    assert result.code == 0
    simulated, integer = json.loads(Path("e.json").read_text())["metrics"][0]["candidates"]
    assert simulated > integer + 1, "the grids before activations do not count on the HTP"


def test_labels_reach_the_function(qc) -> None:
    result = qc("eval", MODEL, *QUICK, "--metric", "user.py:accuracy", "--labels", "labels.npy")
    assert result.code == 0
    assert re.search(r"^user.py:accuracy( +0\.\d+){3}$", result.out, re.MULTILINE)


def test_the_tensors_that_lose_most(qc) -> None:
    result = qc("eval", MODEL, *QUICK, "--layers", "3")
    shown = result.out.partition("those first that lose most\n\n")[2].splitlines()
    assert result.code == 0 and len(shown) == 4
    assert re.fullmatch(r"\w+ +\w+ +uint8 +\d+\.\d dB +\d+\.\d dB", shown[1])


def test_the_number_of_tensors_may_be_left_out(qc) -> None:
    result = qc("eval", *QUICK, "--layers", MODEL)
    assert result.code == 0
    assert len(result.out.partition("lose most\n\n")[2].splitlines()) == 11


def test_the_plot(qc) -> None:
    result = qc("eval", MODEL, *QUICK, "--plot")
    assert result.code == 0
    assert len([line for line in result.out.splitlines() if "\u2588" in line]) == 36
    assert "lose most" not in result.out


def test_the_page_and_the_document(qc) -> None:
    result = qc("eval", MODEL, *QUICK, "--html", "page.html", "--json", "e.json")
    assert (result.code, result.made) == (0, ["e.json", "page.html"])
    assert "wrote e.json, " in result.err and "wrote page.html, " in result.err
    page = Path("page.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "float against quantized on 128 samples" in page
    document = json.loads(Path("e.json").read_text())
    assert set(document) == {*DOCUMENT, "layers"}
    assert (document["layers"]["feeds"], len(document["layers"]["layers"])) == (128, 36)
    assert page.count("<tr id=") == 36


def test_the_schema_of_the_document(qc) -> None:
    qc("eval", MODEL, "--data", DATA, "--latency-seconds", "0.01", "--metric", "sqnr", "--json", "e.json")
    document = json.loads(Path("e.json").read_text())
    latency = {"seconds", "ratio", "seconds_quartiles", "ratio_quartiles"}
    assert set(document) == DOCUMENT
    assert set(document["reference"]) == latency
    for candidate in document["candidates"]:
        assert set(candidate) == {"name", "outputs", "latency"} and set(candidate["latency"]) == latency
        for output in candidate["outputs"]:
            assert set(output) == {"output", *SCORES}
    assert [set(metric) for metric in document["metrics"]] == [{"name", "reference", "candidates"}]
    assert document["metrics"][0]["reference"] == "inf"


def test_what_is_inside_bodies_is_told(qc) -> None:
    model = parse("""g (float[n, 4] x, bool c) => (float[n, 4] y) <float[4, 4] w> {
        a = MatMul(x, w)
        y = If(c) <
            then_branch = t () => (float[n, 4] p) { k = MatMul(a, w)  p = Tanh(k) },
            else_branch = e () => (float[n, 4] q) { q = Tanh(a) }
        >
    }""")
    onnx.save(model, "if.onnx")
    result = qc("eval", "if.onnx", "--random-data", "4", "--latency-seconds", "0", "--layers")
    assert result.code == 0, result.err
    assert "qc: note: left out 2 quantized tensors inside If, Loop or Scan\n" in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--metric", "user.py:text"], 2, "'user.py:text' returned 'x' on feed 0; let it return a number"),
        (["--metric", "user.py:odd"], 2, "failed on feed 0 with KeyError: 'logit'"),
        (["--metric", "user.py:none"], 2, "'user.py' has no function 'none'"),
        (["--metric", "user.py"], 2, "unknown metric 'user.py'"),
        (["--metric", "user.py:accuracy"], 2, "takes a label, and there are none"),
        (["--metric", "top-11"], 2, "needs more than the 10 elements"),
        (["--metric", "top-1(label)"], 2, "names the output 'label', which the model does not have"),
        (["--metric", ""], 2, "it is empty"),
        (["--labels", "labels.npy"], 2, "--labels is for functions of --metric, and none is given"),
        (["--metric", "user.py:accuracy", "--labels", "absent.npy"], 4, "labels 'absent.npy' do not exist"),
        (["--metric", "top-1", "--labels", "labels.npy"], 2, "--labels is for functions of --metric"),
        (["--metric", "user.py:accuracy", "--labels", DATA], 4, "are not an .npy file"),
        (["--layers", "0"], 2, "'0' is not a number of at least 1"),
        (["--layers", "-3"], 2, "'-3' is not a number of at least 1"),
        (["--threads", "0"], 2, "'0' is not a number of at least 1"),
        (["--latency-seconds", "nan"], 2, "'nan' is not a number of seconds of at least 0"),
        (["--latency-seconds", "-1"], 2, "'-1' is not a number of seconds of at least 0"),
        (["--threads", "99999999999999"], 2, "99999999999999 is more than"),
        (["--device", "gpu"], 2, "unknown device 'gpu' (did you mean 'cuda'?)"),
        (["--quantized", MODEL, "--set", "Conv=w4"], 2, "--set is for compiling, which --quantized leaves"),
        (["--quantized", MODEL, "--precision", "p.toml"], 2, "--precision is for compiling"),
        (["--html", "absent/page.html"], 2, "the folder 'absent' does not exist"),
        (
            ["--html", "user.py", "--metric", "user.py:largest"],
            2,
            "'user.py' is the Python file of the metric",
        ),
        (["--html", "same", "--json", "same"], 2, "'same' cannot be two results at once"),
        (["--quantized", MODEL, "--set", "Conv=w4"], 2, "--set is for compiling, which --quantized leaves"),
        (["--quantized", MODEL, "--precision", "p.toml"], 2, "--precision is for compiling"),
        (["--quantized", MODEL, "--layers", "4"], 2, "--layers, --plot and --html are about compiling"),
        (["--passes", "fold-constants", "--layers"], 2, "no tensor is quantized"),
    ],
)
def test_careless_questions(qc, arguments: list[str], code: int, words: str) -> None:
    result = qc("eval", MODEL, *QUICK, *arguments)
    assert (result.code, result.made, result.out) == (code, [], "")
    assert words in result.err and len(result.err.splitlines()) == 1
    assert Path("user.py").read_text() == CODE


@pytest.mark.parametrize(
    ("shape", "code", "words"),
    [
        ((5,), 4, "there are 5 labels for 128 feeds; give one for each feed"),
        ((1, 128), 4, "there is 1 label for 128 feeds"),
        ((129,), 4, "there are 129 labels for 128 feeds"),
        ((128, 3), 2, "returned an array of shape (3,) on feed 0; let it return a number; the label is an"),
        ((128, 3), 2, "the label is an array of shape (3,)"),
    ],
)
@pytest.mark.parametrize("judging", ["--metric user.py:accuracy", "--oracle user.py:accuracy < 0.5"])
def test_labels_that_do_not_fit_are_told_before_any_work(
    qc, monkeypatch, judging: str, shape: tuple[int, ...], code: int, words: str
) -> None:
    np.save("labels.npy", np.zeros(shape, int))
    monkeypatch.setattr(Compilation, "compile", None)
    option, _, text = judging.partition(" ")
    command = "eval" if option == "--metric" else "bisect"
    result = qc(command, MODEL, "--data", DATA, option, text, "--labels", "labels.npy")
    assert (result.code, result.made, result.out) == (code, [], "")
    assert words in result.err and len(result.err.splitlines()) == 1


def test_labels_of_the_samples_that_are_compared_are_enough(qc) -> None:
    np.save("labels.npy", np.zeros(8, int))
    judging = ["--oracle", "user.py:accuracy < -1", "--labels", "labels.npy", "--samples"]
    assert "the whole result is not bad" in qc("bisect", MODEL, "--data", DATA, *judging, "8").err
    assert "there are 8 labels for 9 feeds" in qc("bisect", MODEL, "--data", DATA, *judging, "9").err


def test_there_must_be_data(qc) -> None:
    result = qc("eval", MODEL, "--layers")
    assert result.code == 2 and "there is no data to compare on; give it with --data" in result.err


@pytest.mark.parametrize("elem_type", [onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE])
def test_a_float_model_that_has_no_kernels_is_compared_in_float32(qc, elem_type: int) -> None:
    text = """
    g (float[N, 4] x) => (float[N, 4, 1, 1] y) <int64[4] shape = {-1, 4, 1, 1}, float[4, 4, 1, 1] w> {
        pixels = Reshape(x, shape)
        y = Conv(pixels, w)
    }
    """
    onnx.save(in_type(parse(text), elem_type), "other.onnx")
    result = qc("eval", "other.onnx", "--random-data", "4", "--latency-seconds", "0")
    assert result.code == 0, result.err
    assert "integer" in result.out and "dB" in result.out


def test_what_is_not_comparable_is_told(qc) -> None:
    lines = """float[4] x) => (float[4] y, float[kept] z)
    <float c = {%s}> { y = Sub(x, c)  b = Cast<to=9>(y)  z = Compress(y, b) }"""
    for name, constant in (("float.onnx", "0"), ("other.onnx", "1")):
        onnx.save(parse("g (" + lines % constant), name)
    np.savez("data.npz", x=np.array([[2, 3, 4, 5], [1, 2, 3, 4]], np.float32))
    arguments = ["eval", "float.onnx", "--quantized", "other.onnx", "--data", "data.npz"]
    result = qc(*arguments, "--latency-seconds", "0", "--json", "eval.json")
    assert result.code == 0
    assert "output 'z' of 'quantized' has other sizes than the reference's on 1 of 2 samples" in result.err
    outputs = json.loads(Path("eval.json").read_text())["candidates"][0]["outputs"]
    assert [one["left_out"] for one in outputs] == [0, 1]
