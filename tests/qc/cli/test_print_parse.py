"""``qc print`` and ``qc parse``: a model as text, and the text as the same model again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.models import floats, model_of

from qc.ir import lift
from qc.ir.text import load_text, print_model

MODEL, DATA = "model.onnx", "calibration.npz"


def test_print_shows_the_model_as_it_is(qc) -> None:
    result = qc("print", MODEL)
    assert (result.code, result.err, result.made) == (0, "", [])
    assert result.out == print_model(lift(MODEL))


def test_text_in_files_becomes_the_same_bytes(qc) -> None:
    printed = qc("print", MODEL, "-o", "model.qcir")
    assert (printed.code, printed.made) == (0, ["model.qcir", "model.qcir.data"])
    assert "wrote model.qcir.data, 8" in printed.err
    parsed = qc("parse", "model.qcir", "-o", "again.onnx")
    assert (parsed.code, parsed.made) == (0, ["again.onnx"])
    assert Path("again.onnx").read_bytes() == Path(MODEL).read_bytes()


def test_text_without_weights_needs_the_model_that_has_them(qc) -> None:
    Path("model.qcir").write_text(qc("print", MODEL).out)
    without = qc("parse", "model.qcir", "-o", "again.onnx")
    assert (without.code, without.made) == (3, [])
    assert "the data of '%conv_1.weight' are not in the text; give the model" in without.err
    assert qc("parse", "model.qcir", "--weights", MODEL, "-o", "again.onnx", "-q").err == ""
    assert Path("again.onnx").read_bytes() == Path(MODEL).read_bytes()


def test_an_edited_text_is_another_model(qc) -> None:
    text = qc("print", MODEL).out
    Path("edited.qcir").write_text(text.replace("= Relu(", "= Sigmoid(", 1))
    assert qc("parse", "edited.qcir", "--weights", MODEL, "-o", "edited.onnx").code == 0
    assert qc("diff", MODEL, "edited.onnx").out.count("Sigmoid") == 1


def test_print_compiles_for_rules_of_precision_alone(qc) -> None:
    result = qc("print", MODEL, "--set", "Conv=w4")
    assert result.code == 0 and ": int4 symmetric" in result.out


def test_constants_are_folded_without_data_as_with_it(qc) -> None:
    weight = numpy_helper.from_array(np.ones((4, 4), np.int8), "codes")
    scale = numpy_helper.from_array(np.float32(0.5), "scale")
    nodes = [
        helper.make_node("Cast", ["codes"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["cast", "scale"], ["weight"]),
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
    ]
    model = model_of(nodes, [floats("x", 2, 4)], [floats("y", 2, 4)], [weight, scale])
    onnx.save(model, "folded.onnx")
    np.savez("x.npz", x=np.ones((1, 2, 4), np.float32))
    alone = qc("print", "folded.onnx", "--pipeline", "w8a8")
    assert alone.code == 0, alone.err
    with_data = qc("print", "folded.onnx", "--data", "x.npz")
    for printed in (alone, with_data):
        assert "MatMul(" in printed.out and "Cast(" not in printed.out and "Mul(%cast" not in printed.out


def test_print_compiles_if_it_is_told_how(qc) -> None:
    result = qc("print", MODEL, "--data", DATA, "-o", "quantized.qcir")
    assert result.code == 0
    model = load_text("quantized.qcir")
    assert model.regions and all(quantizer.encoding for quantizer in model.quant.quantizers())
    parsed = qc("parse", "quantized.qcir", "-o", "folded.onnx")
    assert f"left out the {len(model.quant.quantizers())} quantizers of the text" in parsed.err
    assert not lift("folded.onnx").quant.quantizers()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["print", "absent.onnx"], 3, "'absent.onnx' does not exist"),
        (["print", MODEL, "-o", MODEL], 2, "model.onnx"),
        (["print", MODEL, "-o", "absent/model.qcir"], 2, "absent"),
        (["parse", "absent.qcir", "-o", "out.onnx"], 3, "'absent.qcir' does not exist"),
        (["parse", MODEL, "-o", "out.onnx"], 3, "'model.onnx' is not UTF-8 text"),
        (["parse", "notes.txt", "-o", "out.onnx"], 3, "notes.txt, line 1, column 1: expected 'model'"),
        (["parse", "notes.txt", "-o", "notes.txt"], 2, "notes.txt"),
        (["parse", "notes.txt"], 2, "'--output'"),
    ],
)
def test_mistakes(qc, arguments: list[str], code: int, message: str) -> None:
    Path("notes.txt").write_text("buy milk\n")
    before = Path(MODEL).read_bytes()
    result = qc(*arguments)
    assert (result.code, result.out, result.made) == (code, "", [])
    assert result.err.startswith("qc: error: ") and message in result.err
    assert Path(MODEL).read_bytes() == before
