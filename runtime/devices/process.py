"""A process of its own for the native code of a vendor, which may end the one that it runs in.

Requests and answers are pickled. The first request opens a model; each further one is a feed. What native
code writes goes to the log that the first request names.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

from qc.ir.errors import ModelError, QcError
from qc.ir.executor import Feed

# Runs one feed: the results in the order of the model's outputs.
Run = Callable[[Feed], list[Any]]
_LAST_SECONDS = 5.0  # for a process whose answer is none to end by itself


class OpenRequest(Protocol):
    """What to open; ``log`` is the file for what is said meanwhile."""

    @property
    def log(self) -> Path: ...


class DeviceProcess:
    """The process that holds a model, which ends when nobody holds this any longer.

    Attributes:
        pid: its number.

    Args:
        module: a module whose function ``opened`` opens the model of a request and gives a :data:`Run`.
        runtime: what messages call the native code.
        mend: what a user can do where it ended, as a sentence goes on.
        limit: the seconds after which it is ended while it opens a model or runs it; None for no limit.

    Raises:
        OSError: there can be no other process.
    """

    def __init__(self, module: str, runtime: str, mend: str, limit: float | None = None) -> None:
        self._runtime, self._mend, self._limit = runtime, mend, limit
        self._opens, self._is_late = True, threading.Event()
        self._lock = threading.Lock()
        answers, given = os.pipe()
        self._process = subprocess.Popen(
            [*_command(module), str(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(given,),
            start_new_session=True,
        )
        os.close(given)
        self._answers = os.fdopen(answers, "rb")
        self.pid = self._process.pid
        weakref.finalize(self, _end, self._process, self._answers)

    def ask(self, request: OpenRequest | Feed) -> list[Any]:
        """The results of a run, or none where a model is opened.

        Raises:
            ModelError, UsageError: what the process raised; or it ended, by itself or by the limit, and
                answers no longer.
        """
        with self._lock:
            phase, self._opens = "opened" if self._opens else "ran", False
            try:
                with self._limited():
                    answer = self._exchange(request)
            except Exception:  # the process has ended, or something else than an answer came
                raise ModelError(f"{self._ending(phase)}; {self._mend}") from None
            except BaseException:  # the answer to an interrupted run must not be that to the next
                _kill(self._process)
                self._answers.close()
                raise
        if isinstance(answer, QcError):
            raise answer
        return answer

    def _exchange(self, request: OpenRequest | Feed) -> list[Any] | QcError:
        assert self._process.stdin is not None
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        answer: list[Any] | QcError = pickle.load(self._answers)
        return answer

    def _ending(self, phase: str) -> str:
        """How the process ended, in words."""
        try:
            code = self._process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        _kill(self._process)
        if self._is_late.is_set():
            return f"{self._runtime} was ended, as it {phase} the model for longer than its size asks for"
        if code is None:
            return f"{self._runtime} gave no answer while it {phase} the model"
        ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"{self._runtime} ended its process with {ending} while it {phase} the model"

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Ends the process when its time is over."""
        if self._limit is None:
            yield
            return
        timer = threading.Timer(self._limit, self._end_late)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end_late(self) -> None:
        self._is_late.set()
        _kill(self._process)


def serve(module: str) -> None:
    """Answers requests until there are no more, in the process of its own.

    Answers are the results of a run, or what it raised: errors for users as they are, others as a ModelError.

    Args:
        module: see :class:`DeviceProcess`; imported once all that is written goes to the log.
    """
    threading.Thread(target=_end_with_caller, args=(os.getppid(),), daemon=True).start()
    with os.fdopen(int(sys.argv[-1]), "wb") as answers:
        request: OpenRequest = pickle.load(sys.stdin.buffer)
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(log, stream)
        run = _answer(answers, lambda: importlib.import_module(module).opened(request), opens=True)
        while True:
            try:
                feed = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            _answer(answers, lambda feed=feed: run(feed))  # type: ignore[misc]


def _answer(answers: IO[bytes], work: Callable[[], Any], *, opens: bool = False) -> Any:
    """Does some work, and answers with what it gives, or with nothing where it opens a model."""
    answer: Any
    try:
        made = work()
        answer = [] if opens else made
    except QcError as error:
        made, answer = None, error
    except (Exception, SystemExit) as error:
        made, answer = None, ModelError(f"{type(error).__name__}: {' '.join(str(error).split())}")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).fflush(None)
    pickle.dump(answer, answers)
    answers.flush()
    return made


def _command(module: str) -> list[str]:
    return [sys.executable, "-c", f"from {__name__} import serve; serve({module!r})"]


def _kill(process: subprocess.Popen) -> None:
    """Ends a process with those that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen, answers: IO[bytes]) -> None:
    if process.poll() is None:
        _kill(process)
        process.wait()
    for stream in (process.stdin, answers):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _end_with_caller(caller: int) -> None:
    """Ends this process once the one that asks is no more, also while native code computes for minutes."""
    while os.getppid() == caller:
        time.sleep(1)
    with suppress(ProcessLookupError):  # it may be no leader of a group
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
