"""Quantizers while they are decided: mutable, off or on, shared where tensors are tied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

from qc.ir.graph import Value
from qc.ir.quant.formats import Format, IntFormat, has_limits
from qc.ir.quant.spec import Granularity, PerTensor, QuantSpec
from qc.ir.value_type import FLOAT_TYPES

from .nodes import Node, NodeGraph


@dataclass(eq=False)
class Draft:
    """A quantizer while it is decided.

    Attributes:
        format: as it was asked for, with the sign that a symmetric grid has; see :attr:`integer_spec`.
        bits: the width of a code, which may have changed since.
        is_parameter: whether the tensor is in a parameter slot.
        limits: a fixed range, whose upper end may be open.
        reason, asked_by: what decided last whether it is on, and the key of the configuration.
        notes: further decisions, in order.
    """

    format: Format
    is_parameter: bool
    enabled: bool = False
    symmetric: bool = False
    strict: bool = False
    unsigned: bool = False
    limits: tuple[float, float | None] | None = None
    granularity: Granularity = PerTensor()
    reason: str = "no rule asks for it"
    asked_by: str = ""
    notes: list[str] = field(default_factory=list)
    bits: int = field(init=False)

    def __post_init__(self) -> None:
        self.bits = self.format.bits

    def switch(self, enabled: bool, reason: str, asked_by: str = "") -> None:
        """Turns it on or off."""
        self.enabled, self.reason, self.asked_by = enabled, reason, asked_by

    @property
    def is_integer(self) -> bool:
        """Whether codes are integers."""
        return isinstance(self.format, IntFormat)

    def set_bits(self, bits: int) -> None:
        """Changes the width of integer codes; the sign stays the one that was asked for."""
        assert self.is_integer
        self.bits = bits

    @property
    def spec(self) -> QuantSpec:
        """The specification."""
        if isinstance(self.format, IntFormat):
            return self.integer_spec
        if not has_limits(self.format):
            return QuantSpec(self.format)
        return QuantSpec(self.format, granularity=self.granularity, fixed_range=self.integer_spec.fixed_range)

    @property
    def integer_spec(self) -> QuantSpec:
        """That of integers of the same width; codes of a parameter without symmetry have no sign."""
        signed = self.format.signed if isinstance(self.format, IntFormat) else self.is_parameter
        signed = signed and (self.symmetric or not self.is_parameter)
        limits = self.limits
        if limits is not None and self.symmetric:
            reach = max(map(abs, limits)) if limits[1] is not None else None  # type: ignore[arg-type]
            limits = (-reach, reach) if reach is not None else None
        return QuantSpec(
            IntFormat.of_width(self.bits, signed),
            self.symmetric,
            self.strict and self.symmetric,
            self.granularity,
            (limits[0], np.inf if limits[1] is None else limits[1]) if limits is not None else None,
            one_sided=self.unsigned and self.symmetric,
        )


class Drafts:
    """The drafts of all tensors that may have a quantizer.

    Attributes:
        nodes: the graph.
    """

    def __init__(self, nodes: NodeGraph) -> None:
        self.nodes = nodes
        self._of_value: dict[Value, Draft] = {}
        self._holders: dict[Draft, dict[Value, None]] = {}
        self._first: dict[Value, Draft] = {}
        self._notes: dict[Value, list[str]] = {}

    def add(self, value: Value, draft: Draft) -> None:
        """Gives a tensor a draft."""
        if value in self._of_value:
            del self._holders[self._of_value[value]][value]
        self._of_value[value] = draft
        self._holders.setdefault(draft, {})[value] = None
        self._first.setdefault(value, draft)

    def reason(self, value: Value) -> tuple[str, str]:
        """Why the draft of a tensor is as it is, and the key of the configuration that asked for it."""
        first = self._first[value]
        notes = (*self._of_value[value].notes, *self._notes.get(value, ()))
        return "; ".join((first.reason, *notes)), first.asked_by

    def note(self, value: Value, text: str) -> None:
        """Adds to the reason of one tensor, and not of those that share its grid."""
        self._notes.setdefault(value, []).append(text)

    def get(self, value: Value | None) -> Draft | None:
        """The draft of a tensor, whether it is on or not."""
        return self._of_value.get(value) if value is not None else None

    def items(self) -> Iterator[tuple[Value, Draft]]:
        """All tensors with their drafts, in the order in which they were added."""
        return iter(self._of_value.items())

    def holders(self, draft: Draft) -> list[Value]:
        """The tensors that share a draft."""
        return list(self._holders.get(draft, ()))

    def replace(self, old: Draft, new: Draft) -> None:
        """Ties: all tensors that hold ``old`` hold ``new`` from now on."""
        for value in self.holders(old):
            self.add(value, new)

    def source(self, value: Value | None) -> tuple[Value, Draft] | None:
        """Where the grid of a tensor comes from, and that grid, called its effective quantizer.

        The tensor's own if that is on, else that of what it was made from by ops that preserve the grid or
        cast between floats.
        """
        current = value
        while current is not None:
            draft = self._of_value.get(current)
            if draft is not None and draft.enabled:
                return current, draft
            producer = self.nodes.producer(current)
            if producer is None or not hands_on(producer):
                return None
            current = producer.input(0)
        return None

    def effective(self, value: Value | None) -> Draft | None:
        """The grid in which a tensor arrives; see :meth:`source`."""
        found = self.source(value)
        return found[1] if found is not None else None


def hands_on(node: Node) -> bool:
    """Whether the result has the grid of input 0: the values are kept, or cast between floats."""
    if node.is_grid_preserving:
        return True
    types = [value.type.elem_type for value in (*node.inputs, *node.outputs) if value is not None]
    return node.is_type("Cast") and all(elem_type in FLOAT_TYPES for elem_type in types)


def is_quantizable(value: Value) -> bool:
    """Whether a tensor can have a grid: float32 only, as integers never have one."""
    return value.type.elem_type == TensorProto.FLOAT
