"""Replaying a reproducer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from qc.compiler import Compilation
from qc.compiler.folder import current_versions, read_contents
from qc.passes import Progress

from .blame import find_failure
from .record import Record


@dataclass(frozen=True)
class Replay:
    """What came of a reproducer.

    Attributes:
        record: what the folder says.
        error: what the compilation raised now; None if nothing.
        same: whether this is the error that was recorded.
        other_versions: what is installed in another version now, by name: the recorded one and this one.
    """

    record: Record
    error: Exception | None
    same: bool
    other_versions: dict[str, tuple[str, str]]


def replay(folder: str | Path, progress: Progress | None = None) -> Replay:
    """Compiles what a reproducer holds. The folder may come from anywhere: nothing in it is trusted.

    Raises:
        UsageError: the folder is no reproducer, or needs a pass that is not installed.
        ModelError, DataError: its model or data cannot be read.
        QcError: the compilation goes wrong through what it was given, and did not when it was recorded.
    """
    record = read_contents(Path(folder), Record)
    failure = find_failure(replace(Compilation.load(folder), progress=progress))
    now = current_versions()
    others = {
        name: (then, now.get(name, "none")) for name, then in record.versions.items() if then != now.get(name)
    }
    if failure is None:
        return Replay(record, None, False, others)
    return Replay(record, failure.error, record.is_of(failure.error), others)
