"""Tries many hostile models in a worker process that may die, and collects what must not happen."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.folders import TESTS

from .worker import Yard

_START = 120.0  # seconds for imports
_QUOTED = 4000  # characters of standard error in a failure


@dataclass(frozen=True)
class Limits:
    """What a mutant may take: seconds of wall time, megabytes of address space of the whole process."""

    seconds: float = 30.0
    megabytes: int = 6000


@dataclass
class Outcome:
    """What a campaign found.

    Attributes:
        tried: number of mutants.
        accepted: how many of them each deed accepted.
        failures: what must not happen, by seed.
    """

    tried: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        shares = ", ".join(f"{name} accepted {count}" for name, count in self.accepted.items())
        return f"{self.tried} models, {len(self.failures)} failures; {shares}"


class Campaign:
    """Runs seeds through workers, one at a time.

    Args:
        folder: where the workers work, and where failures are kept: ``failures/SEED/`` holds the model and
            everything beside it, with ``failure.txt``.
        deeds: names of what is done with every mutant; see :data:`fuzz.subject.DEEDS`.
        limits: what a mutant may take.
        models: how they are made; a name of :data:`fuzz.mutant.MODELS`.
    """

    def __init__(
        self, folder: Path, deeds: Iterable[str], limits: Limits | None = None, models: str = "hostile"
    ) -> None:
        self._folder = folder.resolve()
        self._deeds = tuple(deeds)
        self._limits = limits or Limits()
        self._models = models
        self._worker: subprocess.Popen[bytes] | None = None
        self._pending = b""

    def run(self, seeds: Iterable[int], tell: Callable[[str], object] = lambda words: None) -> Outcome:
        """Tries the mutants of ``seeds``; ``tell`` hears of every failure at once."""
        outcome = Outcome()
        try:
            for seed in seeds:
                answer = self._try(seed)
                outcome.tried += 1
                outcome.accepted.update(answer["accepted"])
                if answer["failures"]:
                    outcome.failures[seed] = self._keep(seed, answer)
                    tell(outcome.failures[seed])
        finally:
            self._stop()
        return outcome

    def _try(self, seed: int) -> dict[str, Any]:
        """The worker's answer, or one that says how the worker ended."""
        worker = self._worker or self._start()
        assert worker.stdin is not None
        worker.stdin.write(f"{seed}\n".encode())
        worker.stdin.flush()
        line = self._line(self._limits.seconds)
        if line:
            return dict(json.loads(line))
        code = worker.poll()
        self._stop()
        words = f"took more than {self._limits.seconds:g} s"
        if code is not None or worker.returncode != -signal.SIGKILL:
            words = f"died: {_ending(worker.returncode)}"
        errors = (self._folder / "stderr.txt").read_text(errors="replace")[-_QUOTED:]
        return {"story": "the worker", "accepted": [], "failures": [f"the process {words}\n{errors}"]}

    def _line(self, seconds: float) -> bytes:
        """The next line of the worker; empty if it ended, or if ``seconds`` passed."""
        assert self._worker is not None and self._worker.stdout is not None
        handle = self._worker.stdout.fileno()
        while b"\n" not in self._pending:
            if not select.select([handle], [], [], seconds)[0]:
                return b""
            piece = os.read(handle, 1 << 16)
            if not piece:
                self._worker.wait()
                return b""
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _start(self) -> subprocess.Popen[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "fuzz.worker", str(self._folder / "yard")]
        command += [
            str(self._limits.seconds),
            str(self._limits.megabytes),
            ",".join(self._deeds),
            self._models,
        ]
        with (self._folder / "stderr.txt").open("wb") as errors:
            self._worker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        self._line(_START)  # ready
        return self._worker

    def _stop(self) -> None:
        """Ends the worker, by force if it does not answer."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait()
            for pipe in (self._worker.stdin, self._worker.stdout):
                assert pipe is not None
                pipe.close()
        self._worker, self._pending = None, b""

    def _keep(self, seed: int, answer: dict[str, Any]) -> str:
        """Keeps the mutant; what happened, and how to see it again."""
        place = self._folder / "failures" / str(seed)
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(Yard(self._folder / "yard").model, place, symlinks=True, ignore=_pipes)
        command = f"PYTHONPATH=tests {sys.executable} -m fuzz --count 1 --seed {seed} --models {self._models}"
        again = f"again: {command}"
        words = "\n".join([f"seed {seed}: {answer['story']}", *answer["failures"], again, ""])
        (place / "failure.txt").write_text(words)
        return words


def _pipes(folder: str, names: list[str]) -> list[str]:
    """What cannot be copied: named pipes."""
    return [name for name in names if (Path(folder) / name).is_fifo()]


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
