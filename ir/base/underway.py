"""What native code is doing, told to the process that is left when native code ends this one.

The command line runs a command in a process of its own and shares a page of memory with it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager


class _Note:
    """Words in memory that processes may share; without that, nobody reads them."""

    def __init__(self) -> None:
        self.memory: mmap.mmap | None = None

    def read(self) -> str:
        return self.memory[:].partition(b"\0")[0].decode(errors="replace") if self.memory is not None else ""

    def write(self, words: str) -> None:
        if self.memory is not None:
            data = words.encode()[: len(self.memory) - 1] + b"\0"
            self.memory[: len(data)] = data


_note = _Note()


def share() -> None:
    """Makes what is told from now on readable in processes that are forked, and in this one."""
    _note.memory = mmap.mmap(-1, mmap.PAGESIZE)


def told() -> tuple[str, str]:
    """What runs native code, and what it does, such as ``opened 'model.onnx'``; or two empty texts."""
    runtime, _, words = _note.read().partition("\n")
    return runtime, words


@contextmanager
def underway(words: str, *, outer: bool = False, runtime: str = "ONNX Runtime") -> Iterator[None]:
    """Tells what native code does in the block.

    Args:
        words: what it does in the past tense, such as ``opened 'model.onnx'``.
        outer: whether words that are told around the block, which know more, are left as they are.
        runtime: what runs it, by the name that users know.
    """
    before = _note.read()
    known = told()[1] if outer else ""
    _note.write(f"{runtime}\n{known or words}")
    try:
        yield
    finally:
        _note.write(before)
