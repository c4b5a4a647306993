"""Writing files so that a failure leaves nothing half-written."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..errors import UsageError, reason_of


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside ``path`` that takes its place when the block ends well.

    A symbolic link is followed; a file that is replaced passes on its permissions.

    Raises:
        UsageError: as for :func:`require_writable`, or the disk is full.
    """
    require_writable(Path(path))
    path = Path(path).resolve()
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask()
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {reason_of(error)}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, name):
            raise UsageError(f"cannot write '{path}': {reason_of(error)}") from error
        raise


def require_writable(path: Path) -> None:
    """Raises UsageError unless a file can be written: it is none yet or a regular one, in such a folder."""
    if path.is_dir():
        raise UsageError(f"cannot write '{path}': it is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot write '{path}': it is not a regular file")
    require_parent(path)
    folder = _parent(path)
    if not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write '{path}': the folder '{folder}' is not writable")


def require_parent(path: Path) -> None:
    """Raises UsageError unless there is the folder that a file or folder is to be written into."""
    folder = _parent(path)
    if not folder.is_dir():
        raise UsageError(f"cannot write '{path}': the folder '{folder}' does not exist")


def _parent(path: Path) -> Path:
    """The folder of a path, or of the file behind a link."""
    return path.resolve().parent if path.is_symlink() else path.parent


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A :func:`temporary_directory` that is cleaned up when the block ends.

    Raises:
        UsageError: it cannot be made, or there is no room left for what is written into it.
    """
    try:
        with temporary_directory() as folder:
            yield Path(folder)
    except OSError as error:
        if error.filename is None or Path(error.filename).is_relative_to(tempfile.gettempdir()):
            raise temporary_error(reason_of(error)) from error
        raise


def temporary_directory() -> tempfile.TemporaryDirectory[str]:
    """A new folder that is gone when it is cleaned up, or at the latest when Python ends.

    Where native code or a signal ends the process of a command, the one that is left removes it.
    """
    return tempfile.TemporaryDirectory(prefix=_prefix(_mark.text), ignore_cleanup_errors=True)


class _Mark:
    """What the names of the temporary folders of a command have in common, and no others have.

    The number of a process would not do: those of other containers and hosts, which may share the folder for
    temporary files, have the same ones.
    """

    def __init__(self) -> None:
        self.text = secrets.token_hex(8)


_mark = _Mark()


def folder_mark() -> str:
    """What marks the temporary folders of this process, and of those that it forks."""
    return _mark.text


def mark_folders(mark: str) -> None:
    """Makes temporary folders from now on with the mark of another process, which may remove them."""
    _mark.text = mark


def remove_temporary_folders(mark: str) -> None:
    """Removes all temporary folders with a mark, whose processes are to have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix(mark)}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _prefix(mark: str) -> str:
    return f"qc-{mark}-"


def temporary_error(reason: str = "the disk may be full") -> UsageError:
    """The error for a folder of temporary files that takes no more."""
    return UsageError(
        f"cannot write to '{tempfile.gettempdir()}': {reason}; make room there, or name another folder for "
        "temporary files by TMPDIR"
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
