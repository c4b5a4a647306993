"""Writing a reproducer: a folder with all that is needed to see a defect again."""

from __future__ import annotations

import filecmp
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qc.compiler import Compilation
from qc.compiler.folder import Contents, read_contents
from qc.ir.base.files import require_parent
from qc.ir.errors import QcError, UsageError, reason_of

from .blame import Failure, blame_action, find_failure, model_before
from .record import BEFORE, ActionRecord, Record
from .watch import sentence


@dataclass(frozen=True)
class Reproducer:
    """A folder that was written, and what its record says."""

    folder: Path
    record: Record


def write_reproducer(
    folder: str | Path, compilation: Compilation, error: Exception, *, command: Sequence[str] = ()
) -> Reproducer:
    """Writes a reproducer of a compilation that ended in a defect, and tries whether it fails again.

    The folder appears when it is complete. If another is there already, a number is appended to its name;
    one that holds the same is kept in its place. It holds what :meth:`qc.Compilation.dump` writes, the text
    of the model just before the failing pass, and what failed in ``reproducer.json``.

    Args:
        folder: where to write.
        compilation: what was compiled.
        error: what it raised.
        command: the command line, if it was one.

    Raises:
        UsageError: the folder cannot be written.
        ModelError: the model cannot be read.
    """
    folder = Path(folder)
    require_parent(folder)
    try:
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as problem:
        raise UsageError(f"cannot write '{folder}': {reason_of(problem)}") from problem
    try:
        compilation.dump(scratch)
        contents = read_contents(scratch, Contents).model_dump()
        kind = type(error).__name__
        record = Record(**contents, error=sentence(error), error_type=kind, command=tuple(command))
        record = _try_out(replace(Compilation.load(scratch), progress=compilation.progress), record, scratch)
        record.write(scratch)
        scratch.chmod(0o755)
        return Reproducer(_move(scratch, folder), record)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _try_out(compilation: Compilation, record: Record, folder: Path) -> Record:
    """Compiles what was written; writes the text of the model and completes the record."""
    try:
        failure = find_failure(compilation)
    except QcError:
        return record
    if failure is None:
        return record
    if failure.step is not None:
        (folder / BEFORE).write_text(model_before(compilation, failure), encoding="utf-8")
    return record.model_copy(update=_seen(compilation, failure, record))


def _seen(compilation: Compilation, failure: Failure, record: Record) -> dict[str, object]:
    action = blame_action(compilation, failure)
    return {
        "failing_pass": str(failure.step) if failure.step is not None else None,
        "action": ActionRecord(number=action.number, title=action.title) if action is not None else None,
        "reproduces": record.is_of(failure.error),
    }


def _move(scratch: Path, folder: Path) -> Path:
    """Moves the complete folder to its place, or to the first with a number that is free or has the same."""
    place, number = folder, 1
    while not _same(scratch, place):
        if not os.path.lexists(place):
            try:
                return scratch.rename(place)
            except OSError as error:
                if not os.path.lexists(place):
                    raise UsageError(f"cannot write '{place}': {reason_of(error)}") from error
        number += 1
        place = folder.with_name(f"{folder.name}-{number}")
    return place


def _same(folder: Path, other: Path) -> bool:
    """Whether two folders hold files of the same names with the same bytes."""
    names = [
        sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
        for one in (folder, other)
    ]
    return names[0] == names[1] and not any(filecmp.cmpfiles(folder, other, names[0], shallow=False)[1:])
