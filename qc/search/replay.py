"""Replaying a reproducer. The folder may come from anywhere: nothing in it is trusted."""

from __future__ import annotations

import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Feed
from qc.passes import Progress, load_pipeline_file
from qc.passes.framework.target import Target

from .blame import find_failure
from .compilation import Compilation, sentence
from .pass_files import with_files
from .record import FEEDS, MODEL, PIPELINE, RECORD, Record, current_versions

_LONGEST_RECORD = 1 << 22
_MOST_FEED_BYTES = 1 << 28
_ADDRESS = re.compile(r"0x[0-9a-f]+")


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
    """Compiles what a reproducer holds.

    Raises:
        UsageError: the folder is no reproducer, or needs a pass that is not installed.
        ModelError, DataError: its model or data cannot be read.
        QcError: the compilation goes wrong through what it was given, and did not when it was recorded.
    """
    compilation, record = load_reproducer(folder)
    failure = find_failure(compilation, progress)
    now = current_versions()
    others = {
        name: (then, now.get(name, "none")) for name, then in record.versions.items() if then != now.get(name)
    }
    if failure is None:
        return Replay(record, None, False, others)
    return Replay(record, failure.error, same_error(record, failure.error), others)


def same_error(record: Record, error: Exception) -> bool:
    """Whether an error is the one that was recorded, but for addresses in memory."""
    then, now = (_ADDRESS.sub("0x", text) for text in (record.error, sentence(error)))
    return (record.error_type, then) == (type(error).__name__, now)


def load_reproducer(folder: str | Path) -> tuple[Compilation, Record]:
    """Reads what a reproducer holds.

    Raises:
        UsageError: the folder is no reproducer, or needs a pass that is not installed.
        DataError: its data cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is no folder with a reproducer")
    path = _file(folder, RECORD)
    if path.stat().st_size > _LONGEST_RECORD:
        raise UsageError(f"'{path}' does not describe a reproducer: it is too long")
    record = Record.parse(path.read_text(encoding="utf-8", errors="replace"), str(path))
    pipeline = load_pipeline_file(_file(folder, PIPELINE))
    compilation = Compilation(
        _file(folder, MODEL),
        with_files(pipeline, lambda name: str(_file(folder, name))),
        data=_feeds(folder, record),
        target=_target(record, path),
        allow_unquantized=record.allow_unquantized,
        fail_if_unquantized=record.fail_if_unquantized,
        verify_each=record.verify_each,
        check_analyses=record.check_analyses,
        threads=record.threads,
        device=record.device,
        action_limit=record.action_limit,
        seed=record.seed,
    )
    return compilation, record


def _file(folder: Path, name: str) -> Path:
    """A file of the folder; raises UsageError if it is missing, or a link that leads out of the folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"'{path}' leads out of the folder of the reproducer")
    if not path.is_file():
        raise UsageError(f"'{folder}' is no reproducer: it has no file '{name}'")
    return path


def _target(record: Record, path: Path) -> Target:
    try:
        return Target.model_validate(record.target)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in ("target", *first["loc"]))
        raise UsageError(f"'{path}' does not describe a reproducer at '{place}': {first['msg']}") from error


def _feeds(folder: Path, record: Record) -> list[Feed] | None:
    """The feeds, in order; None if there was no data."""
    if record.feeds is None:
        return None
    if not record.feeds:
        raise DataError(f"'{folder}' holds no data: the feeds were too large, or could not be read again")
    return [_arrays(_file(folder, f"{FEEDS}/{index}.npz")) for index in range(record.feeds)]


def _arrays(path: Path) -> Feed:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_FEED_BYTES:
                raise DataError(f"'{path}' is larger than any feed of a reproducer")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, KeyError) as error:
        raise DataError(f"'{path}' cannot be read: {' '.join(str(error).split())}") from error
