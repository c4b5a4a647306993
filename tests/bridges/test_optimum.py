"""qc as a quantizer of Optimum, if that is installed."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support.models import parse, random_feeds

from qc.ir.errors import UsageError

pytest.importorskip("optimum.quantization_base", reason="Optimum is not installed")

from qc.bridges.optimum import QcQuantizer

MODEL = "g (float[64, 64] x) => (float[64, 64] y) <float[64, 64] w> { h = MatMul(x, w) y = Softmax(h) }"


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A folder as an export leaves it."""
    folder = tmp_path / "exported"
    folder.mkdir()
    onnx.save(parse(MODEL), folder / "model.onnx")
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"weights")
    return folder


def test_a_folder_is_quantized_with_what_belongs_to_the_model(exported: Path, tmp_path: Path) -> None:
    feeds = random_feeds(parse(MODEL), 4)
    made = QcQuantizer.from_pretrained(exported).quantize(tmp_path / "made", data=feeds)
    assert made == tmp_path / "made/model_quantized.onnx"
    assert "DequantizeLinear" in {node.op_type for node in onnx.load(made).graph.node}
    assert sorted(file.name for file in made.parent.iterdir()) == ["config.json", "model_quantized.onnx"]


def test_a_model_is_named_where_there_are_several(exported: Path, tmp_path: Path) -> None:
    onnx.save(parse(MODEL), exported / "decoder.onnx")
    with pytest.raises(UsageError, match=r"2 models, decoder\.onnx, model\.onnx: name one by file_name"):
        QcQuantizer.from_pretrained(exported)
    quantizer = QcQuantizer.from_pretrained(exported, file_name="decoder.onnx")
    feeds = random_feeds(parse(MODEL), 4)
    assert quantizer.quantize(tmp_path / "made", "small", pipeline="w8", data=feeds).name == "small.onnx"
    with pytest.raises(UsageError, match="there is no model"):
        QcQuantizer.from_pretrained(exported / "other.onnx")
    with pytest.raises(UsageError, match="has no model"):
        QcQuantizer.from_pretrained(tmp_path / "made/..")
