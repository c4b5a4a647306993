"""The clock of a search: ends what is being tried when the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from qc.ir.errors import QcError
from qc.passes import Instrument, NullProgress, Progress, Task

if TYPE_CHECKING:
    from qc.ir.model import Model
    from qc.passes import Pass


class OutOfTime(QcError):
    """What was tried was ended, as the time was over or nobody waits for it any more."""


@dataclass
class Deadline(Instrument):
    """Progress, and an instrument, that end the work when it is late.

    Attributes:
        deadline: the time, as of :func:`time.time`, after which nothing goes on; None if there is none.
        stop: a file that, once it is there, says that nobody waits for the result.
        progress: where the work shows how far it is.
    """

    deadline: float | None = None
    stop: Path | None = None
    progress: Progress = field(default_factory=NullProgress)

    def check(self) -> None:
        """Raises OutOfTime if it is late."""
        if self.deadline is not None and time.time() > self.deadline:
            raise OutOfTime("the time is over")
        if self.stop is not None and self.stop.exists():
            raise OutOfTime("nobody waits for this")

    def start(self, description: str, total: int | None) -> Task:
        """Begins a task that checks the time at every step."""
        self.check()
        return _WatchedTask(self.progress.start(description, total), self.check)

    def before_pass(self, step: Pass, model: Model) -> None:
        """Checks the time."""
        self.check()


@dataclass
class _WatchedTask:
    task: Task
    check: Callable[[], None]

    def advance(self, steps: int = 1) -> None:
        self.task.advance(steps)
        self.check()

    def finish(self) -> None:
        self.task.finish()
