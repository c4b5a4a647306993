"""The model: all scopes, local functions, regions, the table of quantizers, and the original proto."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from .analysis import STRUCTURE, Analyses, Epochs
from .base.names import Names
from .graph import Graph, Op, Value
from .journal import MATCH, Journal
from .quant_table import QuantTable
from .region import Region
from .transaction import Transaction

FunctionKey = tuple[str, str, str]


class Model:
    """A lifted model.

    Attributes:
        graph: the main graph.
        functions: bodies of local functions by (domain, name, overload).
        origin: the proto the model was lifted from; lowering starts from it, so nothing is lost.
        base_dir: the folder of the model file, which external data is relative to.
        opset_imports: version by domain ("" is the standard domain).
        quant: which values and uses are quantized, and how.
        regions: matched supergroups; each op belongs to at most one.
        journal: every change and decision so far, in order.
        transaction: what every change goes through, so that it can be undone.
        names: the names that are taken, in whichever scope.
        epochs: how often each aspect of the model has changed.
        analyses: what was computed from the model and still holds.
    """

    def __init__(self, origin: onnx.ModelProto, base_dir: Path | None) -> None:
        self.origin = origin
        self.base_dir = base_dir
        self.epochs = Epochs()
        self.graph = Graph(self, origin.graph.name)
        self.functions: dict[FunctionKey, Graph] = {}
        self.opset_imports = {
            "" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in origin.opset_import
        }
        self.journal = Journal()
        self.analyses = Analyses(self.epochs)
        self.transaction = Transaction(self.epochs, self.journal)
        self.quant = QuantTable(self.transaction)
        self.regions: list[Region] = []
        self._region_of_op: dict[Op, Region] = {}
        self._last_id = 0
        self.names = Names()

    @property
    def opset(self) -> int:
        """The version of the standard ONNX operators."""
        return self.opset_imports.get("", 1)

    @property
    def action_count(self) -> int:
        """How many actions there were so far; a pass that changed nothing leaves it alone."""
        return self.journal.action_count

    def graphs(self) -> Iterator[Graph]:
        """The main graph with all nested graphs, then the function bodies."""
        yield from self.graph.walk()
        for body in self.functions.values():
            yield from body.walk()

    def add_region(self, region: Region, reason: str, asked_by: str = "") -> None:
        """Records a region; its ops must not belong to another one.

        Args:
            reason: what was found.
            asked_by: the line of configuration that wants it as one operator.
        """
        root, aspects = region.root, (STRUCTURE,)
        with self.transaction.action(MATCH, root, root.label, reason, asked_by=asked_by):
            self.transaction.change(aspects, (self.regions.append, region), (self.regions.pop,))
            for op in region.ops:
                self.transaction.put(aspects, self._region_of_op, op, region)

    def region_of(self, op: Op) -> Region | None:
        """The region that claimed ``op``."""
        return self._region_of_op.get(op)

    def new_id(self) -> int:
        """A fresh integer identity for an op or a value."""
        self._last_id += 1
        return self._last_id

    def claim_name(self, name: str) -> None:
        """Records a name as taken in some scope, so that no new value gets it."""
        self.names.claim(name)

    def release_names(self) -> None:
        """Lets new values have the names of values and ops that are gone."""
        names = Names()
        for graph in self.graphs():
            named: list[Op | Value] = [*graph.ops(), *graph.values()]
            for node in named:
                names.claim(node.name)
        with self.transaction.atomic():
            self.transaction.set((), self, "names", names)
