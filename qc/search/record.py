"""What a reproducer says of the failure that it shows, in its file ``reproducer.json``."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from qc.compiler.folder import Contents

from .watch import sentence

BEFORE = "before.qcir"  # the text of the model just before the failing pass

_ADDRESS = re.compile(r"0x[0-9a-f]+")


class ActionRecord(BaseModel):
    """An action that is to blame."""

    model_config = ConfigDict(frozen=True, strict=True)

    number: int
    title: str


class Record(Contents):
    """What a folder holds, and what became of compiling it.

    Attributes:
        command: the command line, if it was one.
        error, error_type: what was raised, in words, and its class.
        failing_pass: the pass that failed or left a broken model, with its options.
        action: the first action that makes it fail.
        reproduces: whether the folder, compiled when it was written, failed in the same way.
    """

    command: tuple[str, ...] = ()
    error: str
    error_type: str
    failing_pass: str | None = None
    action: ActionRecord | None = None
    reproduces: bool = False

    def is_of(self, error: Exception) -> bool:
        """Whether an error is the one that was recorded, but for addresses in memory."""
        then, now = (_ADDRESS.sub("0x", text) for text in (self.error, sentence(error)))
        return (self.error_type, then) == (type(error).__name__, now)
