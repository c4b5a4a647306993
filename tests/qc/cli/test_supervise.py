"""Native code that ends the process, and signals, end a command in one word and with one exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.models import parse

from qc.cli import run
from qc.cli.supervise import EndedBySignal
from qc.ir.base.files import folder_mark
from qc.runtime.executors.sharded import process_pool

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="commands run in a fork")

# ONNX Runtime writes behind the end of the inputs of the If, for which the capture of t is none.
DEADLY = """<ir_version: 8, opset_import: ["" : 17]>
deadly (float[2, 4] x, bool c) => (float[4, 2] y) <float scale = {0.1}, uint8 zero = {128}> {
    codes = QuantizeLinear(x, scale, zero)
    d = DequantizeLinear(codes, scale, zero)
    t = Transpose<perm = [1, 0]>(d)
    y = If(c) <
        then_branch = one () => (float[4, 2] p) { p = Tanh(t) },
        else_branch = two () => (float[4, 2] q) { q = Neg(t) }
    >
}"""
FLOAT = (
    """deadly (float[2, 4] x, bool c) => (float[4, 2] y) { t = Transpose<perm = [1, 0]>(x)  y = Tanh(t) }"""
)
WAITING = """
import sys, time
from qc.cli.supervise import supervised
def ready():
    print("ready", flush=True)
def run():
    {}
    return 7
sys.exit(supervised(run))
"""


@pytest.fixture(scope="module")
def deadly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that ends the process of whoever opens it; skips where ONNX Runtime got over it."""
    path = tmp_path_factory.mktemp("deadly") / "deadly.onnx"
    onnx.save(parse(DEADLY), path)
    opened = f"import onnxruntime as o; o.InferenceSession({str(path)!r}, providers=['CPUExecutionProvider'])"
    if subprocess.run([sys.executable, "-c", opened], capture_output=True, check=False).returncode >= 0:
        pytest.skip("this ONNX Runtime opens the model")
    return path


@pytest.mark.parametrize("command", ["check", "eval", "bench"])
def test_a_crash_of_onnx_runtime_becomes_a_sentence(deadly: Path, tmp_path: Path, command: str) -> None:
    float_model, data = tmp_path / "float.onnx", tmp_path / "data.npz"
    onnx.save(parse(FLOAT), float_model)
    np.savez(data, x=np.ones((1, 2, 4), np.float32), c=np.ones(1, bool))
    arguments = {
        "check": ["check", str(deadly), "--runs", "0"],
        "eval": ["eval", str(float_model), "--quantized", str(deadly), "--data", str(data)],
        "bench": ["bench", str(deadly)],
    }[command]
    wanted = tmp_path / "report.json"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = qc(*arguments, "--json", str(wanted), TMPDIR=str(temporary))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 3
    assert last.startswith("qc: error: ONNX Runtime ended with SIGABRT while it opened")
    assert f"'{deadly}'" in last
    assert "without optimizations" in last
    assert not wanted.exists() and not list(temporary.glob("qc-*"))


def test_a_crash_of_anything_else_is_a_defect() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITING.format("import os; os.abort()")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 6
    assert "qc ended with SIGABRT; this is a defect of qc" in done.stderr


@pytest.mark.parametrize("end", ["os.abort()", "os._exit(143)", "os.kill(os.getpid(), 9)"])
def test_only_the_temporary_folders_of_the_command_are_removed(tmp_path: Path, end: str) -> None:
    """Processes of another container that shares the folder have the same numbers."""
    does = (
        "import os; from pathlib import Path; from qc.ir.base.files import temporary_directory\n"
        "    kept = temporary_directory(); folder = Path(kept.name)\n"
        f"    (folder.parent / f'qc-{{os.getpid()}}-other').mkdir(); {end}"
    )
    command = [sys.executable, "-c", WAITING.format(does)]
    subprocess.run(command, capture_output=True, check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    (left,) = tmp_path.iterdir()
    assert left.name.endswith("-other")


def test_workers_mark_their_temporary_folders_as_the_command_does() -> None:
    with process_pool(1) as pool:
        assert pool.submit(folder_mark).result() == folder_mark()


def test_the_exit_code_is_that_of_the_command() -> None:
    done = subprocess.run([sys.executable, "-c", WAITING.format("pass")], capture_output=True, check=False)
    assert done.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_both_processes_end_by_a_signal(number: signal.Signals) -> None:
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # as under nohup, and processes inherit it
    if number == signal.SIGHUP and ignored:
        pytest.skip("hangups are ignored here")
    process = started("ready(); print(__import__('os').getpid(), flush=True); time.sleep(60)")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert child != process.pid
    process.send_signal(number)
    assert process.wait(30) == -number
    assert process.stdout.read() == ""  # who else could write has ended


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_temporary_files_are_gone_and_a_crash_at_the_end_is_no_defect(
    number: signal.Signals, tmp_path: Path
) -> None:
    """What is interrupted in native code may crash."""
    process = started(
        "import os, tempfile\n"
        "    try:\n"
        f"        with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}):\n"
        "            ready(); time.sleep(60)\n"
        "    finally: os.abort()"
    )
    assert list(tmp_path.iterdir())
    process.send_signal(number)
    assert process.wait(30) == -number
    assert not list(tmp_path.iterdir())


def test_what_ends_the_command_ends_both() -> None:
    """Such as the system, which kills what takes the most memory."""
    process = started("ready(); print(__import__('os').getpid(), flush=True); time.sleep(60)")
    assert process.stdout is not None
    os.kill(int(process.stdout.readline()), signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL


def test_an_interrupt_of_both_processes_is_one() -> None:
    process = started(
        "\n    ".join(["try: ready(); time.sleep(60)", "except KeyboardInterrupt: time.sleep(1)"])
    )
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 7


def test_an_end_that_both_processes_are_asked_for_is_one() -> None:
    """As by timeout, which ends a whole group."""
    process = started(
        "\n    ".join(["try: ready(); time.sleep(60)", "finally: time.sleep(1); print('clean', flush=True)"])
    )
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    assert process.stdout is not None and process.stdout.read() == "clean\n"


def test_an_end_that_takes_too_long_is_at_once_and_without_a_word() -> None:
    process = started(
        "import atexit; atexit.register(lambda: (ready(), time.sleep(60))); ready(); time.sleep(60)"
    )
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(2.2)  # what comes sooner is the same signal
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    assert process.stderr is not None and process.stderr.read() == ""


def test_an_end_within_an_import_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_native(*_: object, **__: object) -> None:
        raise ImportError("initialization failed") from EndedBySignal(143)

    monkeypatch.setattr(run.cli, "main", import_native)
    with pytest.raises(EndedBySignal):
        run.run([])


def started(does: str) -> subprocess.Popen[str]:
    """A supervised process, as a group of its own, that began to do something."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING.format(does)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def qc(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "qc", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
