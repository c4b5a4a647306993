"""Actions and trials: primitive edits of a model with all that it takes to undo them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .analysis import QUANT, STRUCTURE, TYPES
from .base.garbage import without_collections
from .graph import Op, Value
from .journal import REWRITE, Remark
from .model import Model
from .port_graph import Port
from .quant_table import QuantTable

# A function and its arguments. Lowering keeps some for every op, and they take less memory than closures.
Edit = tuple[Any, ...]


class EditLog:
    """The primitive edits of a :class:`~qc.ir.rewriter.Rewriter`, and those of the open action."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._undo: list[Edit] = []
        self._open = False
        self._action: Remark | None = None
        self._anchor: Op | None = None
        self._kept_table: QuantTable | None = None
        self._removed: list[Value] = []
        self._replaced: dict[Value, Value] = {}

    @contextmanager
    def action(self, rule: str, subject: Op | Value) -> Iterator[Remark]:
        """Opens an action named after a rewriting rule, on the op or value that it is about."""
        if self._open:
            raise RuntimeError("actions do not nest")
        journal = self.model.journal
        before = len(journal.remarks), journal.action_count
        label = subject.label if isinstance(subject, Op) else f"'{subject.name}'"
        self._action = journal.act(REWRITE, subject, label, rule)
        self._open = True
        self._anchor = subject if isinstance(subject, Op) else subject.graph.producer(subject)
        try:
            yield self._action
        except BaseException:
            self._take_back()
            journal.take_back(*before)
            raise
        else:
            for value in self._removed:
                journal.removed[value.name] = self._action
                journal.successors.pop(value.name, None)
                if value in self._replaced:
                    journal.successors[value.name] = self._replaced[value]
        finally:
            self._action, self._anchor, self._kept_table = None, None, None
            self._close()

    @contextmanager
    def trial(self) -> Iterator[None]:
        """A block whose edits are all taken back at its end: lowering edits, emits, and leaves no trace."""
        model = self.model
        before = model.quant
        model.quant = model.quant.copy()
        self._open = True
        try:
            with model.journal.aside(), without_collections():
                yield
        finally:
            self._take_back()
            self._close()
            model.quant = before
            model.epochs.advance(QUANT)

    # -- primitives ---------------------------------------------------------------------------------

    def _edit(self, do: Edit, undo: Edit) -> None:
        if not self._open:
            raise RuntimeError("edits belong into 'with rewriter.action(...)' or 'with rewriter.trial()'")
        function, *arguments = do
        function(*arguments)
        self._undo.append(undo)

    def _take_back(self) -> None:
        for function, *arguments in reversed(self._undo):
            function(*arguments)

    def _close(self) -> None:
        self._open, self._undo, self._removed, self._replaced = False, [], [], {}

    def _set(self, owner: object, field: str, new: object) -> None:
        old = getattr(owner, field)
        self._edit((self._assign, owner, field, new), (self._assign, owner, field, old))

    def _assign(self, owner: object, field: str, value: object) -> None:
        setattr(owner, field, value)
        self.model.epochs.advance(TYPES if field == "type" else STRUCTURE)

    def _add(self, node: Op | Value) -> None:
        node.graph._add_node(node)
        self.model.names.claim(node.name)
        self.model.epochs.advance(TYPES)

    def _take_away(self, node: Op | Value) -> None:
        node.graph._remove_node(node)
        self.model.names.release(node.name)
        self.model.epochs.advance(TYPES)

    def _fresh_name(self, hint: str) -> str:
        names = self.model.names
        name = names.free(hint)
        self._edit((names.claim, name), (names.release, name))
        return name

    def _connect(self, source: Op | Value, sink: Op | Value, port: Port) -> None:
        graph = source.graph
        self._edit((graph._connect, source, sink, port), (graph._disconnect, source, sink, port))

    def _disconnect(self, source: Op | Value, sink: Op | Value, port: Port) -> None:
        graph = source.graph
        self._edit((graph._disconnect, source, sink, port), (graph._connect, source, sink, port))

    def _forget_quantizers(self, payload: Op | Value) -> None:
        self._keep_quantizers(payload)
        self.model.quant.forget(payload)

    def _keep_quantizers(self, payload: Op | Value) -> None:
        """Keeps the table as it was, once for an action and only if the quantizers of ``payload`` matter."""
        table = self.model.quant
        if self._kept_table is None and self._action is not None and table.touches(payload):
            self._kept_table = before = table.copy()
            self._undo.append((table.restore, before))
