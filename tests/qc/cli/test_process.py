"""The process of the command line: exit codes, closed pipes and interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODEL, DATA = "model.onnx", "calibration.npz"


def run(*arguments: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "qc", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
        **options,  # type: ignore[call-overload]
    )


def test_the_exit_code_reaches_the_shell(qc) -> None:
    process = run("absent.onnx")
    out, err = process.communicate()
    assert (process.returncode, out) == (3, "")
    assert err == "qc: error: model 'absent.onnx' does not exist\n"


def test_a_closed_pipe_is_no_disaster(qc) -> None:
    process = run("print", MODEL)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal as POSIX has them")
@pytest.mark.parametrize("slow", ["click", "onnx"])
def test_an_interrupt_while_the_command_starts(tmp_path: Path, slow: str) -> None:
    """A module that qc needs takes for ever to import."""
    (tmp_path / f"{slow}.py").write_text(
        "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "qc", "list-targets"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not (tmp_path / "begun").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told.strip()) == (130, "qc: error: interrupted")


def test_an_interrupt(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("qc.compiler.Compilation.compile", interrupt)
    result = qc(MODEL, "--data", DATA)
    assert (result.code, result.made) == (130, [])
    assert result.err.endswith("qc: error: interrupted\n")


def test_an_interrupt_that_a_library_makes_an_error_of_its_own(qc, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise ImportError("initialization failed") from KeyboardInterrupt()

    monkeypatch.setattr("qc.compiler.Compilation.compile", interrupt)
    assert qc(MODEL, "--data", DATA).code == 130


def test_results_are_told_of_before_an_interrupt_of_what_is_only_measured(
    qc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.delenv("QC_NO_VERDICT")
    monkeypatch.setattr("qc.cli.quantizing.measure_verdict", interrupt)
    result = qc(MODEL, "--data", DATA)
    assert (result.code, result.made) == (130, ["model.q.onnx"])
    assert "wrote      model.q.onnx" in result.err


@pytest.mark.parametrize(
    "options",
    [
        ["--data", "script.py:feeds"],
        ["--data", DATA, "--passes", "script.py:Pass"],
        ["--data", DATA, "--plugin", "script.py"],
    ],
)
def test_a_script_that_ends_the_process_is_an_error(qc, options: list[str]) -> None:
    """Which a command that only repeats its exit code would take for success."""
    Path("script.py").write_text("import sys\n\nsys.exit(0)\n")
    result = qc(MODEL, *options)
    assert (result.code, result.made) == (2, [])
    assert "ended qc by sys.exit(0) in line 3 of" in result.err and "script.py'" in result.err
