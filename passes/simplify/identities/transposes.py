"""Transposes that others behind some elementwise ops take back, as tf2onnx leaves around a Pow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.ir.rewriter import Rewriter

# Each number by itself: of one tensor, and of a tensor and a constant that has its number for each of them.
_OF_ONE = (
    *("Abs", "Cast", "Ceil", "Clip", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu"),
    *("Log", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt"),
    "Tanh",
)
_OF_TWO = ("Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub")


@dataclass(frozen=True)
class Detour:
    """What is computed between two Transposes, of which the second takes the first one back.

    Attributes:
        first: the first one.
        last: the second one.
        ops: those between, the last one first, each with the port of its data.
        back: the order of axes of the second one.
    """

    first: Op
    last: Op
    ops: tuple[tuple[Op, int], ...]
    back: tuple[int, ...]

    def leave_out(self, rewriter: Rewriter) -> None:
        """Computes it in the order of axes that the data has; in an action."""
        graph = self.last.graph
        made, turned = self.first.inputs[0], self.first.outputs[0]
        assert made is not None and turned is not None
        for op, port in reversed(self.ops):
            rewriter.set_input(op, port, made)
            for other, value in enumerate(op.inputs):
                moved = self._moved(value) if other != port else None
                if value is not None and moved is not None:
                    rewriter.set_input(op, other, rewriter.add_constant(graph, moved, value.name))
            (made,) = (value for value in op.outputs if value is not None)
            shape = made.type.shape
            if shape is not None:
                rewriter.set_type(made, made.type._replace(shape=tuple(shape[axis] for axis in self.back)))
        (result,) = (value for value in self.last.outputs if value is not None)
        rewriter.replace_uses(result, made)
        rewriter.erase_op(self.last)
        if not turned.is_read:  # reading what belongs together, it would keep that from being found
            rewriter.erase_op(self.first)

    def _moved(self, value: Value | None) -> np.ndarray | None:
        """A constant in the other order of axes; None if it is one number, which has none."""
        data = fixed_constant(value)
        if data is None or data.size == 1:
            return None
        array = data.numpy()
        return np.ascontiguousarray(
            array.reshape((1,) * (len(self.back) - array.ndim) + array.shape).transpose(self.back)
        )


def detour_before(last: Op) -> Detour | None:
    """What ends in a Transpose that takes another one back; None if that does not."""
    value, result = last.inputs[0], last.outputs[0]
    back, ops = _order(last), list[tuple[Op, int]]()
    while value is not None and back is not None and result is not None and not result.is_output:
        op = value.producer
        if op is None or value.is_output:
            return None
        if op.is_type("Transpose"):
            order = _order(op)
            if order is None or len(order) != len(back):  # a constant in between gave the data more axes
                return None
            is_inverse = [order[axis] for axis in back] == list(range(len(order)))
            return Detour(op, last, tuple(ops), back) if is_inverse else None
        port = _port_of_data(op, len(back))
        if port is None or len(value.uses) != 1:
            return None
        ops.append((op, port))
        value = op.inputs[port]
    return None


def _order(op: Op) -> tuple[int, ...] | None:
    order = op.attribute("perm", None)
    return tuple(order) if order is not None else None


def _port_of_data(op: Op, rank: int) -> int | None:
    """The port of the only input that is no constant, of an elementwise op; None if there is no such one."""
    read = op.inputs
    if op.is_type(*_OF_ONE):
        others = [fixed_constant(value) for value in read[1:] if value is not None]
        return 0 if all(data is not None for data in others) and op.num_outputs == 1 else None
    if not op.is_type(*_OF_TWO) or len(read) != 2:
        return None
    held = [fixed_constant(value) for value in read]
    ports = [port for port, data in enumerate(held) if data is None]
    fits = all(data is None or len(data.shape) <= rank for data in held)
    return ports[0] if len(ports) == 1 and fits and (ports[0] == 0 or not op.is_type("PRelu")) else None
