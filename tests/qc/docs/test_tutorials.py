"""The tutorials do what they say: their files are written and their commands run, as they stand there."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.folders import ROOT
from support.models import parse

from qc.ir.errors import ModelError
from qc.runtime import open_session


def page(kind: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page of a tutorial; its model and data are in the current folder, as its first lines make them."""
    text = (ROOT / f"docs/{kind}-tutorial.md").read_text(encoding="utf-8")
    made_by = rf"^mkdir {kind}-tutorial && cd {kind}-tutorial && python \.\./(\S+) (\w+)$"
    ((script, argument),) = re.findall(made_by, text, re.MULTILINE)
    monkeypatch.setattr(sys, "argv", [script, argument])
    runpy.run_path(str(ROOT / script))
    return text


def run_commands(qc, text: str) -> dict[str, object]:
    """Runs the commands of a page in their order; what each gave."""
    results = {
        command: qc(*shlex.split(command)[1:])
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for command in block.splitlines()
        if command.startswith("qc ")
    }
    for command, result in results.items():
        assert result.code == 0, f"{command}: {result.err}"
    return results


def test_the_image_tutorial(qc, monkeypatch, capsys: pytest.CaptureFixture) -> None:
    text = page("image", monkeypatch)
    judge, deploy = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    Path("judge.py").write_text(judge)
    results = run_commands(qc, text)
    assert len(results) == 9
    assert all(Path(name).exists() for name in ("samples.html", "small.onnx", "report.html", "best.onnx"))
    (scores,) = [
        found
        for result in results.values()
        if (found := re.search(r"^judge.py:accuracy +(\S+) +(\S+) +(\S+)$", result.out, re.MULTILINE))
    ]
    assert min(map(float, scores.groups())) > 0.9
    exec(compile(deploy, "image-tutorial.md", "exec"), {})
    assert capsys.readouterr().out == "3\n"


def test_the_language_tutorial(qc, monkeypatch) -> None:
    pytest.importorskip("tokenizers")
    results = run_commands(qc, page("language", monkeypatch))
    assert len(results) == 4
    (judged,) = (result.out for command, result in results.items() if command.startswith("qc eval"))
    (likelihood,) = re.findall(r"^likelihood .* (0\.\d+)$", judged, re.MULTILINE)
    assert float(likelihood) > 0.9
    assert Path("small.onnx").stat().st_size < 0.2 * Path("model.onnx").stat().st_size


def test_the_audio_tutorial(qc, monkeypatch) -> None:
    results = run_commands(qc, page("audio", monkeypatch))
    assert len(results) == 4 and Path("small.onnx").exists()


HARD_SWISH = """<ir_version: 10, opset_import: ["": 21]>
network (float[1, 3, 8, 8] image) => (float[1, 4] scores)
<float[8, 3, 3, 3] filters, float[8, 4] last> {
    three = Constant <value_float = 3.0> ()
    zero = Constant <value_float = 0.0> ()
    six = Constant <value_float = 6.0> ()
    c = Conv (image, filters)
    shifted = Add (c, three)
    gate = Clip (shifted, zero, six)
    product = Mul (gate, c)
    h = Div (product, six)
    pooled = GlobalAveragePool (h)
    features = Flatten (pooled)
    scores = Gemm (features, last)
}"""


def test_the_compiler_inside_another(tmp_path: Path) -> None:
    text = (ROOT / "docs/embedding.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {"__name__": "embedding"}
    exec(compile(code, "embedding.md", "exec", dont_inherit=True), names)
    onnx.save(parse(HARD_SWISH), tmp_path / "model.onnx")
    names["compile_for_device"](str(tmp_path / "model.onnx"), str(tmp_path / "device.onnx"))
    made = onnx.load(tmp_path / "device.onnx")
    assert [node.op_type for node in made.graph.node] == [
        "Conv",
        "HardSwish",
        "GlobalAveragePool",
        "Flatten",
        "Gemm",
    ]
    feed = {"image": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    before, after = (
        open_session(tmp_path / name).run(None, feed)[0] for name in ("model.onnx", "device.onnx")
    )
    np.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-6)
    onnx.save(
        parse(HARD_SWISH.replace("Clip (shifted, zero, six)", "Tanh (shifted)")), tmp_path / "other.onnx"
    )
    with pytest.raises(ModelError, match="is Add, which the device does not have"):
        names["compile_for_device"](str(tmp_path / "other.onnx"), str(tmp_path / "device.onnx"))
