"""The model: all scopes, local functions, regions, the table of quantizers, and the original proto."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import onnx

from .analysis import STRUCTURE
from .base.names import Names
from .base.shown import Shown
from .context import ModelContext
from .errors import UsageError, a_type
from .graph import Graph, Op, Region
from .journal import MATCH, Journal, Remark
from .quant_table import QuantTable
from .transaction import Transaction

FunctionKey = tuple[str, str, str]


class Model(ModelContext, Shown):
    """A lifted model.

    Attributes:
        graph: the main graph.
        functions: bodies of local functions by (domain, name, overload).
        journal: every change and decision so far, in order.
        transaction: what every change goes through, so that it can be undone.
        quant: which values and uses are quantized, and how.
        regions: matched supergroups, in the order in which they were found; each op belongs to at most one.
    """

    def __init__(self, origin: onnx.ModelProto, base_dir: Path | None) -> None:
        super().__init__(origin, base_dir)
        self.graph = Graph(self, origin.graph.name)
        self.functions: dict[FunctionKey, Graph] = {}
        self.journal = Journal()
        self.transaction = Transaction(self.epochs, self.journal)
        self.quant = QuantTable(self.transaction)
        self.regions: list[Region] = []

    def __repr__(self) -> str:
        quantizers = sum(1 for _ in self.quant.quantizers())
        return f"<Model {self.name!r}: {len(self.graph.ops())} ops, {quantizers} quantizers>"

    @property
    def name(self) -> str:
        """The name of the main graph."""
        return self.graph.name

    @property
    def epoch(self) -> int:
        """How often the structure has changed."""
        return self.epochs.structure

    @property
    def action_count(self) -> int:
        """How many actions there were so far; a pass that changed nothing leaves it alone."""
        return self.journal.action_count

    def graphs(self) -> Iterator[Graph]:
        """The main graph with all nested graphs, then the function bodies."""
        yield from self.graph.walk()
        for body in self.functions.values():
            yield from body.walk()

    def ops(self) -> list[Op]:
        """The ops of :meth:`graphs`, as they are now: edits do not change the list."""
        return [op for graph in self.graphs() for op in graph.ops()]

    def add_region(self, region: Region, reason: str, asked_by: str = "") -> None:
        """Records a region; its ops must not belong to another one.

        Args:
            reason: what was found.
            asked_by: the line of configuration that wants it as one operator.
        """
        root, aspects = region.root, (STRUCTURE,)
        with self.transaction.action(Remark(MATCH, root, root.label, reason, asked_by=asked_by)):
            self.transaction.change(aspects, (self.regions.append, region), (self.regions.pop,))
            for op in region.ops:
                self.transaction.put(aspects, op.graph.regions, op, region)

    def remove_region(self, region: Region) -> None:
        """Takes a region back whose ops no longer are what it names; in an action."""
        index, aspects = self.regions.index(region), (STRUCTURE,)
        self.transaction.change(aspects, (self.regions.pop, index), (self.regions.insert, index, region))
        for op in region.ops:
            self.transaction.drop(aspects, op.graph.regions, op)

    def release_names(self) -> None:
        """Lets new values have the names of values and ops that are gone."""
        values = (value.name for graph in self.graphs() for value in graph.values())
        ops = (op.name for op in self.ops())
        with self.transaction.atomic():
            self.transaction.set((), self, "names", Names(chain(values, ops)))


def check_lifted(given: object) -> None:
    """Raises UsageError for what is no model of the IR, such as the result of a compilation around it."""
    if not isinstance(given, Model):
        hint = "its .ir is one" if isinstance(getattr(given, "ir", None), Model) else "qc.ir.lift() makes one"
        raise UsageError(f"a qc.ir.Model is due here, not {a_type(given)}; {hint}")
