"""Results of qc in Polygraphy's runner, if that is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.models import parse, random_feeds

import qc

pytest.importorskip("polygraphy.backend.onnxrt", reason="Polygraphy is not installed")

from polygraphy.backend.onnxrt import OnnxrtRunner
from polygraphy.comparator import Comparator

from qc.bridges.polygraphy import SessionFromQc

MODEL = parse("g (float[4, 8] x) => (float[4, 8] y) <float[8, 8] w> { h = MatMul(x, w) y = Softmax(h) }")
FEEDS = random_feeds(MODEL, 4)


def test_a_result_its_file_and_its_simulation_run_beside_the_float_model(tmp_path: Path) -> None:
    compiled = qc.compile(MODEL, "w8a8", data=FEEDS, threads=1)
    compiled.save(tmp_path / "model.q.onnx")
    models = {
        "float": MODEL,
        "result": compiled,
        "file": tmp_path / "model.q.onnx",
        "simulation": compiled.simulation,
    }
    runners = [OnnxrtRunner(SessionFromQc(model, threads=1), name=name) for name, model in models.items()]
    found = Comparator.run(runners, data_loader=[{"x": FEEDS[0]["x"]}])
    outputs = {name: iterations[0]["y"] for name, iterations in found.items()}
    np.testing.assert_array_equal(outputs["result"], outputs["file"])
    for name in models:
        np.testing.assert_allclose(outputs[name], outputs["float"], atol=0.05)
    assert np.any(outputs["float"] != outputs["simulation"])
