"""Misdeeds, to see that a campaign notices them."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from .external import SECRET
from .subject import Deed


def crash(path: Path, output: Path) -> None:
    """Dies of a signal."""
    os.abort()


def hang(path: Path, output: Path) -> None:
    """Never ends."""
    while True:
        time.sleep(1)


def stumble(path: Path, output: Path) -> None:
    """Fails with an exception that no user should see."""
    raise KeyError(path.name)


def peep(path: Path, output: Path) -> None:
    """Reads a file outside the model's folder, which is the working folder."""
    Path(SECRET).read_bytes()


def peep_natively(path: Path, output: Path) -> None:
    """Opens that file past Python."""
    library = ctypes.CDLL(None)
    library.close(library.open(SECRET.encode(), os.O_RDONLY))


def scribble(path: Path, output: Path) -> None:
    """Writes beside the model."""
    path.with_name("surplus").write_bytes(b"")


def follow(path: Path, output: Path) -> None:
    """Reads a file outside the model's folder through a link in it."""
    link = path.with_name("link")
    if not link.exists():
        link.symlink_to(Path(SECRET).resolve())
    link.read_bytes()


PLANTED: dict[str, Deed] = {
    deed.__name__: deed for deed in (crash, hang, stumble, peep, peep_natively, scribble, follow)
}
