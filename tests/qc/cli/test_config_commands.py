"""``qc explain-config`` and ``qc convert-config``, and a compilation with a configuration of AIMET."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from support.graph_text import build_model
from support.models import random_feeds

from qc.cli import main
from qc.cli.run import cli

CONFIG = {
    "defaults": {
        "ops": {"is_output_quantized": "True"},
        "params": {"is_quantized": "True", "is_symmetric": "True"},
    },
    "params": {"bias": {"is_quantized": "False"}},
    "op_type": {"Conv": {"per_channel_quantization": "True"}},
    "supergroups": [{"op_list": ["Conv", "Relu"]}],
    "model_input": {"is_input_quantized": "True"},
    "model_output": {},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aimet.json").write_text(json.dumps(CONFIG))
    return tmp_path


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_configuration_in_words(folder: Path) -> None:
    text = " ".join(printed("explain-config", "aimet.json").split())
    assert "Every op's result is quantized, asymmetric." in text
    assert "one scale per channel Parameters of Conv." in text
    assert "Conv + Relu: only the last result is quantized." in text


def test_a_converted_configuration_says_the_same(folder: Path) -> None:
    assert main(["convert-config", "aimet.json", "-o", "own.toml"]) == 0
    assert printed("explain-config", "own.toml") == printed("explain-config", "aimet.json")


@pytest.mark.parametrize(
    "arguments, culprit",
    [
        (["explain-config", "htp73"], "there is no configuration 'htp73' (did you mean"),
        (["explain-config", "none.json"], "there is no configuration file 'none.json'"),
        (["explain-config", "wrong.json"], "'wrong.json': there is no key 'ops'"),
        (["convert-config", "aimet.json", "-o", "aimet.json"], "must end in .toml"),
        (["convert-config", "aimet.json"], "--output"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], culprit: str
) -> None:
    (folder / "wrong.json").write_text(json.dumps({**CONFIG, "ops": {}}))
    assert main(arguments) == 2
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 1 and culprit in errors[0], errors


def test_a_compilation_with_aimets_json(folder: Path) -> None:
    weight = np.ones((4, 4, 3, 3), np.float32)
    model = build_model("c = Conv(x, w); y = Relu(c)", inputs="float[1,4,8,8] x", constants={"w": weight})
    onnx.save(onnx.shape_inference.infer_shapes(model), "model.onnx")
    np.savez("data.npz", **random_feeds(model)[0])
    passes = "configure-quantizers{config='aimet.json'},calibrate{rounded_parameters=true},to-encodings"
    assert main(["model.onnx", "--data", "data.npz", "--passes", passes, "-o", "q.onnx", "-q"]) == 0
    content = json.loads(Path("q.encodings").read_text())
    assert [entry["name"] for entry in content["activation_encodings"]] == ["x", "y"]
    assert [(e["name"], len(e["scale"])) for e in content["param_encodings"]] == [("w", 4)]
