"""A process of its own for the native code of a vendor, which may end the one that it runs in.

Requests and answers are pickled. The first request opens a model; each further one is a feed. What native
code writes goes to the log that the first request names.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from qc.ir.errors import ModelError, QcError
from qc.ir.executor import Feed

Run = Callable[[Feed], list[Any]]


class OpenRequest(Protocol):
    """What to open; ``log`` is the file for what is said meanwhile."""

    @property
    def log(self) -> Path: ...


class DeviceProcess:
    """The process that holds a model, which ends when nobody holds this any longer.

    Attributes:
        pid: its number.

    Args:
        module: a module whose function ``opened`` opens a model, as :func:`serve` wants it.
        runtime: what messages call the native code.
        mend: what a user can do where it ended, as a sentence goes on.
        limit: the seconds after which it is ended while it opens a model or runs it; None for no limit.
    """

    def __init__(self, module: str, runtime: str, mend: str, limit: float | None = None) -> None:
        self._runtime, self._mend, self._limit = runtime, mend, limit
        self._opens = True
        self._process = subprocess.Popen(_command(module), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self._process.pid
        weakref.finalize(self, _end, self._process)

    def ask(self, request: OpenRequest | Feed) -> list[Any]:
        """The results of a run, or none where a model is opened.

        Raises:
            ModelError, UsageError: what the process raised, or the process ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        deed, self._opens = "opened" if self._opens else "ran", False
        try:
            with self._limited() as is_late:
                pickle.dump(request, self._process.stdin)
                self._process.stdin.flush()
                answer: list[Any] | QcError = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            code = self._process.wait()
            ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            what = f"{self._runtime} ended its process with {ending} while it {deed} the model"
            if is_late.is_set():
                what = (
                    f"{self._runtime} was ended, as it {deed} the model for more than {self._limit:g} seconds"
                )
            raise ModelError(f"{what}; {self._mend}") from None
        if isinstance(answer, QcError):
            raise answer
        return answer

    @contextmanager
    def _limited(self) -> Iterator[threading.Event]:
        """Ends the process when its time is over, which the event tells."""
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            self._process.kill()

        timer = threading.Timer(self._limit, end) if self._limit is not None else None
        if timer is not None:
            timer.start()
        try:
            yield is_late
        finally:
            if timer is not None:
                timer.cancel()


def serve(opened: Callable[[Any], Run]) -> None:
    """Answers requests until there are no more, in the process of its own.

    Args:
        opened: what opens a model and gives what runs it. What either raises for users is an answer.
    """
    threading.Thread(target=_end_with_caller, args=(os.getppid(),), daemon=True).start()
    with os.fdopen(os.dup(1), "wb") as answers:
        request: OpenRequest = pickle.load(sys.stdin.buffer)
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(log, stream)
        answer: list[Any] | QcError = []
        try:
            run = opened(request)
        except QcError as error:
            answer = error
        while True:
            pickle.dump(answer, answers)
            answers.flush()
            try:
                answer = run(pickle.load(sys.stdin.buffer))
            except QcError as error:
                answer = error
            except EOFError:
                return


def _command(module: str) -> list[str]:
    code = f"from {__name__} import serve; from {module} import opened; serve(opened)"
    return [sys.executable, "-c", code]


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _end_with_caller(caller: int) -> None:
    """Ends this process once the one that asks is no more, also while native code computes for minutes."""
    while os.getppid() == caller:
        time.sleep(1)
    os._exit(1)
