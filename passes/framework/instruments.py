"""Instruments: watch the passes of a pipeline from outside, without changing anything."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from qc.ir.base.files import atomic_write
from qc.ir.text import print_model

if TYPE_CHECKING:
    from qc.ir.model import Model

    from .base import Pass

ALL = "all"
CHANGED = "changed"


class Instrument:
    """Hooks around every pass; a subclass overrides those it needs."""

    def before_pass(self, step: Pass, model: Model) -> None:
        """Called before a pass runs."""

    def after_pass(self, step: Pass, model: Model) -> None:
        """Called after a pass ran and the model was verified."""

    def failed(self, step: Pass, model: Model, error: Exception) -> None:
        """Called instead of :meth:`after_pass` when a pass raised, or left a broken model."""


class PrintModel(Instrument):
    """Prints the IR before or after passes, or what they changed in it.

    Args:
        write: takes the text.
        before: names of the passes to print before, or ``all``.
        after: names of the passes to print after, ``all``, or ``changed`` for those that changed the text.
        diff: print, for every pass that changed the text, which lines are new and which are gone.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        before: frozenset[str] = frozenset(),
        after: frozenset[str] = frozenset(),
        diff: bool = False,
    ) -> None:
        self._write = write
        self._before, self._after, self._diff = before, after, diff
        self._compares = diff or CHANGED in after
        self._text = ""

    def before_pass(self, step: Pass, model: Model) -> None:
        """Prints the model if it is wanted before this pass."""
        wanted = not self._before.isdisjoint({step.name, ALL})
        if wanted or self._compares:
            self._text = print_model(model)
        if wanted:
            self._write(f"// before {step}\n{self._text}")

    def after_pass(self, step: Pass, model: Model) -> None:
        """Prints the model, or the difference, if it is wanted after this pass."""
        wanted = not self._after.isdisjoint({step.name, ALL})
        if not (wanted or self._compares):
            return
        text = print_model(model)
        if wanted or (CHANGED in self._after and text != self._text):
            self._write(f"// after {step}\n{text}")
        if self._diff and text != self._text:
            lines = difflib.unified_diff(
                self._text.splitlines(),
                text.splitlines(),
                f"before {step}",
                f"after {step}",
                lineterm="",
                n=1,
            )
            self._write("\n".join(lines) + "\n")

    def failed(self, step: Pass, model: Model, error: Exception) -> None:
        """Prints what the pass left behind, as far as it was to be printed after it."""
        if not self._after.isdisjoint({step.name, ALL, CHANGED}):
            self._write(f"// after {step}, which failed\n{print_model(model)}")


class DumpModel(Instrument):
    """Writes the IR as text into a folder: as it was at first, and after every pass.

    Args:
        folder: where to write ``000-input.qcir``, ``001-fold-constants.qcir`` and so on; made if missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def before_pass(self, step: Pass, model: Model) -> None:
        """Writes the input before the first pass."""
        if not self._count:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._dump("input", model)

    def after_pass(self, step: Pass, model: Model) -> None:
        """Writes the model."""
        self._dump(step.name, model)

    def failed(self, step: Pass, model: Model, error: Exception) -> None:
        """Writes what the pass left behind."""
        self._dump(f"{step.name}-failed", model)

    def _dump(self, name: str, model: Model) -> None:
        with atomic_write(self._folder / f"{self._count:03}-{name}.qcir") as file:
            file.write(print_model(model).encode("utf-8"))
        self._count += 1
