"""What the command line keeps of a compilation that ends in a defect."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from qc.compiler import Compilation
from qc.ir.base.files import require_parent
from qc.ir.errors import UsageError
from qc.progress import RichProgress
from qc.rendering.words import count
from qc.search import Reproducer, write_reproducer
from qc.search.watch import is_defect

from .options import Keeping
from .output import standard_error


def reproducer_folder(model: str, keeping: Keeping) -> Path | None:
    """Where a reproducer is to be written; None for nowhere.

    Raises:
        UsageError: the options contradict each other, or there is no folder for it.
    """
    chosen = keeping.reproducer
    if chosen is not None and keeping.no_reproducer:
        raise UsageError("give --reproducer or --no-reproducer, not both")
    if chosen is not None:
        require_parent(chosen)
    return None if keeping.no_reproducer else chosen or Path(f"{Path(model).stem}.reproducer")


@contextmanager
def reproducing(compilation: Compilation, folder: Path | None) -> Iterator[None]:
    """A block that does a compilation; if that ends in a defect, a reproducer is written.

    The error gets a note that says where it is, or why there is none.
    """
    try:
        yield
    except Exception as error:
        if folder is not None and is_defect(error):
            error.add_note(_written(compilation, folder, error))
        raise


def _written(compilation: Compilation, folder: Path, error: Exception) -> str:
    """Writes a reproducer; a sentence about it."""
    command = click.get_current_context().obj or ()
    try:
        with RichProgress(standard_error()) as progress:
            watched = replace(compilation, progress=progress)
            made = write_reproducer(folder, watched, error, command=["qc", *command])
    except KeyboardInterrupt:
        return "the writing of a reproducer was interrupted"
    except Exception as problem:  # the error itself matters more than that it cannot be kept
        return f"no reproducer could be written: {problem}"
    return _sentence(made)


def _sentence(made: Reproducer) -> str:
    record = made.record
    where = f"'{made.folder}'"
    if not record.reproduces:
        lacks = []
        if record.zero_weights:
            lacks.append(f"{count(len(record.zero_weights), 'large weight')} left out")
        if record.feeds is not None:
            lacks.append(f"{count(record.feeds, 'feed')} of the data")
        detail = f" with {' and '.join(lacks)}" if lacks else ""
        return f"{where} holds the model and the pipeline, but compiling it{detail} does not fail like this"
    action = f"{record.action.title} is the first to do this; " if record.action is not None else ""
    plugins = [word for name in record.plugins for word in ("--plugin", name)]
    command = shlex.join(["qc", "repro", *plugins, str(made.folder)])
    return f"{action}{where} has all it takes to see it again: {command}"
