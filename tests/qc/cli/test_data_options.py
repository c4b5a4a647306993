"""Data on the command line: pictures, labels that come with the data, what is left out, and a preview."""

from __future__ import annotations

import base64
import re
from dataclasses import fields
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from support.folders import FIXTURES
from support.models import parse
from tokenizers import Tokenizer, models, pre_tokenizers

from qc import DataFiles, compile
from qc.cli.preparing import Preparing

PRESET = ("--preset", "inception", "--crop", "8")
ACCURACY = """
def accuracy(outputs, feed, label):
    return outputs["logits"].argmax() == label
"""


@pytest.fixture
def digits(qc) -> None:
    """Pictures of digits in one folder for each, and the same as arrays with labels."""
    test = np.load(FIXTURES / "digits_test.npz")
    for index, (image, label) in enumerate(zip(test["image"][:40], test["label"], strict=False)):
        folder = Path("photos") / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.round((image[0] + 1) * 127.5).astype(np.uint8)).save(folder / f"{index}.png")
    np.savez("test.npz", image=test["image"][:40], label=test["label"][:40], writer=np.arange(40))
    Path("user.py").write_text(ACCURACY)


def test_the_command_line_has_all_options_of_data() -> None:
    names = {field.name for field in fields(Preparing)}
    assert names == {field.name for field in fields(DataFiles)} - {"path", "_"}


def test_pictures_of_a_folder_calibrate_and_judge(qc, digits) -> None:
    result = qc(
        "eval",
        "model.onnx",
        "--data",
        "photos",
        *PRESET,
        "--latency-seconds",
        "0",
        "--metric",
        "user.py:accuracy",
    )
    assert result.code == 0, result.err
    known = re.search(r"^user.py:accuracy +([.0-9]+) +([.0-9]+) +([.0-9]+)$", result.out, re.MULTILINE)
    assert known is not None and min(map(float, known.groups())) > 0.9
    assert qc("model.onnx", "--data", "photos", *PRESET, "-o", "a.onnx", "-q").code == 0
    compiled = compile("model.onnx", data=DataFiles("photos", preset="inception", crop=8))
    assert onnx.load("a.onnx") == compiled.model


def test_labels_come_with_an_archive(qc, digits) -> None:
    arguments = ("--data", "test.npz", "--metric", "user.py:accuracy", "--latency-seconds", "0")
    result = qc("eval", "model.onnx", *arguments)
    assert result.code == 0 and re.search(r"^user.py:accuracy( +[.0-9]+){3}$", result.out, re.MULTILINE)
    result = qc("bisect", "model.onnx", "--data", "test.npz", "--oracle", "user.py:accuracy < 0.5", "-q")
    assert "takes a label" not in result.err


def test_what_the_model_does_not_take_is_named(qc, digits) -> None:
    result = qc("model.onnx", "--data", "test.npz")
    assert result.code == 0
    assert "the model has no input for 'writer' of the data, left out" in result.err.replace("\n", " ")
    assert "'label'" not in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--data", "photos"), 4, "nothing says how pixels of 0 to 255 become the numbers"),
        (("--data", "photos", "--resize", "8x"), 2, "'8x' is not a size such as 256, or 256x192"),
        (("--data", "photos", "--mean", "1/0"), 2, "'1/0' is not a number such as 0.5 or 1/255"),
        (("--data", "photos", "--preset", "resnet"), 2, "unknown preset 'resnet'"),
        (("--preset", "clip"), 2, "--preset prepares data; give it with --data"),
        (("--data", "test.npz", "--crop", "8"), 2, "'crop' is an option for pictures and tables, and"),
    ],
)
def test_careless_options(qc, digits, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = qc("model.onnx", *arguments)
    assert (result.code, result.made) == (code, [])
    assert message in result.err.replace("\n", " ")


def test_the_first_samples_as_the_model_sees_them(qc, digits) -> None:
    arguments = ("data", "preview", "model.onnx", "--data", "photos", *PRESET, "--samples", "3")
    result = qc(*arguments, "-o", "page.html")
    assert (result.code, result.made) == (0, ["page.html"]), result.err
    assert re.search(r"^'photos': 3 samples of 40$", result.out, re.MULTILINE)
    assert re.search(r"^image +\(1, 1, 8, 8\) +float32 +-1 +1 +-0\.\d+ +0\.\d+$", result.out, re.MULTILINE)
    page = Path("page.html").read_text()
    assert page.count('<img src="data:image/png;base64,') == 3 and "sample 1, label 0" in page
    (first,) = re.findall(r'sample 0, label 0.*?base64,([^"]+)"', page, re.DOTALL)
    drawn = np.asarray(Image.open(BytesIO(base64.b64decode(first))))
    original = np.asarray(Image.open(min(Path("photos/0").iterdir(), key=lambda path: int(path.stem))))
    assert np.array_equal(drawn, original)


def test_curves_and_words_of_a_preview(qc) -> None:
    onnx.save(parse("g (float[n, 200] x, int64[n, 3] ids) => (float[n, 200] y) { y = Relu(x) }"), "two.onnx")
    np.savez("two.npz", x=np.zeros((2, 200), np.float32), ids=np.arange(6).reshape(2, 3), more=np.ones(2))
    result = qc("data", "preview", "two.onnx", "--data", "two.npz", "-o", "page.html")
    page = Path("page.html").read_text()
    assert result.code == 0 and page.count("<polyline") == 2 and "3, 4, 5" in page
    assert "no input for more" in result.err
    result = qc("data", "preview", "two.onnx", "--data", "two.npz", "-o", "page.png")
    assert (result.code, result.made) == (2, []) and "written as .html" in result.err


def test_a_preview_shows_audio_as_curves_and_the_text_behind_ids(qc) -> None:
    onnx.save(parse("g (float[n, 1, 200] x) => (float[n, 1, 200] y) { y = Relu(x) }"), "audio.onnx")
    np.save("audio.npy", np.zeros((2, 1, 200), np.float32))
    assert qc("data", "preview", "audio.onnx", "--data", "audio.npy", "-o", "page.html").code == 0
    page = Path("page.html").read_text()
    assert page.count("<polyline") == 2 and "<img" not in page, "a picture would be one pixel high"
    onnx.save(parse("g (int64[n, length] ids) => (int64[n, length] y) { y = Identity(ids) }"), "text.onnx")
    tokenizer = Tokenizer(models.WordLevel({"none": 0, "warm": 1, "rain": 2}, unk_token="none"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    Path("words").mkdir()
    tokenizer.save("words/tokenizer.json")
    Path("lines.txt").write_text("warm rain\n")
    made = qc(
        "data", "preview", "text.onnx", "--data", "lines.txt", "--tokenizer", "words", "-o", "page.html"
    )
    assert made.code == 0 and "\u201cwarm rain\u201d: 1, 2" in Path("page.html").read_text()
