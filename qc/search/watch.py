"""Watching a compilation: where it is, which actions it did, and whether it failed through a defect."""

from __future__ import annotations

from qc.ir.errors import QcError, VerificationError
from qc.ir.journal import Remark
from qc.ir.model import Model
from qc.passes import Instrument, Pass


class StoppedEarly(Exception):
    """A :class:`PassWatch` ended a pipeline after as many passes as it was to see."""


class PassWatch(Instrument):
    """Remembers where a compilation is, and can end it after a number of executed passes.

    Attributes:
        model: the model, once the first pass was about to begin.
        begun: how many passes began; a pass within a loop counts in every round.
        first_action: number of the first action that the last of them could make.
        failed_pass: the pass that failed, or left a broken model.
    """

    def __init__(self, stop_after: int | None = None) -> None:
        self._stop_after = stop_after
        self.model: Model | None = None
        self.begun = 0
        self.first_action = 1
        self.failed_pass: Pass | None = None

    def before_pass(self, step: Pass, model: Model) -> None:
        """Raises StoppedEarly if enough passes ran."""
        self.model = model
        if self.begun == self._stop_after:
            raise StoppedEarly
        self.begun += 1
        self.first_action = model.action_count + 1

    def failed(self, step: Pass, model: Model, error: Exception) -> None:
        """Remembers the pass."""
        self.failed_pass = step

    def actions(self) -> list[Remark]:
        """All actions, the one that an exception took back included."""
        if self.model is None:
            return []
        journal = self.model.journal
        actions, latest = journal.actions(), journal.latest
        taken_back = latest is not None and latest.number > len(actions)
        return [*actions, latest] if latest is not None and taken_back else actions


def is_defect(error: BaseException) -> bool:
    """Whether an error is the fault of qc or of a pass, and not of what was given to it."""
    if isinstance(error, QcError):
        return error.exit_code == VerificationError.exit_code
    from_the_system = isinstance(error, OSError) and bool(error.strerror)
    return isinstance(error, Exception) and not from_the_system


def sentence(error: BaseException) -> str:
    """An error on one line; one that was not foreseen with its type in front."""
    words = " ".join(str(error).split())
    if isinstance(error, QcError):
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
