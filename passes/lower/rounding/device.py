"""Lets a simulation compute codes as a device does, where its arithmetic is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from qc.ir.facts.scopes import Captures
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.device_arithmetic import Arithmetic
from qc.ir.quant.spec import Quantizer
from qc.ir.rewriter import Rewriter

from .device_convolutions import kind_of_convolution
from .device_fusions import ACTIVATIONS, Fusions, has_one_number, result_of
from .device_interpolation import write_interpolation
from .device_logarithms import count_argument
from .device_pools import write_average
from .device_rows import write_normalization, write_softmax
from .device_sums import summed
from .device_writer import Parameters, Rounded, Writer, is_one_grid, is_uint8, is_uint16
from .rewire import DOMAIN

# What stands in a target's table for the tensors that come from outside.
INPUT = "input"
# The ops of qc that compute the codes of a result from those of two tensors, by what a device computes.
_PAIRS = {"sum": "RequantizeSum", "product": "RequantizeProduct", "quotient": "RequantizeQuotient"}


class DeviceArithmetic:
    """What a device does otherwise than to round what floats give.

    Made before anything is lowered, as it keeps which grid each input of each op has.

    Args:
        kinds: what the device computes how, by op type, and by :data:`INPUT`; see ``Target.arithmetic``.
    """

    def __init__(self, model: Model, kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._grids = {
            (op, port): held
            for graph in model.graph.walk()
            for op in graph.ops()
            for port, value in enumerate(op.inputs)
            if value is not None and (held := model.quant.of_use(value, op, port)) is not None
        }
        self._brought: set[Op] = set()  # movers whose data was brought to another grid
        self.unknown: Counter[str] = Counter()

    def apply(self, rewriter: Rewriter, rounded: list[Rounded], parameters: Parameters) -> None:
        """Puts in front of every op that rounds one that computes what the device does, if that is known."""
        captures, fusions = Captures(rewriter), Fusions(rewriter, rounded, self._kinds)
        self._grids = {place: fusions.repeated.get(held, held) for place, held in self._grids.items()}
        for one in fusions.rounded.values():
            if not self._compute(Writer(rewriter, captures, one, parameters), fusions):
                op = one.value.producer
                self.unknown[op.op_type if op is not None else INPUT] += 1

    def _compute(self, writer: Writer, fusions: Fusions) -> bool:
        """Writes what the device computes; whether that is known."""
        one = writer.rounded
        op = one.value.producer
        if is_uint16(one.quantizer) and op is not None and self._kinds.get(op.op_type) == "logarithm":
            count_argument(writer, op)
        if not is_uint8(one.quantizer):
            return False
        if op is None:
            known = one.value.is_input and INPUT in self._kinds
            return known and _round_in_float16(writer)
        if one.op in fusions.tables or op.domain == DOMAIN:  # codes of one grid become those of another
            return True
        # Such as the mean that a normalization gives besides.
        if result_of(op) is not one.value and self._kinds.get(op.op_type) != Arithmetic.MOVED.value:
            return False
        reader = one.op
        if op.op_type in ACTIVATIONS and (led := fusions.leader(op)) is not None:
            op, reader = led, op
        return self._compute_op(writer, op, reader)

    def _compute_op(self, writer: Writer, op: Op, reader: Op) -> bool:
        """Writes what the device computes of an op, in front of the op that rounds its result."""
        kind = self._kinds.get(op.op_type) if not op.domain else None
        if kind in ("moved", "joined", "alike"):
            return self._move(writer, op, kind)
        if kind == "softmax":
            return write_softmax(writer, op, self._grids.get((op, 0)))
        if kind == "prelu":
            return self._slope(writer, op)
        if kind in ("layer-norm", "rms-norm"):
            grids = self._grids.get((op, 0)), self._grids.get((op, 1))
            return write_normalization(writer, op, *grids, centered=kind == "layer-norm")
        if kind == "float16":
            return _round_in_float16(writer, with_zero_point=1)
        if kind == "average":
            return write_average(writer, op, self._grids.get((op, 0)))
        if kind in ("sum", "quotient") and has_one_number(op):
            return True  # a table of all codes
        if kind in _PAIRS:
            attributes = {"subtract": int(op.op_type == "Sub")} if kind == "sum" else {}
            return self._pair(writer, op, reader, _PAIRS[kind], **attributes)
        if kind == Arithmetic.MATRIX.value and op.op_type == "MatMul" and self._has_two_data(op):
            return self._pair(writer, op, reader, "RequantizeMatMul")
        if op.is_type("Pow") and not has_one_number(op):
            return False  # no table of all codes
        if kind == "exact" and op.is_type("Gelu"):
            writer.rewriter.set_attribute(op, "approximate", "none")  # the device has one kind
        return kind in ("exact", "logarithm") or (
            kind is not None and self._product(writer, op, Arithmetic(kind))
        )

    def _move(self, writer: Writer, op: Op, kind: str) -> bool:
        """Brings all that an op moves to the grid of its result before; whether it is known how."""
        one = writer.rounded
        quantizer = one.quantizer
        read = {
            port: (value, self._grids.get((op, port)))
            for port, value in enumerate(op.inputs)
            if value is not None and value.is_float and not self._is_bare_constant(op, port, value)
        }
        if kind == "joined":
            return all(held is not None and _covers(quantizer, held) for _, held in read.values())
        grids = {
            port: (value, writer.parameters(held))
            for port, (value, held) in read.items()
            if held is None or not is_one_grid(held, quantizer)
        }
        moved = [(port, value, grid[0]) for port, (value, grid) in grids.items() if grid is not None]
        if len(moved) < len(grids) or (moved and (kind == "alike" or op in self._brought)):
            return False
        if op.is_type("Resize") and op.attribute("mode", "nearest") != "nearest":
            return write_interpolation(writer, op, self._grids.get((op, 0)))
        if kind == "moved" and len(read) == 1:  # the sign that a Neg changes is that of the multiplier
            for _, _, scale in moved:
                self._multiply(writer, one.op, one.value, scale)
            return True
        self._brought |= {op} if moved else set()
        for port, value, scale in moved:
            self._multiply(writer, op, value, scale, port)
        return True

    def _multiply(self, writer: Writer, reader: Op, value: Value, scale: Value, port: int = 0) -> None:
        """Lets ``reader`` read codes that are multiplied as those are which move to another grid."""
        inputs = (value, *writer.grid, scale, writer.constant(np.ones((), np.float32)))
        writer.write(reader, "Requantize", inputs, {"arithmetic": Arithmetic.MOVED.value}, port)

    def _is_bare_constant(self, op: Op, port: int, value: Value) -> bool:
        """Whether an op reads a constant without a grid, such as what a Pad fills up with."""
        return value.original.const is not None and (op, port) not in self._grids

    def _has_two_data(self, op: Op) -> bool:
        """Whether a product has two matrices of uint8, neither of which is a constant."""
        return all(
            value is not None
            and value.original.const is None
            and len(value.type.shape or ()) > 1
            and (op, port) in self._grids
            for port, value in enumerate(op.inputs)
        )

    def _pair(self, writer: Writer, op: Op, reader: Op, op_type: str, **attributes: object) -> bool:
        """Computes a sum, a product, a quotient or a matrix product of two tensors from their codes."""
        operands: list[Value] = []
        for port, value in enumerate(op.inputs):
            grid = writer.parameters(self._grids.get((op, port)))
            if value is None or grid is None:
                return False
            operands += (value, *grid[:2])
        writer.write(reader, op_type, (*operands, *writer.grid), attributes)
        if not result_of(op).is_read:
            writer.rewriter.erase_op(op)
        return True

    def _slope(self, writer: Writer, op: Op) -> bool:
        """Computes a PRelu from the codes of what it reads."""
        (x, slope), grid = op.inputs, writer.parameters(self._grids.get((op, 0)))
        if x is None or slope is None or grid is None:
            return False
        writer.write(writer.rounded.op, "RequantizePRelu", (x, *writer.grid, grid[0], slope))
        if not result_of(op).is_read:
            writer.rewriter.erase_op(op)
        return True

    def _product(self, writer: Writer, op: Op, arithmetic: Arithmetic) -> bool:
        data, weight = (self._grids.get((op, port)) for port in (0, 1))
        grid = writer.parameters(data)
        if grid is None:
            return False
        if arithmetic is Arithmetic.MATRIX:
            step = writer.scale(weight)
            kind = kind_of_convolution(op, weight) if op.is_type("Conv") else arithmetic.value
            if kind in ("exact", ""):
                return bool(kind)
            arithmetic = Arithmetic(kind)
        else:
            found = summed(op, arithmetic)
            if found is None:
                return False
            arithmetic, step = found[0], writer.constant(found[1])
        if step is None:
            return False
        axis = 1 if op.op_type.startswith("Conv") else -1
        inputs = (writer.rounded.value, *writer.grid, grid[0], step)
        writer.write(writer.rounded.op, "Requantize", inputs, {"arithmetic": arithmetic.value, "axis": axis})
        return True


def _round_in_float16(writer: Writer, **attributes: object) -> bool:
    op, value, _ = writer.rounded
    writer.write(op, "QuantizeInFloat16", (value, *writer.grid), attributes)
    return True


def _covers(outer: Quantizer, inner: Quantizer) -> bool:
    """Whether no number of a grid is beyond another, by half a step of that or more."""
    to, grid = outer.encoding, inner.encoding
    if to is None or grid is None:
        return False
    half = np.float64(to.scale) / 2
    return bool((grid.minimum > to.minimum - half).all() and (grid.maximum < to.maximum + half).all())
