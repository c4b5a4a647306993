"""A command in a process of its own: when native code ends it, the one that is left says so in a sentence."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from qc.ir.base import underway
from qc.ir.base.files import mark_folders, remove_temporary_folders

_CRASHES = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP")
_FORWARDED = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name))
_ENDING = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGTERM") if hasattr(signal, name))
_BY_SIGNAL = 128  # what shells add to the number of a signal for an exit code
_SAME_SIGNAL = 2.0  # seconds; a terminal interrupts both processes, and the first one forwards it


def supervised(run: Callable[[], int]) -> int:
    """Runs a command in a fork of this process, which has imported and opened nothing yet.

    Forking takes a thousandth of a second, and no model is opened twice. Signals are passed on; at SIGTERM
    and SIGHUP the fork ends as by an exception, so that it leaves no files behind, and at another one, later,
    at once. Temporary folders that it and its workers then leave are removed here, as after a crash. It ends
    with this process, however that ends. Where processes cannot fork, or this one has other threads, the
    command runs in this process.

    Returns:
        The exit code of ``run``, or that of the error if it was ended by native code.
    """
    if not hasattr(os, "fork") or threading.active_count() > 1:
        return run()
    underway.share()
    mark = secrets.token_hex(8)
    mark_folders(mark)
    watched, kept_open = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # until both processes can handle them
    child = os.fork()
    if not child:
        os.close(kept_open)
        signal.signal(signal.SIGINT, _Interrupt())
        end = _End()
        for number in _ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:  # as it is under nohup
                signal.signal(number, end)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        threading.Thread(target=_end_with_parent, args=[watched], daemon=True).start()
        return run()
    os.close(watched)
    asked: list[int] = []
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: _forward(child, number, asked))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if not 0 <= code <= _BY_SIGNAL:  # else Python ended it, and has removed them
        remove_temporary_folders(mark)
    return _exit_code(code, asked)


class EndedBySignal(SystemExit):
    """The process was asked to end by a signal."""


class _Handler(ABC):
    """Handles signals that come together once."""

    def __init__(self) -> None:
        self._last = -_SAME_SIGNAL

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last > _SAME_SIGNAL:
            self._last = now
            self.handle(number)

    @abstractmethod
    def handle(self, number: int) -> None:
        """Handles a signal."""


class _Interrupt(_Handler):
    """Raises KeyboardInterrupt."""

    def handle(self, number: int) -> None:
        raise KeyboardInterrupt


class _End(_Handler):
    """Raises EndedBySignal, and ends the process if that takes too long for whoever asks."""

    _is_ending = False

    def handle(self, number: int) -> None:
        if self._is_ending:
            os._exit(_BY_SIGNAL + number)
        self._is_ending = True
        raise EndedBySignal(_BY_SIGNAL + number)


def _end_with_parent(watched: int) -> None:
    """Waits for the end of the parent, who alone holds the other end of the pipe, and ends this process."""
    os.read(watched, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _forward(child: int, number: int, asked: list[int]) -> None:
    asked.append(number)
    with suppress(ProcessLookupError):
        os.kill(child, number)


def _exit_code(code: int, asked: list[int]) -> int:
    """The exit code for that of the fork; ends this process as the fork ended if it was no crash.

    Args:
        asked: the signals that were passed on; what crashes behind one was ended by it.
    """
    if code >= 0 and code - _BY_SIGNAL not in set(asked).intersection(_ENDING):
        return code
    ended = signal.Signals(code - _BY_SIGNAL if code >= 0 else -code)
    if ended.name in _CRASHES and asked:
        ended = signal.Signals(asked[-1])
    if ended == signal.SIGINT:
        raise KeyboardInterrupt
    if ended.name not in _CRASHES:
        with suppress(OSError):  # SIGKILL cannot be handled, and needs no reset
            signal.signal(ended, signal.SIG_DFL)
        os.kill(os.getpid(), ended)
    from qc.ir.errors import ModelError, VerificationError

    from .output import print_error

    sys.stderr.flush()
    runtime, words = underway.told()
    if not words:
        print_error(f"qc ended with {ended.name}; this is a defect of qc, please report it with the command")
        return VerificationError.exit_code
    print_error(
        f"{runtime} ended with {ended.name} while it {words}: compile the float model anew with this qc and "
        "the target of that runtime, for which it writes no form that is known to do that, or open the model "
        "without optimizations"
    )
    return ModelError.exit_code
