"""Progress of long work on a terminal: a bar with counts and an estimate of the time that is left."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from qc.passes import NullProgress, Task


class RichProgress:
    """Implements :class:`qc.passes.Progress` with bars that vanish when their work is done.

    A context manager: leaving it takes down whatever bar is still shown, so that an error is printed on a
    clean line. Nothing is shown if the console is not a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Progress | None = None

    def __enter__(self) -> RichProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, description: str, total: int | None) -> Task:
        """Shows a bar for a task of ``total`` steps; one that only counts if the number is not known."""
        if not self._console.is_terminal:
            return NullProgress().start(description, total)
        if self._bars is None:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(compact=True),
                console=self._console,
                transient=True,
            )
            self._bars.start()
        return _Bar(self, self._bars, self._bars.add_task(description, total=total))

    def stop(self) -> None:
        """Takes down the bars."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


class _Bar:
    """One task on the terminal."""

    def __init__(self, owner: RichProgress, bars: Progress, task: TaskID) -> None:
        self._owner, self._bars, self._task = owner, bars, task

    def advance(self, steps: int = 1) -> None:
        """Moves the bar."""
        self._bars.advance(self._task, steps)

    def finish(self) -> None:
        """Takes the bar away, and the display with it if it was the last one."""
        if self._task in self._bars.task_ids:
            self._bars.remove_task(self._task)
        if not self._bars.task_ids:
            self._owner.stop()
