"""``qc diff``: what it prints and writes, and its exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx

MODEL, DATA = "model.onnx", "calibration.npz"


def test_equal_models(qc) -> None:
    shutil.copy(MODEL, "copy.onnx")
    result = qc("diff", MODEL, "copy.onnx")
    assert (result.code, result.out, result.err) == (0, "model.onnx and copy.onnx are equal\n", "")
    assert qc("diff", MODEL, "copy.onnx", "-q").out == ""


def test_a_quantized_model_beside_the_float_one(qc) -> None:
    qc(MODEL, "--data", DATA)
    result = qc("diff", MODEL, "model.q.onnx")
    assert (result.code, result.err, result.made) == (1, "", [])
    lines = result.out.splitlines()
    assert lines[:2] == ["- model.onnx", "+ model.q.onnx"]
    assert "ops         10 removed" in lines
    assert "quantizers  37 added" in lines
    assert "- BatchNormalization 'batchnormalization_1': folded into Conv 'conv_1'" in lines
    assert any(line.startswith("+ 'relu_1': uint8 asymmetric, scale 0.017") for line in lines)
    assert lines[-1] == "-v shows all differences"
    assert len(lines) < 40
    assert qc("diff", MODEL, "model.q.onnx", "-v").out.count("\n+ '") == 37


def test_quiet_tells_by_the_exit_code_alone(qc) -> None:
    qc(MODEL, "--passes", "fold-batch-norms", "-o", "folded.onnx")
    result = qc("diff", MODEL, "folded.onnx", "--quiet")
    assert (result.code, result.out, result.err) == (1, "", "")


def test_json(qc) -> None:
    qc(MODEL, "--passes", "fold-batch-norms", "-o", "folded.onnx")
    result = qc("diff", MODEL, "folded.onnx", "--json", "diff.json")
    assert (result.code, result.made) == (1, ["diff.json"])
    document = json.loads(Path("diff.json").read_text())
    assert document["counts"] == {"ops": {"added": 0, "removed": 10, "changed": 0}}
    assert document["differences"][0]["removed"] == ["BatchNormalization 'batchnormalization_1'"]


def test_subgraphs_are_named_once(qc) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x, bool c) => (float[2] y) {
        y = If (c) <
            then_branch = t () => (float[2] a) { a = Relu(x) },
            else_branch = e () => (float[2] b) { n = Neg(x) b = %s(n) }
        >
    }"""
    for name, op in (("a.onnx", "Abs"), ("b.onnx", "Exp")):
        onnx.save(onnx.parser.parse_model(text % op), name)
    lines = qc("diff", "a.onnx", "b.onnx").out.splitlines()
    assert lines[-2:] == ["  in else_branch of If of 'y'", "~ Abs of 'b': became Exp of 'b'"]


def test_names_cannot_steer_the_terminal(qc) -> None:
    model = onnx.load(MODEL)
    model.graph.node[0].name = "\x1b[2J[bold]"
    onnx.save(model, "evil.onnx")
    result = qc("diff", MODEL, "evil.onnx")
    assert result.code == 1 and "\x1b" not in result.out
    assert "~ Conv 'conv_1': is '\\x1b[2J[bold]'" in result.out


def test_errors(qc) -> None:
    assert qc("diff", MODEL).code == 2
    assert qc("diff", MODEL, "absent.onnx").code == 3
    Path("bad.onnx").write_bytes(b"no model")
    assert qc("diff", "bad.onnx", MODEL).code == 3
    result = qc("diff", MODEL, MODEL, "--json", MODEL)
    assert (result.code, result.made) == (2, [])
    assert result.err == "qc: error: 'model.onnx' is the first model; write to another file\n"
