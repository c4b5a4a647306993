"""The transaction of a model: all changes are primitives with an inverse, in blocks that can be undone.

Whatever changes a model, the Rewriter, the QuantTable or the model itself, does it by primitives of the one
transaction that the model owns. A primitive says which aspects it changes; their epochs advance when it is
done and when it is undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .analysis import Epochs
from .graph import Op, Value
from .journal import Journal, Remark

Aspects = tuple[str, ...]
# A function and its arguments. Lowering keeps some for every op, and they take less memory than closures.
Edit = tuple[Any, ...]


@dataclass
class Rewrite:
    """The rewriting action that is open.

    Attributes:
        remark: what the journal says of it.
        anchor: the op whose place in the order of the model new ops take.
        replaced: what is read now instead of a value.
    """

    remark: Remark
    anchor: Op | None
    replaced: dict[Value, Value] = field(default_factory=dict)


class Transaction:
    """The changes of a model that can still be undone.

    Attributes:
        epochs: what every change advances.
        journal: where actions get their numbers.
        rewrite: the rewriting action that is open; None outside of one.
    """

    def __init__(self, epochs: Epochs, journal: Journal) -> None:
        self.epochs = epochs
        self.journal = journal
        self.rewrite: Rewrite | None = None
        self._open = False
        self._undo: list[Edit] = []  # what each changes, and then how it is undone

    # -- blocks -------------------------------------------------------------------------------------

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """A block whose changes are all taken back if an exception leaves it; blocks nest."""
        begin, outermost = len(self._undo), not self._open
        self._open = True
        try:
            yield
        except BaseException:
            self._take_back(begin)
            raise
        finally:
            if outermost:
                self._open = False
                self._undo.clear()

    @contextmanager
    def action(self, remark: Remark) -> Iterator[Remark]:
        """An atomic block with a number and an entry in the journal, which an exception takes back as well.

        Raises:
            LimitReached: it may not happen.
        """
        before = len(self.journal.remarks), self.journal.action_count
        try:
            with self.atomic():
                yield self.journal.act(remark)
        except BaseException:
            self.journal.take_back(*before)
            raise

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A block whose changes are all taken back at its end, and that leaves nothing in the journal."""
        begin, rewrite = len(self._undo), self.rewrite
        self.rewrite = None
        with self.journal.aside(), self.atomic():
            try:
                yield
            finally:
                self._take_back(begin)
                self.rewrite = rewrite

    def _take_back(self, begin: int) -> None:
        while len(self._undo) > begin:
            aspects, function, *arguments = self._undo.pop()
            function(*arguments)
            self.epochs.advance(*aspects)

    # -- primitives ---------------------------------------------------------------------------------

    def change(self, aspects: Aspects, do: Edit, undo: Edit) -> None:
        """Does an edit and keeps its inverse.

        Raises:
            RuntimeError: no block is open.
        """
        if not self._open:
            raise RuntimeError("edits belong into 'with rewriter.action(...)' or 'with rewriter.trial()'")
        function, *arguments = do
        function(*arguments)
        self._undo.append((aspects, *undo))
        self.epochs.advance(*aspects)

    def set(self, aspects: Aspects, owner: object, field: str, value: object) -> None:
        """Assigns an attribute of an object."""
        before = getattr(owner, field)
        self.change(aspects, (setattr, owner, field, value), (setattr, owner, field, before))

    def put(self, aspects: Aspects, mapping: dict[Any, Any], key: object, value: object) -> None:
        """Assigns an entry of a mapping, whose order does not matter."""
        had = key in mapping
        undo = (mapping.__setitem__, key, mapping[key]) if had else (mapping.__delitem__, key)
        self.change(aspects, (mapping.__setitem__, key, value), undo)

    def drop(self, aspects: Aspects, mapping: dict[Any, Any], key: object) -> None:
        """Takes an entry out of a mapping, if it is there."""
        if key in mapping:
            self.change(aspects, (mapping.__delitem__, key), (mapping.__setitem__, key, mapping[key]))
