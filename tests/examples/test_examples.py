"""The scripts of ``examples`` run as a user runs them, and what they print is what they promise."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from support.folders import FIXTURES, ROOT

import qc
from qc.runtime import library_path, open_session

FOLDER = ROOT / "examples"


def numbers(script: str, folder: Path) -> dict[str, float]:
    """The number at the end of what a script prints before it, on each line."""
    command = [sys.executable, str(FOLDER / script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {name: float(number) for name, number in re.findall(r"^(.*) ([\d.]+)$", done.stdout, re.MULTILINE)}


def test_classification(tmp_path: Path) -> None:
    found = numbers("classification/classify.py", tmp_path)
    assert found["float"] > 0.95 and found["quantized"] > 0.95 and found["integer"] > 0.9


def test_detection(tmp_path: Path) -> None:
    found = numbers("detection/detect.py", tmp_path)
    assert found["boxes"] == 60 and found["matched"] > 0.95 and found["integer"] > 0.9


def test_speech(tmp_path: Path) -> None:
    if find_spec("silero_vad") is None:
        pytest.skip("the package silero-vad, which the Makefile installs, is not here")
    found = numbers("speech/voice.py", tmp_path)
    assert found["voice"] > 0.2 and found["agree"] > 0.9 and found["size"] < 0.4


def test_a_recurrent_network(tmp_path: Path) -> None:
    found = numbers("recurrent/forecast.py", tmp_path)
    assert found["float error"] < 0.1 and found["quantized error"] < 1.1 * found["float error"]
    assert found["size"] < 0.4


def test_a_language_model(tmp_path: Path) -> None:
    found = numbers("language/bigrams.py", tmp_path)
    assert found["model"] < 15
    assert found["model.w4-block32"] < 1.05 * found["model"] and found["model.w4a8"] < 1.05 * found["model"]


def test_mixed_precision_by_hand(tmp_path: Path) -> None:
    found = list(numbers("mixed-precision/by_hand.py", tmp_path).values())
    assert found == sorted(found) and found[0] < found[-1]
    assert (tmp_path / "model.mixed.onnx").exists()


def test_dask(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    assert numbers("dask/calibrate.py", tmp_path)["workers"] == 2
    assert (tmp_path / "cluster.onnx").read_bytes() == (tmp_path / "alone.onnx").read_bytes()


def test_c(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    libraries = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
    if compiler is None or not libraries:
        pytest.skip("there is no C compiler, or no library of ONNX Runtime to link to")
    declarations = Path(__file__).with_name("declarations")
    program = tmp_path / "run"
    (tmp_path / "libonnxruntime.so.1").symlink_to(libraries[0])  # the name that it goes by when it is loaded
    build = [compiler, str(FOLDER / "c/run.c"), "-Wall", "-Werror", f"-I{declarations}", str(libraries[0])]
    subprocess.run([*build, f"-Wl,-rpath,{tmp_path}", "-o", str(program)], check=True)
    model, data = FIXTURES / "digits_cnn.onnx", FIXTURES / "digits_calibration.npz"
    made = qc.compile(model, "w8a8{calibrate.method=min-max},to-simulation", data=data)
    made.save(tmp_path / "digits.onnx")
    image = np.load(data)["image"][:1]
    for name, session, library in (
        ("digits.onnx", onnxruntime.InferenceSession(tmp_path / "digits.onnx"), []),
        ("digits.simulation.onnx", open_session(made.simulation), [str(library_path())]),
    ):
        command = [str(program), str(tmp_path / name), "image", "logits", *library]
        done = subprocess.run(command, input=image.tobytes(), capture_output=True)
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(
            np.array(done.stdout.split(), float), session.run(None, {"image": image})[0][0], rtol=1e-6
        )
