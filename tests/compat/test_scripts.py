"""The scripts of the pages on switching run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from support.folders import ROOT

from qc.compat.aimet_onnx import QuantizationSimModel

from .networks import feeds, network

_DOCS = ROOT / "docs"


def _scripts(page: str) -> list[str]:
    """The Python of each section of a page."""
    sections = (_DOCS / page).read_text(encoding="utf-8").split("\n## ")
    found = ["\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL)) for section in sections]
    return [script for script in found if script]


@pytest.mark.parametrize("number", range(6))
def test_the_scripts_of_the_page_on_aimet(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(network(), "model.onnx")
    rounded = QuantizationSimModel(network(), param_type="int4")
    rounded.compute_encodings(feeds())
    rounded.export(tmp_path, "adaround", export_model=False)
    scripts = _scripts("switching-from-aimet.md")
    assert len(scripts) == 6
    exec(compile(scripts[number], f"script {number}", "exec"), {"feeds": feeds()})


def test_the_scripts_of_the_page_on_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(network(), "model.onnx")
    names = {"feeds": feeds()}
    for script in _scripts("switching-from-onnxruntime.md"):
        exec(compile(script, "script", "exec"), names)
    for path in ("model.q.onnx", "model.htp.onnx"):
        assert "QuantizeLinear" in {node.op_type for node in onnx.load(path).graph.node}
    assert "MatMulNBits" in {node.op_type for node in onnx.load("model.w4.onnx").graph.node}
