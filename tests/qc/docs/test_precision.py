"""The page on precision by hand: its script and its commands run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.folders import ROOT
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply

from qc.cli import main

NETWORK = """g (float[2, 3, 6, 6] x) => (float[2, 5] y)
<float[4, 3, 3, 3] w1, float[4] b1, float[4] s1, float[4] o1, float[4] m1, float[4] var1,
 float[4, 5] w2, float[5] b2> {
    c = Conv(x, w1, b1)
    n = BatchNormalization(c, s1, o1, m1, var1)
    a = Add(c, n)
    r = Relu(a)
    p = GlobalAveragePool(r)
    f = Flatten(p)
    y = Gemm(f, w2, b2)
}"""
PAGE = ROOT / "docs/precision.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds what the page takes for granted; the current one."""
    monkeypatch.chdir(tmp_path)
    model = parse(NETWORK)
    model.graph.node[0].name, model.graph.node[-1].name = "conv1", "fc"
    model.graph.node[0].input[1] = model.graph.initializer[0].name = "conv1.weight"
    onnx.save(model, "model.onnx")
    feeds = random_feeds(model, 4)
    np.savez("calibration.npz", x=np.stack([feed["x"] for feed in feeds]))
    (tmp_path / "precision.toml").write_text(blocks("toml")[0])
    context = apply(f"{PLACE},calibrate,to-encodings", model, "ort-cpu", feeds)[1]
    (tmp_path / "adaround.encodings").write_text(str(context.artifacts["encodings"].payload))
    return tmp_path


def test_the_script_of_the_page(folder: Path) -> None:
    (script,) = blocks("python")
    names: dict[str, object] = {"feeds": random_feeds(onnx.load("model.onnx"), 4)}
    exec(compile(script, "script", "exec"), names)
    assert names["outputs"][0].shape == (2, 5)  # type: ignore[index]
    assert {"Cast", "QuantizeLinear"} <= {node.op_type for node in onnx.load("mixed.onnx").graph.node}


COMMANDS = [
    line
    for block in blocks("sh")
    for line in re.sub(r"\n    ", " ", block).splitlines()
    if line.startswith("qc")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page(command: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command, comments=True)
    assert main([*words[1:], "--no-reproducer"] if "why" not in words else words[1:]) == 0
    said = capfd.readouterr()
    if "why" in words:
        assert "asked by --set 'Conv=w4'" in said.out
    else:
        made = words[words.index("-o") + 1] if "-o" in words else "model.q.onnx"
        assert (folder / made).exists()
