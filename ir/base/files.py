"""Writing files so that a failure leaves nothing half-written."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..errors import UsageError


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside ``path`` that takes its place when the block ends well.

    A symbolic link is followed; a file that is replaced passes on its permissions.

    Raises:
        UsageError: the folder does not exist or cannot be written to, or ``path`` is no regular file.
    """
    path = Path(path).resolve()
    mode = 0o666 & ~_umask()
    if path.exists():
        if not path.is_file():
            raise UsageError(f"cannot write '{path}': it is not a regular file")
        mode = stat.S_IMODE(path.stat().st_mode)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror or error}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.chmod(mode)
        try:
            temporary.replace(path)
        except OSError as error:
            raise UsageError(f"cannot write '{path}': {error.strerror or error}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
