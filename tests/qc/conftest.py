"""A place to run the command line in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper
from support.folders import FIXTURES, TESTS
from support.models import floats, model_of

from qc.cli import main
from qc.ir.base.plugins import installed_plugins


@dataclass(frozen=True)
class Result:
    """What a command did: its exit code, what it printed, and the files it made."""

    code: int
    out: str
    err: str
    made: list[str]


class Workplace:
    """An empty folder with a float model and data, in which commands run."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture
        shutil.copy(FIXTURES / "digits_cnn.onnx", folder / "model.onnx")
        shutil.copy(FIXTURES / "digits_calibration.npz", folder / "calibration.npz")

    def __call__(self, *arguments: str) -> Result:
        before = self._files()
        self._capture.readouterr()
        code = main(list(arguments))
        out, err = self._capture.readouterr()
        return Result(code, out, err, [name for name in self._files() if name not in before])

    def _files(self) -> list[str]:
        """Without the folder in which Python keeps what it compiled of a user's file, where it may."""
        return sorted(path.name for path in self.folder.iterdir() if path.name != "__pycache__")


@pytest.fixture
def qc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Workplace:
    """The command ``qc``, run in an empty folder with ``model.onnx`` and ``calibration.npz``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("QC_TRACEBACK", raising=False)
    return Workplace(tmp_path, capsys)


@pytest.fixture
def planted(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Installs the passes of ``support/planted.py`` as a plugin; the PYTHONPATH that other processes need."""
    site = tmp_path_factory.mktemp("site")
    info = site / "planted-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[qc.plugins]\nplanted = support.planted\n")
    monkeypatch.syspath_prepend(site)
    installed_plugins.cache_clear()
    yield f"{site}{os.pathsep}{TESTS}"
    installed_plugins.cache_clear()


@pytest.fixture
def chain(qc: Workplace) -> ModelProto:
    """``chain.onnx``: 40 times Add and Relu, in a row; the Relus are ``relu_1`` to ``relu_40``."""
    names = ["x", *(f"r_{index}" for index in range(1, 41))]
    weights = np.random.default_rng(0).normal(size=(41, 4)).astype(np.float32)
    nodes, constants = [], []
    for index in range(1, 41):
        constants.append(numpy_helper.from_array(weights[index], f"w_{index}"))
        sum_name = f"a_{index}"
        nodes.append(helper.make_node("Add", [names[index - 1], f"w_{index}"], [sum_name]))
        nodes.append(helper.make_node("Relu", [sum_name], [names[index]], name=f"relu_{index}"))
    model = model_of(nodes, [floats("x", "n", 4)], [floats("r_40", "n", 4)], constants)
    onnx.save(model, qc.folder / "chain.onnx")
    return model
