"""Arguments in each other's place, names that are nearly those of models, and words without an option."""

from __future__ import annotations

from pathlib import Path

import pytest

MODEL, DATA = "model.onnx", "calibration.npz"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([DATA, "--data", MODEL], f"the model comes first: 'qc compile {MODEL} --data {DATA}'"),
        (["why", "relu_1", MODEL], f"as TENSOR; the model comes first: 'qc why {MODEL} relu_1'"),
        (["explain-match", "gelu", MODEL], f"the model comes first: 'qc explain-match {MODEL} gelu'"),
        (
            ["encodings", "apply", MODEL, "mixed.encodings", "-o", "out.onnx"],
            f"as FILE; swap them: 'qc encodings apply mixed.encodings {MODEL}'",
        ),
        (["weights", "conv_1", MODEL], f"the model comes first: 'qc weights {MODEL} conv_1'"),
    ],
)
def test_a_model_in_the_place_of_another_argument(qc, arguments: list[str], sentence: str) -> None:
    Path("mixed.encodings").write_text("{}")
    result = qc(*arguments)
    assert (result.code, result.made) == (2, [])
    assert "is given as MODEL.onnx, and the model 'model.onnx' as" in result.err and sentence in result.err


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("model.onx", "(did you mean 'model.onnx'?)"),
        ("modle.onnx", "(did you mean 'model.onnx'?)"),
        ("folder/nothing.onnx", ""),
        ("elsewhere.onnx", ""),
    ],
)
def test_a_model_beside_is_suggested(qc, name: str, hint: str) -> None:
    said = qc(name, "--data", DATA).err
    assert f"model '{name}' does not exist{' ' * bool(hint)}{hint}" in said
    assert bool(hint) is ("did you mean" in said)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["auto", MODEL, "--data", DATA, "--max-drop", "5", "%"], "argument (%): a number and its % are"),
        (
            [MODEL, "--data", DATA, "--remarks", "=near"],
            "argument (=near): what an option gets is written right",
        ),
        ([MODEL, "near"], "unexpected extra argument (near); 'qc compile --help'"),
        ([MODEL, DATA], f"argument ({DATA}): data is given as --data {DATA}"),
        (["help", "nothing"], "or command 'nothing'\n"),
    ],
)
def test_words_that_belong_to_nothing(qc, arguments: list[str], sentence: str) -> None:
    result = qc(*arguments)
    assert result.code == 2 and sentence in result.err
