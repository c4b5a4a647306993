"""The journal of a model: every change and every decision in order, with its reason.

What changes the model is an *action* and has a number. Numbers are stable: the same model and pipeline give
the same actions. A limit stops all actions beyond it, which is how a search finds the first one that does
harm. What changes nothing, such as the reason why a tensor stays float, is a remark without a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from .graph import Op, Value

# Kinds of remarks. Actions:
REWRITE = "rewrite"
MATCH = "match"
PLACE = "place"
REMOVE = "remove"
TIE = "tie"
RESPEC = "respec"
CALIBRATE = "calibrate"
# Not actions:
SKIP = "skip"
NEAR_MATCH = "near match"

KINDS = (REWRITE, MATCH, PLACE, REMOVE, TIE, RESPEC, CALIBRATE, SKIP, NEAR_MATCH)


class LimitReached(Exception):
    """An action beyond the limit of the journal was about to happen. Not an error: the pass ends here."""


class Remark(NamedTuple):
    """One entry of the journal.

    Attributes:
        kind: one of :data:`KINDS`.
        about: the op or value it is about; its name may have changed since.
        subject: what it is about, in the words of that moment.
        reason: why; for a rewrite the rule, and perhaps behind a colon what it did.
        quantizer: id of the quantizer that was placed or changed, if any.
        asked_by: the line of configuration, target or option, that asked for it; empty if none did.
        suggestion: what a user can do about it; empty if there is nothing to suggest.
        pass_name: the pass that did it, as the journal knows; empty if it happened outside a pipeline.
        number: number of the action, from the journal; 0 for a remark that changed nothing.
    """

    kind: str
    about: Op | Value
    subject: str
    reason: str
    quantizer: int | None = None
    asked_by: str = ""
    suggestion: str = ""
    pass_name: str = ""
    number: int = 0

    def __str__(self) -> str:
        number = f"{self.number} " if self.number else ""
        held = f" q{self.quantizer}" if self.quantizer is not None else ""
        asked = f" [{self.asked_by}]" if self.asked_by else ""
        hint = f"; {self.suggestion}" if self.suggestion else ""
        return f"{number}{self.kind}{held} {self.subject}: {self.reason}{asked}{hint}"

    @property
    def rule(self) -> str:
        """The rule of a rewrite or a match; empty for other remarks."""
        return self.reason.partition(": ")[0] if self.kind in (REWRITE, MATCH) else ""

    @property
    def title(self) -> str:
        """How messages name an action: ``action 3 (fold-constants: fold on Add 'x')``."""
        what = f"{self.rule} on" if self.kind == REWRITE else self.kind
        return f"action {self.number} ({self.pass_name}: {what} {self.subject})"


class Journal:
    """The remarks of one model.

    Attributes:
        remarks: everything so far, in order.
        action_count: number of the last action.
        pass_name: the pass that runs.
        limit: number of the last action that may happen; None for no limit.
        stopped: whether the limit has stopped an action.
        removed: the action that removed a value, by the name of the value.
        successors: what was read in place of a removed value from then on, by the name of the removed one.
        latest: the last action that began, even if an exception took it back.
    """

    def __init__(self) -> None:
        self.remarks: list[Remark] = []
        self.action_count = 0
        self.pass_name = ""
        self.limit: int | None = None
        self.stopped = False
        self.removed: dict[str, Remark] = {}
        self.successors: dict[str, Value] = {}
        self.latest: Remark | None = None

    def act(self, remark: Remark) -> Remark:
        """Records an action that is about to happen, and gives it its number; LimitReached if it may not."""
        if self.limit is not None and (self.stopped or self.action_count >= self.limit):
            self.stopped = True
            raise LimitReached
        self.action_count += 1
        self.latest = self.note(remark, self.action_count)
        return self.latest

    def note(self, remark: Remark, number: int = 0) -> Remark:
        """Records what changes nothing, or an action by its number."""
        found = remark._replace(pass_name=self.pass_name, number=number)
        self.remarks.append(found)
        return found

    def actions(self) -> list[Remark]:
        """The remarks that changed the model."""
        return [remark for remark in self.remarks if remark.number]

    def take_back(self, length: int, action_count: int) -> None:
        """Forgets everything after a moment at which there were so many remarks and actions."""
        del self.remarks[length:]
        self.action_count = action_count

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A block in which nothing is limited and whose remarks are forgotten at its end."""
        length, count, limit = len(self.remarks), self.action_count, self.limit
        latest, self.limit = self.latest, None
        try:
            yield
        finally:
            self.limit, self.latest = limit, latest
            self.take_back(length, count)
