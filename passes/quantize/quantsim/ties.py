"""Tensors that need one grid: around ops that join or only pass on data, and recurrent states.

Where AIMET ties too much or fails, see the page "Where qc differs from AIMET, and why"; the letters are its.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from qc.ir.facts.op_table import GRID_JOINING
from qc.ir.facts.op_traits import is_grid_preserving, joins_grids
from qc.ir.graph import Value

from .drafts import Draft, Drafts, is_quantizable
from .nodes import Node, NodeGraph

_PASSING = ("AveragePool", "Relu", "Resize", "Upsample")
_RECURRENT = ("RNN", "GRU", "LSTM")

_OTHER_GRID = "not the grid of its input"

Limits = tuple[float, float | None]


@dataclass(frozen=True)
class Requantized:
    """A reading of a tensor in another grid than its own.

    Attributes:
        node, port: where it is read.
        like: the tensor that has the grid.
        reason: why.
    """

    node: Node
    port: int
    like: Value
    reason: str


def tie_all(drafts: Drafts, untied: Sequence[str] = (), tied: Sequence[str] = ()) -> list[Requantized]:
    """Ties drafts; gives the readings that need a grid of their own because others read the tensor too.

    Args:
        untied: op types that are left out.
        tied: further ones whose results get the grid of their first input.
    """
    extra: list[Requantized] = []
    done: set[Node] = set()
    for node in reversed(drafts.nodes.nodes):
        if node.is_type(*GRID_JOINING - set(untied)) and node not in done:
            extra += _Join(drafts, node, done).tie()
    for node in drafts.nodes.nodes:
        if node.is_type(*_PASSING, *tied) and not node.is_type(*untied):
            _tie_forward(drafts, node)
    _tie_states(drafts)
    return extra


@dataclass
class _Join:
    """One joining op, with the joining and moving ops before it, whose inputs get the grid of its result."""

    drafts: Drafts
    node: Node
    done: set[Node]
    found: dict[Draft, None] = field(default_factory=dict)
    limits: dict[Limits | None, None] = field(default_factory=dict)
    extra: list[tuple[Node, int]] = field(default_factory=list)

    def tie(self) -> Iterator[Requantized]:
        """Ties what is found; the readings that need the grid of the result on top of another one."""
        joined = next(self.node.made, None)
        result = self.drafts.get(joined)
        self._collect()
        if joined is None or result is None or not result.enabled:
            return  # B4: a result without a grid has none to give
        common = next(iter(self.limits)) if len(self.limits) == 1 else None
        if len(self.limits) == 1:
            result.limits = common
        for draft in self.found:
            if draft is not result and (len(self.limits) == 1 or draft.limits is None):
                for held in self.drafts.holders(draft):
                    self.drafts.note(held, f"one grid with the result of {self.node.label}")
                self.drafts.replace(draft, result)
        if self.extra:
            self.drafts.note(joined, "others are read in this grid, too; not in AIMET (5.3)")
        for node, port in self.extra:
            reason = f"{node.label} joins tensors of one grid; AIMET leaves this one out (5.3)"
            yield Requantized(node, port, joined, reason)

    def _collect(self) -> None:
        pending = [self.node]
        while pending:
            node = pending.pop()
            if node in self.done:
                continue
            self.done.add(node)
            joins = node.is_type(*GRID_JOINING)
            for port, value in enumerate(node.inputs if joins else node.inputs[:1]):
                if value is not None and is_quantizable(value) and not _is_index(node, port):
                    self._visit(node, port, value)
                    producer = self.drafts.nodes.producer(value)
                    alone = _is_read_once(self.drafts.nodes, value)
                    if producer is not None and alone and _continues(producer):
                        pending.append(producer)

    def _visit(self, node: Node, port: int, value: Value) -> None:
        source = self.drafts.source(value)
        if source is None:
            self.limits.setdefault(None)
            if node.is_type(*GRID_JOINING):
                self.extra.append((node, port))
            return
        origin, draft = source
        self.limits.setdefault(draft.limits)
        nodes = self.drafts.nodes
        if all(_is_read_once(nodes, passed) for passed in _path(nodes, value, origin)):
            self.found.setdefault(draft)
        elif node.is_type(*GRID_JOINING):
            self.extra.append((node, port))


def _is_index(node: Node, port: int) -> bool:
    return node.is_type(*GRID_JOINING - {"Concat"}) and port == 1


def _continues(producer: Node) -> bool:
    return producer.is_grid_preserving or producer.is_type(*GRID_JOINING)


def _is_read_once(nodes: NodeGraph, value: Value) -> bool:
    """Whether one op reads the tensor, be it twice, and nobody outside the model sees it."""
    return len(set(nodes.readers(value))) == 1 and not value.is_output


def _path(nodes: NodeGraph, value: Value | None, origin: Value) -> list[Value]:
    """The tensors from ``value`` back to the one that its grid comes from."""
    found: list[Value] = []
    while value is not None:
        found.append(value)
        producer = nodes.producer(value) if value is not origin else None
        value = producer.input(0) if producer is not None else None
    return found


def _tie_forward(drafts: Drafts, node: Node) -> None:
    """One grid for input and result of an op that passes data on; a Relu keeps only what is above zero."""
    source = drafts.source(node.input(0))
    if source is None:
        return
    origin, given = source
    for value in node.made:
        own = drafts.get(value)
        if own is None or not own.enabled or own is given:
            continue
        clips = node.is_type("Relu") and _is_clipped_only(drafts, node, given)
        limits = own.limits or ((0.0, None) if clips and given.limits is None else None)
        limits = _common_limits(given.limits, limits)
        if given.limits is not None and _overshoots(node):
            drafts.note(value, f"{_OTHER_GRID}, whose fixed range it leaves; AIMET clips it (B1)")
        elif given.limits not in (None, limits):
            drafts.note(value, f"{_OTHER_GRID}, which has another fixed range; AIMET fails (B2)")
        elif limits != given.limits and not clips:
            path = _path(drafts.nodes, node.input(0), origin)
            shared = any(len(drafts.nodes.readers(passed)) > 1 for passed in path)
            unlike = "" if shared else "; AIMET clips it (B1)"
            drafts.note(value, f"{_OTHER_GRID}, which is needed beyond this range{unlike}")
        else:
            given.notes.append(f"one grid with the result of {node.label}{_unlike_aimet(given, own, limits)}")
            _merge(given, own, limits)
            drafts.add(value, given)  # what else holds the old one keeps it


def _is_clipped_only(drafts: Drafts, clip: Node, draft: Draft) -> bool:
    """Whether all that the tensors of a draft are for is one node that clips its input.

    Ops that hand on numbers, or choose among them, may lie between: they give the same before and behind it.
    """
    nodes = drafts.nodes
    pending = drafts.holders(draft)
    seen = set(pending)
    for value in pending:
        if value.is_output:
            return False
        for reader in nodes.readers(value):
            if reader is clip:
                continue
            if not _selects(reader):
                return False
            further = [made for made in reader.made if made not in seen]
            pending += further
            seen.update(further)
    return True


def _selects(node: Node) -> bool:
    """Whether all results hold numbers of the inputs only."""
    op = node.ops[-1]
    joins = joins_grids(op) and op.attribute("reduction", "none") == "none"
    return len(node.ops) == 1 and (joins or is_grid_preserving(op))


def _overshoots(node: Node) -> bool:
    """Whether the result can leave the range of the input, as between the points of a cubic curve."""
    crops = node.attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    return node.is_type("Resize") and (crops or node.attribute("mode", "nearest") == "cubic")


def _unlike_aimet(given: Draft, own: Draft, limits: Limits | None) -> str:
    """What AIMET does otherwise where a grid begins at zero from now on."""
    if limits is None or limits == given.limits:
        return ""
    if own.limits is None:
        return ", which begins at zero; AIMET keeps the negative half (B7)"
    if limits[1] is not None:
        return ""
    return ", which begins at zero; AIMET takes the upper end of the grid it had (C1)"


def _common_limits(given: Limits | None, own: Limits | None) -> Limits | None:
    """The range that both allow."""
    if given is None or own is None:
        return given or own
    tops = [top for _, top in (given, own) if top is not None]
    return max(given[0], own[0]), min(tops) if tops else None


def _merge(given: Draft, own: Draft, limits: Limits | None) -> None:
    if given.is_integer and own.is_integer:
        given.set_bits(min(given.bits, own.bits))
    given.symmetric |= own.symmetric
    given.unsigned |= own.unsigned
    given.limits = limits


def _tie_states(drafts: Drafts) -> None:
    """One grid for what a recurrent op reads, hands on from step to step, and gives back.

    What several of them read has the grid of the last one, as in AIMET.
    """
    tied: dict[Draft, tuple[Draft, Node]] = {}
    for node in drafts.nodes.nodes:
        if node.is_type(*_RECURRENT):
            tied |= {other: (keep, node) for other, keep in _states(drafts, node)}
    for other, (keep, node) in tied.items():
        unlike = ""
        if keep.limits is not None and _common_limits(keep.limits, other.limits) != other.limits:
            keep.limits, unlike = None, ", of any range; AIMET clips them (B1)"
        drafts.replace(other, keep)
        keep.notes.append(f"one grid for the states of {node.label}{unlike}")


def _states(drafts: Drafts, node: Node) -> Iterator[tuple[Draft, Draft]]:
    """Drafts around a recurrent op, each with the one that replaces it."""
    outputs = [*node.outputs, None, None, None]
    # Y and Y_h, with X and initial_h; Y_c, with initial_c
    states: list[tuple[list[Value | None], tuple[int, ...]]] = [(outputs[:2], (0, 5))]
    if node.is_type("LSTM"):
        states.append((outputs[2:3], (6,)))
    for made, ports in states:
        drafted = [drafts.get(value) for value in made]
        keep = next((draft for draft in drafted if draft is not None and draft.enabled), None)
        if keep is not None:
            for other in (*(drafts.effective(node.input(port)) for port in ports), *drafted):
                if other is not None and other is not keep and other.enabled:
                    yield other, keep
