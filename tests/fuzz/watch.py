"""Sees which files are opened or changed, by Python and by native code, and where."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path

_READS = ("os.listdir", "os.scandir")
# Where the arguments of an event name a path, and where the folder that it is relative to.
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
}
_FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "socket.connect", "socket.bind")
_SYSTEM = ("/proc", "/sys", "/usr/share/zoneinfo", "/etc/localtime", "/dev/null", "/dev/urandom")
_OPENED, _MODIFIED, _CREATED, _DELETED, _MOVED = 0x20, 0x2, 0x100, 0x200, 0xC0
_FOLDER = 1 << 30
_NONBLOCKING = 0o4000
_EVENT = struct.Struct("iIII")


class Watch:
    """Watches this process from now on; it cannot be turned off.

    Args:
        readable: folders that may be read besides Python's own.
        writable: folders that may be read and changed.
        outside: folders in which even native code must not open anything.
    """

    def __init__(self, readable: Iterable[Path], writable: Iterable[Path], outside: Iterable[Path]) -> None:
        self._trespasses: list[str] = []
        self._writable = _prefixes(writable)
        outside = list(outside)
        own = {*sys.path, sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *_SYSTEM}
        # An editable installation adds the folder above the clone, in which all that is watched may lie, too.
        own_folders = [Path(path) for path in own if path and not any(map(_holding(path), outside))]
        self._readable = self._writable + _prefixes([*readable, *own_folders])
        self._native = _NativeWatch(outside)
        sys.addaudithook(self._hear)

    def trespasses(self) -> list[str]:
        """What was done since the last call that must not be done, each once."""
        found = dict.fromkeys([*self._trespasses, *self._native.events()])
        self._trespasses.clear()
        return list(found)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            changes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            self._judge(event, path, self._writable if changes else self._readable)
        elif event in _READS:
            self._judge(event, arguments[0], self._readable)
        elif event in _CHANGES:
            for place, folder in _CHANGES[event]:
                handle = arguments[folder] if folder is not None else -1
                self._judge(event, arguments[place], self._writable, handle)
        elif event in _FORBIDDEN:
            self._trespasses.append(f"{event} {arguments[0]!r}")

    def _judge(self, event: str, path: object, allowed: tuple[str, ...], handle: object = -1) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # an open file
        try:
            folder = Path(f"/proc/self/fd/{handle}" if isinstance(handle, int) and handle >= 0 else "")
            real = os.path.realpath(folder / os.fsdecode(path))
        except ValueError:
            return  # no path at all; the call will fail
        if not f"{real}/".startswith(allowed):
            self._trespasses.append(f"{event} '{real}'")


def _holding(path: str) -> Callable[[Path], bool]:
    """Whether a folder lies in ``path``."""
    return lambda folder: folder.resolve().is_relative_to(Path(path).resolve())


class _NativeWatch:
    """Linux's inotify on some folders and their files; sees nothing on other systems."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders: dict[int, Path] = {}
        self._handle = -1
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "inotify_init1"):
            return
        self._handle = library.inotify_init1(_NONBLOCKING)
        for folder in folders:
            mask = _OPENED | _MODIFIED | _CREATED | _DELETED | _MOVED
            number = library.inotify_add_watch(self._handle, os.fsencode(folder), mask)
            self._folders[number] = folder

    def events(self) -> list[str]:
        """What happened since the last call."""
        found: list[str] = []
        while self._handle >= 0:
            try:
                data = os.read(self._handle, 1 << 16)
            except BlockingIOError:
                break
            while data:
                number, mask, _, length = _EVENT.unpack_from(data)
                name = os.fsdecode(data[_EVENT.size : _EVENT.size + length].rstrip(b"\0"))
                data = data[_EVENT.size + length :]
                deed = "opened" if mask & _OPENED else "changed"
                if not (mask & _FOLDER and mask & _OPENED):  # to list it, as any other process may do
                    found.append(f"{deed} '{self._folders[number] / name}'")
        return found


def _prefixes(paths: Iterable[Path | str]) -> tuple[str, ...]:
    return tuple(f"{os.path.realpath(path)}/" for path in paths)
