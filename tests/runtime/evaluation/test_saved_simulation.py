"""A saved simulation runs in a fresh process and another folder, with ONNX Runtime and the library alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper
from support.folders import FIXTURES

import qc
from qc.runtime import library_path

# Without qc: what is imported must not bring it in.
SCRIPT = """
import sys
import numpy
import onnxruntime

options = onnxruntime.SessionOptions()
options.register_custom_ops_library(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
image = numpy.load("images.npy")
assert not {name for name in sys.modules if name.split(".")[0] in ("qc", "onnx")}
numpy.save("plain.npy", session.run(None, {"image": image})[0])
scales = [value.name for value in session.get_overridable_initializers() if value.name.endswith("/scale")]
off = {name: numpy.zeros((), numpy.float32) for name in scales}
numpy.save("off.npy", session.run(None, {"image": image, **off})[0])
"""


@pytest.mark.parametrize("external", [False, True], ids=["one file", "external data"])
def test_a_saved_simulation_runs_without_qc(tmp_path: Path, external: bool) -> None:
    with np.load(FIXTURES / "digits_calibration.npz") as data:
        images = data["image"][:16]
    compiled = qc.compile(FIXTURES / "digits_cnn.onnx", "w8a8", data=[{"image": images}], threads=1)
    model = onnx.ModelProto()
    model.CopyFrom(compiled.simulation)
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    elsewhere.mkdir(), here.mkdir()
    if external:
        external_data_helper.convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
        external_data_helper.write_external_data_tensors(model, str(elsewhere))
    (elsewhere / "model.onnx").write_bytes(model.SerializeToString())
    library = Path(shutil.copy(library_path(), elsewhere))
    np.save(here / "images.npy", images)
    done = subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT, str(elsewhere / "model.onnx"), str(library)],
        cwd=here,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    simulation = qc.Simulation(elsewhere / "model.onnx", threads=1)
    expected = simulation.run({"image": images})["logits"]
    off = simulation.with_encodings(dict.fromkeys(simulation.quantizers, "off"))
    np.testing.assert_array_equal(np.load(here / "plain.npy"), expected)
    np.testing.assert_array_equal(np.load(here / "off.npy"), off.run({"image": images})["logits"])
