"""Functions whose result multiplies their own argument, such as the Sigmoid of SiLU: ``x * g(x)``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qc.ir.graph import Op, Use, Value
from qc.ir.rewriter import Rewriter

# What g may be made of; GELU is left out, as runtimes have a kernel for it as it is.
_FUNCTIONS = frozenset({"Clip", "HardSigmoid", "Sigmoid", "Softplus", "Tanh"})
_WITH_A_CONSTANT = frozenset({"Add", "Div", "Mul", "Sub"})
_HARD_SIGMOID = {"alpha": 1 / 6, "beta": 0.5}  # by which HardSwish multiplies, as ONNX defines it


@dataclass(frozen=True)
class Gate:
    """The use of a tensor by a function that then multiplies it.

    Where the tensor is divided by ``s``, the function needs ``s`` times what it reads, and its product with
    the tensor is divided by ``s`` too. This holds for any function of each number by itself.

    Attributes:
        use: the first op of the function, or the whole product where that is one op.
        axis: the axis of the channels of the tensor, counted from the end.
        result: the product of both.
    """

    use: Use
    axis: int
    result: Value

    @property
    def value(self) -> Value:
        """The tensor."""
        value = self.use.op.graph.op_inputs(self.use.op)[self._port]
        assert value is not None
        return value

    def restore(self, rewriter: Rewriter, scale: np.ndarray) -> None:
        """Lets the function read the tensor times one number for each channel; in an action.

        Args:
            scale: in the dtype of the tensor, shape ``(channels,)``.
        """
        op, value = self.use.op, self.value
        numbers = scale.reshape(-1, *(1,) * (-1 - self.axis))
        constant = rewriter.add_constant(op.graph, numbers, f"{value.name}_scale")
        restored = rewriter.add_value(op.graph, f"{value.name}_restored", value.type)
        rewriter.add_op(op.graph, "Mul", [value, constant], [restored])
        if op.is_type("HardSwish"):
            function = rewriter.add_value(op.graph, f"{value.name}_gate", value.type)
            rewriter.add_op(op.graph, "HardSigmoid", [restored], [function], _HARD_SIGMOID)
            rewriter.set_type_of_op(op, "Mul")
            rewriter.set_input(op, 1, function)
        else:
            rewriter.set_input(op, self._port, restored)

    @property
    def _port(self) -> int:
        assert isinstance(self.use.port, int), "no op of a function has a body"
        return self.use.port


def gate_at(use: Use, value: Value, axis: int) -> Gate | None:
    """The function that begins with a use of a tensor and ends in a product with it; None if there is none.

    Args:
        axis: of the channels, counted from the end.
    """
    result = use.op.graph.op_outputs(use.op)[0]
    found = result if use.op.is_type("HardSwish") else _product(use.op, value, value, has_function=False)
    return Gate(use, axis, found) if found is not None else None


def _product(op: Op, read: Value, value: Value, has_function: bool) -> Value | None:
    """The product of a tensor with what an op computes of it, there or behind; None if there is none.

    What else reads the function does not matter: it stays what it was.

    Args:
        read: what the op reads, the tensor or what was made of it.
        has_function: whether there was more than constants on the way.
    """
    result = op.graph.op_outputs(op)[0]
    if result is None or not op.is_type(*_FUNCTIONS, *_WITH_A_CONSTANT):
        return None
    if has_function and op.is_type("Mul") and value in op.graph.op_inputs(op):
        return result
    if not _is_of_one(op, read):
        return None
    has_function = has_function or op.is_type(*_FUNCTIONS)
    behind = (_product(use.op, result, value, has_function) for use in op.graph.uses(result))
    return next((product for product in behind if product is not None), None)


def _is_of_one(op: Op, value: Value) -> bool:
    """Whether an op computes from one tensor and constants."""
    inputs = [one for one in op.graph.op_inputs(op) if one is not None]
    return inputs.count(value) == 1 and sum(one.const is None for one in inputs) == 1
