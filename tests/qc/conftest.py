"""A place to run the command line in."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from qc.cli import main

FIXTURES = Path(__file__).parents[1] / "fixtures"


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
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def qc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Workplace:
    """The command ``qc``, run in an empty folder with ``model.onnx`` and ``calibration.npz``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("QC_TRACEBACK", raising=False)
    return Workplace(tmp_path, capsys)
