"""What is drawn of a graph: boxes for ops, inputs and outputs, and lines for the tensors between them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace

from qc.diff.wiring import GraphWiring, Read
from qc.ir.facts.constants import constant_data
from qc.ir.graph import Graph, Op, Region, Value
from qc.rendering.words import count

from .layout import Link, layers_of
from .modules import Module, ops_of
from .precision import float_reads
from .words import constant_text, format_of, op_type, port_name

# The longest lines are cut where, taken together, lines would pass more layers than this, for each box.
_LAYERS_PER_BOX = 3
_SHORT = 8  # layers that any line may pass
_ROWS = 3
_IN_REGION = 4  # the weight of a line, as that of four others


@dataclass(frozen=True)
class Row:
    """A line of text in a box: a constant that an op reads, or a graph that it holds.

    Attributes:
        format: the number format of a constant; empty if it is not quantized.
        target: what the text stands for; None if it stands for several things.
    """

    text: str
    format: str = ""
    target: Value | Graph | None = None


@dataclass(frozen=True, eq=False)
class Box:
    """A box.

    Attributes:
        kind: ``op``, ``module``, ``input``, ``output``, or ``reference`` to a tensor that comes from afar, or
            is read there.
        subject: the op, the module, or the tensor that goes in, goes out, or is referred to.
        quantized: whether an op, or all of a module, reads quantized numbers only; None if it reads no float
            numbers.
    """

    kind: str
    subject: Op | Module | Value
    title: str
    name: str = ""
    rows: tuple[Row, ...] = ()
    region: Region | None = None
    quantized: bool | None = None


@dataclass(frozen=True)
class End:
    """One reading of a tensor; ``format`` is empty if it is not quantized on the way."""

    box: Box
    format: str


@dataclass(frozen=True, eq=False)
class Line:
    """A tensor, from the box that produces it to those that read it."""

    value: Value
    source: Box
    ends: list[End] = field(default_factory=list)

    @property
    def format(self) -> str:
        """The format that all users see; empty if it is none or not the same for all."""
        formats = {end.format for end in self.ends}
        return formats.pop() if len(formats) == 1 else ""

    @property
    def is_within_region(self) -> bool:
        """Whether an op of the same region reads it."""
        region = self.source.region
        return region is not None and any(end.box.region is region for end in self.ends)


@dataclass(frozen=True)
class Picture:
    """One graph, or a module of it.

    Attributes:
        subject: what is drawn.
        parent: the graph or module that it opens from; None for those that stand at the top.
        label: where it is; empty for the main graph.
        boxes: in topological order.
        lines: in the order of their sources.
        hidden: how many ops of the graph are left out.
    """

    graph: Graph
    subject: Graph | Module
    parent: Graph | Module | None
    label: str
    boxes: list[Box]
    lines: list[Line]
    hidden: int

    def links(self) -> list[Link]:
        """The lines by the numbers of their boxes; those within a region keep together."""
        number = {box: position for position, box in enumerate(self.boxes)}
        return [
            Link(
                number[line.source],
                tuple(number[end.box] for end in line.ends),
                _IN_REGION if line.is_within_region else 1,
            )
            for line in self.lines
        ]


def picture_of(scope: GraphWiring, label: str, items: Sequence[Op | Module]) -> Picture:
    """The picture of the ops and modules of a graph that are to be shown."""
    painter = _Painter(scope, items)
    painter.paint_graph()
    parent = scope.graph.parent.graph if scope.graph.parent is not None else None
    hidden = len(scope.ops) - len(painter.ops)
    return painter.picture(scope.graph, parent, label, hidden)


def module_pictures(
    scope: GraphWiring, parent: Graph | Module, items: Sequence[Op | Module]
) -> Iterator[Picture]:
    """The pictures of the modules among ``items``, each followed by those of the modules within."""
    for module in items:
        if isinstance(module, Module):
            painter = _Painter(scope, module.items)
            painter.paint_module()
            yield painter.picture(module, parent, module.label, 0)
            yield from module_pictures(scope, module, module.items)


class _Painter:
    """Makes boxes and lines; ``ops`` are the ops that are drawn, be it within modules."""

    def __init__(self, scope: GraphWiring, items: Sequence[Op | Module]) -> None:
        self.scope = scope
        self.items = items
        self.ops = dict.fromkeys(ops_of(items))
        self.boxes: list[Box] = []
        self.lines: list[Line] = []
        self._line_of: dict[Value, Line] = {}

    def picture(
        self, subject: Graph | Module, parent: Graph | Module | None, label: str, hidden: int
    ) -> Picture:
        """What was painted."""
        lines = [line for line in self.lines if line.ends]
        drawn = Picture(self.scope.graph, subject, parent, label, self.boxes, lines, hidden)
        return _with_short_lines(drawn)

    def paint_module(self) -> None:
        """What goes out of the ops is read elsewhere; what comes in has a reference as well."""
        self._paint_items()
        for value in [value for value in self._line_of if self._is_read_outside(value, self.ops)]:
            self._add(Box("reference", value, value.name), [], [Read(value)])

    def paint_graph(self) -> None:
        """Goes through the graph in topological order."""
        whole = len(self.ops) == len(self.scope.ops)
        for value in self.scope.graph.inputs:
            used = any(user.op in self.ops for user in self.scope.users.get(value, ()))
            if constant_data(value) is None and (used or whole):
                self._add(Box("input", value, value.name), [value])
        self._paint_items()
        for output, read in self.scope.outputs.items():
            if whole or read.value in self._line_of:
                self._add(Box("output", output, output.name), [], [read])

    def _paint_items(self) -> None:
        for item in self.items:
            if isinstance(item, Module):
                self._paint_module(item)
            else:
                self._paint_op(item)

    def _paint_module(self, module: Module) -> None:
        inside = dict.fromkeys(module.ops)
        made = [value for op in inside for value in self.scope.results[op] if value is not None]
        states = [state for state in map(self._is_quantized, inside) if state is not None]
        box = Box(
            "module",
            module,
            module.label,
            count(len(inside), "op"),
            quantized=all(states) if states else None,
        )
        reads = {
            (read.value, format_of(read)): read
            for op in inside
            for read in self._reads(op)
            if self.scope.producer.get(read.value) not in inside
        }
        self._add(box, [value for value in made if self._is_read_outside(value, inside)], [*reads.values()])

    def _is_read_outside(self, value: Value, ops: Container[Op]) -> bool:
        users = self.scope.users.get(value, ())
        return value in self.scope.given_as or any(user.op not in ops for user in users)

    def _reads(self, op: Op) -> list[Read]:
        """What an op reads, constants aside."""
        reads = [read for read in self.scope.reads[op] if read is not None]
        reads += [Read(value) for value in self.scope.captured.get(op, ())]
        return [read for read in reads if constant_data(read.value) is None]

    def _paint_op(self, op: Op) -> None:
        region = op.region
        box = Box("op", op, op_type(op), op.name, tuple(self._rows(op)), region, self._is_quantized(op))
        results = [value for value in self.scope.results[op] if value is not None]
        self._add(box, results, self._reads(op))

    def _add(self, box: Box, results: list[Value], reads: Sequence[Read] = ()) -> None:
        """Adds a box, and leads to it what it reads: by a reference if what produces it is not drawn."""
        for read in reads:
            line = self._line_of.get(read.value)
            if line is None:
                line = Line(read.value, Box("reference", read.value, read.value.name))
                self.boxes.append(line.source)
                self.lines.append(line)
            line.ends.append(End(box, format_of(read)))
        self.boxes.append(box)
        for value in results:
            self._line_of[value] = Line(value, box)
            self.lines.append(self._line_of[value])

    def _rows(self, op: Op) -> Iterator[Row]:
        """The constants, as many as have room, then the subgraphs."""
        constants = [
            Row(f"{port_name(op, port)} {constant_text(read.value)}", format_of(read), read.value)
            for port, read in enumerate(self.scope.reads[op])
            if read is not None and constant_data(read.value) is not None
        ]
        shown = _ROWS if len(constants) <= _ROWS else _ROWS - 1
        yield from constants[:shown]
        if len(constants) > shown:
            yield Row(f"and {len(constants) - shown} more")
        for key, nested in op.subgraphs.items():
            yield Row(f"{key}: {count(len(nested.ops()), 'op')}", target=nested)

    def _is_quantized(self, op: Op) -> bool | None:
        quantized = [bool(read.quantizations) for read in float_reads(self.scope, op)]
        return all(quantized) if quantized else None


def _with_short_lines(picture: Picture) -> Picture:
    """The picture with references in place of the ends of lines that are too long to be followed."""
    number = {box: position for position, box in enumerate(picture.boxes)}
    layers = layers_of(len(picture.boxes), picture.links())
    spans = {
        line: max(layers[number[end.box]] for end in line.ends) - layers[number[line.source]]
        for line in picture.lines
    }
    room = _LAYERS_PER_BOX * len(picture.boxes)
    references: dict[Box, list[Line]] = {}
    for line in sorted(picture.lines, key=spans.__getitem__):
        room -= spans[line]
        if room < 0 and spans[line] > _SHORT:
            far = layers[number[line.source]] + _SHORT
            cut_off = [end for end in line.ends if layers[number[end.box]] > far]
            line.ends[:] = [end for end in line.ends if layers[number[end.box]] <= far]
            for end in cut_off:
                cut = Line(line.value, Box("reference", line.value, line.value.name), [end])
                references.setdefault(end.box, []).append(cut)
    boxes = [one for box in picture.boxes for one in (*(cut.source for cut in references.get(box, ())), box)]
    lines = [line for line in picture.lines if line.ends]
    lines += [cut for cuts in references.values() for cut in cuts]
    return replace(picture, boxes=boxes, lines=lines)
