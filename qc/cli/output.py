"""The two streams of the command line, and the one form of its errors, warnings and notes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import NoReturn

from onnx import ModelProto
from rich.console import Console, RenderableType
from rich.text import Text

from qc.ir.onnx.load import model_folder
from qc.ir.onnx.save import external_files
from qc.rendering.table import Table
from qc.rendering.terminal import rendered
from qc.rendering.words import file_size, printable

# In columns: enough for any row. COLUMNS in the environment is obeyed all the same.
_UNWRAPPED = 10_000


class ReportConsole(Console):
    """A console that shows text as it is, without blanks at line ends, and reports a closed pipe."""

    def __init__(self, stderr: bool, wraps: bool = True) -> None:
        """``wraps`` tells whether lines are wrapped where there is no terminal, too."""
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False)
        if not (wraps or self.is_terminal or os.environ.get("COLUMNS", "").isdecimal()):
            self.width = _UNWRAPPED

    def show(self, *items: RenderableType | Table, wrap: bool = True) -> None:
        """Prints one item below the other."""
        with self.capture() as capture:
            for item in items:
                self.print(rendered(item) if isinstance(item, Table) else item, soft_wrap=not wrap)
        text = capture.get()
        if not self.is_terminal:
            text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
        self.file.write(text)
        self.file.flush()

    def on_broken_pipe(self) -> NoReturn:
        """Rich would end the process; ``main`` does that with the proper exit code."""
        raise BrokenPipeError


def standard_output(prose: bool = False) -> ReportConsole:
    """For what was asked for: listings, tables, the text of a model.

    In a pipe or a file every row has a line, so that grep finds it whole; only ``prose`` is wrapped.
    """
    return ReportConsole(stderr=False, wraps=prose)


def standard_error() -> ReportConsole:
    """For what is told about the work: progress, reports, warnings, errors."""
    return ReportConsole(stderr=True)


def print_error(sentence: str) -> None:
    """Ends the story: ``qc: error: ...``."""
    _print_labelled("error", "bold red", sentence)


def print_warning(sentence: str) -> None:
    """``qc: warning: ...``."""
    _print_labelled("warning", "bold yellow", sentence)


def print_note(sentence: str) -> None:
    """``qc: note: ...``."""
    _print_labelled("note", "bold", sentence)


def print_traceback() -> None:
    """The traceback of the exception being handled, for who looks for a defect of qc."""
    sys.stderr.write(traceback.format_exc())


def model_bytes(path: Path, proto: ModelProto) -> int:
    """The size of a model file together with the files of its external data."""
    files = [path, *external_files(proto, model_folder(path))]
    return sum(file.stat().st_size for file in files if file.is_file())


def print_written(paths: Iterable[Path | None]) -> None:
    """``wrote FILE, SIZE`` for each file that came out; None for one that nobody asked for."""
    for path in filter(None, paths):
        size = file_size(path.stat().st_size)
        standard_error().show(Text(f"wrote {printable(str(path))}, {size}"), wrap=False)


def _print_labelled(label: str, style: str, sentence: str) -> None:
    console, line = standard_error(), f"qc: {label}: {printable(sentence)}"
    if console.is_terminal:  # which would break lines within words; what has no room in one stays whole
        line = fill(line, console.width, break_long_words=False, break_on_hyphens=False)
    text = Text(line)
    text.stylize(style, len("qc: "), len(f"qc: {label}:"))
    console.print(text, soft_wrap=True)
