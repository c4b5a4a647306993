"""What the command line keeps of a compilation that ends in a defect, and ``qc repro``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from qc.compilation import Compilation
from qc.ir.errors import UsageError
from qc.progress import RichProgress
from qc.report.words import count
from qc.search import Replay, Reproducer, replay, write_reproducer
from qc.search.watch import is_defect

from .files import FileType
from .output import print_note, standard_error, standard_output

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--reproducer",
        metavar="DIR",
        type=FileType(),
        help="Where to keep what shows a defect of qc again.  [default: MODEL.reproducer]",
    ),
    click.option("--no-reproducer", is_flag=True, help="Keep nothing of a defect of qc."),
)


def reproducer_options(command: F) -> F:
    """Gives a command the options that say where a reproducer goes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def reproducer_folder(model: str, chosen: Path | None, none: bool) -> Path | None:
    """Where a reproducer is to be written; None for nowhere.

    Raises:
        UsageError: the options contradict each other, or there is no folder for it.
    """
    if chosen is not None and none:
        raise UsageError("give --reproducer or --no-reproducer, not both")
    if chosen is not None and not chosen.parent.is_dir():
        raise UsageError(f"cannot write '{chosen}': the folder '{chosen.parent}' does not exist")
    return None if none else chosen or Path(f"{Path(model).stem}.reproducer")


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
    return f"{action}{where} has all it takes to see it again: qc repro {shlex.quote(str(made.folder))}"


@click.command("repro", short_help="Compile what a reproducer holds, to see whether it fails again.")
@click.argument("folder", metavar="DIR", type=FileType())
def repro_command(folder: Path) -> None:
    """Compiles what the reproducer DIR holds.

    The same error ends with exit code 6, as it did when it was recorded; success with 0.
    """
    with RichProgress(standard_error()) as progress:
        result = replay(folder, progress)
    record = result.record
    if result.error is None:
        standard_output().show(f"it does not fail any more; it was: {record.error}", wrap=False)
    elif result.same:
        if record.failing_pass is not None:
            standard_output().show(f"pass     {record.failing_pass}", wrap=False)
        if record.action is not None:
            standard_output().show(f"action   {record.action.title}", wrap=False)
    else:
        standard_output().show(f"it fails in another way; it was: {record.error}", wrap=False)
    _tell_versions(result)
    if result.error is not None:
        raise result.error


def _tell_versions(result: Replay) -> None:
    for name, (then, now) in result.other_versions.items():
        print_note(f"recorded with {name} {then}, this is {now}")
