"""qc as a pass of Olive, if that is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.models import parse, random_feeds

pytest.importorskip("olive.passes", reason="Olive is not installed")

from olive.data.config import DataComponentConfig, DataConfig
from olive.data.registry import Registry
from olive.model import ONNXModelHandler
from olive.passes.olive_pass import create_pass_from_dict
from olive.workflows import run

from qc.bridges.olive import QcQuantization, package_config

MODEL = "g (float[64, 64] x) => (float[64, 64] y) <float[64, 64] w> { h = MatMul(x, w) y = Softmax(h) }"
FEEDS = random_feeds(parse(MODEL), 4)


@Registry.register_dataloader()
def samples_of_the_test(dataset: object, batch_size: int = 1, **settings: object) -> list[object]:
    return [(feed, 0) for feed in FEEDS]


def data_config() -> DataConfig:
    dataset = DataComponentConfig(type="simple_dataset")
    loader = DataComponentConfig(type="samples_of_the_test")
    return DataConfig(name="data", load_dataset_config=dataset, dataloader_config=loader)


def test_the_pass_compiles_a_model(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    onnx.save(parse(MODEL), source)
    made = create_pass_from_dict(QcQuantization, {"data_config": data_config()}, disable_search=True)
    result = made.run(ONNXModelHandler(str(source)), str(tmp_path / "made"))
    op_types = {node.op_type for node in onnx.load(result.model_path).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= op_types
    session = result.prepare_session(device="cpu")
    expected = (
        ONNXModelHandler(str(tmp_path / "model.onnx")).prepare_session(device="cpu").run(None, FEEDS[0])
    )
    np.testing.assert_allclose(session.run(None, FEEDS[0])[0], expected[0], atol=0.05)


def test_a_workflow_finds_the_pass_by_the_package_configuration(tmp_path: Path) -> None:
    onnx.save(parse(MODEL), tmp_path / "model.onnx")
    written = tmp_path / "package.json"
    subprocess.run([sys.executable, "-m", "qc.bridges.olive", str(written)], check=True)
    assert json.loads(written.read_text()) == package_config()
    workflow = {
        "input_model": {"type": "ONNXModel", "model_path": str(tmp_path / "model.onnx")},
        "data_configs": [data_config().model_dump()],
        "passes": {"qc": {"type": "QcQuantization", "pipeline": "w8a8", "data_config": "data"}},
        "output_dir": str(tmp_path / "made"),
        "cache_dir": str(tmp_path / "cache"),
    }
    run(workflow, package_config=written)
    (made,) = (tmp_path / "made").rglob("*.onnx")
    assert "QuantizeLinear" in {node.op_type for node in onnx.load(made).graph.node}
