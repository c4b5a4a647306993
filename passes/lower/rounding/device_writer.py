"""What a device computes otherwise, written in front of the op of a simulation that rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from qc.ir.facts.scopes import Captures
from qc.ir.graph import Graph, Op, Value
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import PerChannel, PerTensor, Quantizer
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType

from .rewire import DOMAIN

UINT8 = IntFormat(8, False)
UINT16 = IntFormat(16, False)

# Scale, zero point and limits of a quantizer as ops of a graph can read them; None if there are none.
Parameters = Callable[[Graph, Quantizer], tuple[Value, ...] | None]


class Rounded(NamedTuple):
    """A tensor that the simulation rounds, by which op, and to which grid."""

    op: Op
    value: Value
    quantizer: Quantizer


class Writer:
    """Writes ops in front of one that rounds."""

    def __init__(
        self, rewriter: Rewriter, captures: Captures, rounded: Rounded, parameters: Parameters
    ) -> None:
        self.rewriter = rewriter
        self.rounded = rounded
        self._graph = rounded.value.graph
        self._captures = captures
        self._parameters = parameters
        self.grid = self._required(rounded.quantizer)

    def parameters(self, quantizer: Quantizer | None) -> tuple[Value, ...] | None:
        """Scale and zero point of a grid of uint8, and limits if it is one of data; None of another."""
        encoding = quantizer.encoding if quantizer is not None else None
        if quantizer is None or encoding is None or quantizer.spec.format != UINT8 or encoding.scale.size > 1:
            return None
        found = self._parameters(self._graph, quantizer)
        return found or (self.constant(encoding.scale), self.constant(encoding.zero_point))

    def scale(self, weight: Quantizer | None) -> Value | None:
        """The scale of a weight; None if it has none, or one of a kind that is not known."""
        if weight is None or weight.encoding is None or not is_weight(weight):
            return None
        settable = self._parameters(self._graph, weight)
        return (
            settable[0] if settable is not None else self.constant(weight.encoding.scale.astype(np.float32))
        )

    def constant(self, array: np.ndarray) -> Value:
        """A constant of the main graph."""
        name = f"{self.rounded.value.name}_step"
        made = self.rewriter.add_constant(self.rewriter.model.graph, array, name)
        return self._captures.into(self._graph, made)

    def write(
        self,
        reader: Op,
        op_type: str,
        inputs: tuple[Value, ...],
        attributes: dict[str, object] | None = None,
        port: int = 0,
    ) -> None:
        """Lets an input of ``reader`` be what a new op makes."""
        value = reader.inputs[port]
        assert value is not None
        result = self.made(op_type, inputs, value.type, attributes, name=value.name)
        self.rewriter.set_input(reader, port, result)

    def made(
        self,
        op_type: str,
        inputs: tuple[Value, ...],
        type: ValueType,
        attributes: dict[str, object] | None = None,
        domain: str = DOMAIN,
        name: str = "",
    ) -> Value:
        """What a new op makes, called after the tensor that is rounded if no other name is given."""
        hint = f"{name or self.rounded.value.name}_on_device"
        result = self.rewriter.add_value(self._graph, hint, type)
        self.rewriter.add_op(self._graph, op_type, inputs, [result], attributes, domain)
        return result

    def _required(self, quantizer: Quantizer) -> tuple[Value, ...]:
        found = self._parameters(self._graph, quantizer)
        assert found is not None
        return found


def is_uint8(quantizer: Quantizer) -> bool:
    return _is_whole(quantizer, UINT8)


def is_uint16(quantizer: Quantizer) -> bool:
    return _is_whole(quantizer, UINT16)


def _is_whole(quantizer: Quantizer, format: IntFormat) -> bool:
    """Whether a quantizer has one grid of codes of a format."""
    spec = quantizer.spec
    return (
        spec.format == format and isinstance(spec.granularity, PerTensor) and quantizer.encoding is not None
    )


def is_one_grid(a: Quantizer, b: Quantizer) -> bool:
    """Whether both stand for the same numbers by the same codes."""
    if a.encoding is None or b.encoding is None or a.spec.format != b.spec.format:
        return False
    return np.array_equal(a.encoding.scale, b.encoding.scale) and np.array_equal(
        a.encoding.zero_point, b.encoding.zero_point
    )


def is_weight(quantizer: Quantizer) -> bool:
    format, granularity = quantizer.spec.format, quantizer.spec.granularity
    whole = isinstance(granularity, PerTensor | PerChannel)
    return whole and isinstance(format, IntFormat) and format.signed and format.bits <= 8
