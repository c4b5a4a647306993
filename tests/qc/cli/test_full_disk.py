"""A disk that is full: what cannot be kept is left out, what is needed is named, and qc is not to blame."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.models import parse

from qc.ir.base.files import atomic_write, temporary_folder
from qc.ir.errors import ModelError, UsageError
from qc.runtime import open_session

resource = pytest.importorskip("resource")

MODEL, DATA = "model.onnx", "calibration.npz"


@contextmanager
def room_for_files_of(size: int) -> Iterator[None]:
    """Makes the system refuse, as a full disk does, what goes beyond so many bytes of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_calibration_goes_on_without_its_cache(qc) -> None:
    assert qc(MODEL, "--data", DATA, "-o", "expected.onnx").code == 0
    with room_for_files_of(200_000):
        result = qc(MODEL, "--data", DATA, "--cache", "cache", "-o", "out.onnx")
    assert result.code == 0
    assert "calibration goes on, and is not kept" in result.err
    assert result.err.count("cannot write") == 1, "once, and not for every sample"
    assert not list(Path("cache").glob(".*")), "no file that is half written"
    assert Path("out.onnx").read_bytes() == Path("expected.onnx").read_bytes()


def test_a_folder_in_place_of_a_file_of_the_cache(qc) -> None:
    assert qc(MODEL, "--data", DATA, "--cache", "cache", "-o", "expected.onnx").code == 0
    (file,) = Path("cache").iterdir()
    file.unlink()
    file.mkdir()
    result = qc(MODEL, "--data", DATA, "--cache", "cache", "-o", "out.onnx")
    assert result.code == 0
    assert "cannot be used" in result.err and "it is a folder" in result.err
    assert Path("out.onnx").read_bytes() == Path("expected.onnx").read_bytes()


def test_temporary_files_without_room(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    assert qc(MODEL, "--data", DATA, "-o", "q.onnx").code == 0
    Path("temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(Path("temporary").absolute()))
    for command in ([MODEL, "--data", DATA, "-o", "out.onnx"], ["check", "q.onnx"]):
        with room_for_files_of(10_000):
            result = qc(*command)
        assert result.code == 2, result.err
        assert "temporary': " in result.err and "TMPDIR" in result.err
        assert result.made == [] and list(Path("temporary").iterdir()) == []


def test_a_model_that_does_not_load_is_not_blamed_on_the_disk(tmp_path: Path) -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
        g (float[1, 2] x) => (float[1, 2] y) { y = acme.Frobnicate(x) }"""
    )
    with pytest.raises(ModelError, match="Frobnicate"):
        open_session(model, optimized_file=tmp_path / "optimized.onnx")


def test_a_file_that_is_too_large_for_the_disk(tmp_path: Path) -> None:
    with (
        room_for_files_of(100_000),
        pytest.raises(UsageError, match=r"cannot write '.*statistics\.npz': "),
        atomic_write(tmp_path / "statistics.npz") as file,
    ):
        np.savez(file, one=np.zeros(100_000), other=np.zeros(10))
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match=r"absent': No such file.*TMPDIR"), temporary_folder():
        pass


def test_an_error_within_a_temporary_folder_about_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError), temporary_folder():
        Path("/absent/file").read_bytes()
