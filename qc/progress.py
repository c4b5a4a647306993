"""Progress of long work: a bar with counts and an estimate of the time that is left."""

from __future__ import annotations

import html
import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from qc.passes import NullProgress, Task
from qc.passes import Progress as AnyProgress

_SECONDS_BETWEEN = 0.2  # two updates of a notebook


def progress_here() -> AnyProgress:
    """What shows progress if nobody says otherwise: a line in a notebook, nothing elsewhere."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return NotebookProgress() if hasattr(shell, "kernel") else NullProgress()


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


class NotebookProgress:
    """Implements :class:`qc.passes.Progress` with a line for each task below the cell, until it is done."""

    def start(self, description: str, total: int | None) -> Task:
        """Shows a line for a task of ``total`` steps; one that only counts if the number is not known."""
        return _Line(description, total)


class _Line:
    """One task in a notebook."""

    def __init__(self, description: str, total: int | None) -> None:
        from IPython.display import display

        self._description, self._total, self._done = description, total, 0
        self._begin = self._shown = time.monotonic()
        self._handle: Any = display(self._html(), display_id=True)

    def advance(self, steps: int = 1) -> None:
        """Moves the bar, at most five times in a second."""
        self._done += steps
        now = time.monotonic()
        if now - self._shown >= _SECONDS_BETWEEN:
            self._shown = now
            self._handle.update(self._html())

    def finish(self) -> None:
        """Takes the line away."""
        from IPython.display import HTML

        self._handle.update(HTML(""))

    def _html(self) -> Any:
        from IPython.display import HTML

        bar, left = "", ""
        if self._total:
            bar = f'<progress value="{self._done}" max="{self._total}"></progress> '
        if self._total and self._done:
            spent = time.monotonic() - self._begin
            left = f", {spent * (self._total - self._done) / self._done:.0f} s left"
        counted = f"{self._done} of {self._total}" if self._total else f"{self._done}"
        return HTML(f"<code>{html.escape(self._description)}</code> {bar}<code>{counted}{left}</code>")
