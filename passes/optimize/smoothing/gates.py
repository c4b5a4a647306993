"""Functions whose result multiplies their own argument, such as the Sigmoid of SiLU: ``x * g(x)``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from qc.ir.graph import Op, Use, Value
from qc.ir.quant.spec import QuantSpec
from qc.ir.quant_table import QuantTable, Site
from qc.ir.rewriter import Rewriter

# What g may be made of; GELU is left out, as runtimes have a kernel for it as it is.
_FUNCTIONS = frozenset({"Clip", "HardSigmoid", "Sigmoid", "Softplus", "Tanh"})
_WITH_A_CONSTANT = frozenset({"Add", "Div", "Mul", "Sub"})
# The functions whose ends are known, which is where all is in integers.
_END_OF = {"HardSigmoid": (0.0, 1.0), "Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0)}
_PICTURE = 4  # dimensions, of which the second one are channels
_RESTORED = "restores in float what a function reads of a smoothed tensor"
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
        weight: the format of the weight of a convolution that restores what the function reads; None where a
            product in float does.
    """

    use: Use
    axis: int
    result: Value
    weight: QuantSpec | None = None

    @property
    def value(self) -> Value:
        """The tensor."""
        value = self.use.op.inputs[self._port]
        assert value is not None
        return value

    def restore(self, rewriter: Rewriter, scale: np.ndarray) -> None:
        """Lets the function read the tensor times one number for each channel; in an action.

        Args:
            scale: in the dtype of the tensor, shape ``(channels,)``.
        """
        op, value = self.use.op, self.value
        product = self.result.producer
        regions = {one.region: None for one in (op, product) if one is not None}
        for region in filter(None, regions):  # SiLU or HardSwish, which this no longer is
            rewriter.model.remove_region(region)
        numbers = scale.reshape(-1, *(1,) * (-1 - self.axis))
        numbers = numbers if self.weight is None else numbers[:, np.newaxis]
        constant = rewriter.add_constant(op.graph, numbers, f"{value.name}_scale")
        restored = rewriter.add_value(op.graph, f"{value.name}_restored", value.type)
        if self.weight is None:
            rewriter.add_op(op.graph, "Mul", [value, constant], [restored])
            for made in (constant, restored):
                rewriter.model.quant.skip(made, _RESTORED)
        else:  # its weight has a scale for each channel, which the constant of a product has not
            rewriter.add_op(op.graph, "Conv", [value, constant], [restored], {"group": scale.size})
            rewriter.model.quant.place(Site(constant), self.weight, "the weight of a convolution")
        if op.is_type("HardSwish"):
            function = rewriter.add_value(op.graph, f"{value.name}_gate", value.type)
            first = rewriter.add_op(op.graph, "HardSigmoid", [restored], [function], _HARD_SIGMOID)
            rewriter.set_type_of_op(op, "Mul")
            rewriter.set_input(op, 1, function)
        else:
            first = op
            rewriter.set_input(op, self._port, restored)
        if self.weight is not None:
            _give_grids(rewriter.model.quant, value, restored, first)

    @property
    def _port(self) -> int:
        assert isinstance(self.use.port, int), "no op of a function has a body"
        return self.use.port


def _give_grids(quant: QuantTable, value: Value, restored: Value, op: Op) -> None:
    """Puts quantizers on what a function reads and gives, of the format that its tensor has.

    Their ranges are those of the function, and not what the data shows: where it is 1, a large number is
    multiplied by it, and what is left out of a range because it is rare would count.
    """
    (held, *_) = quant.quantizers_on(value)
    low, high = _END_OF[op.op_type]
    end = _told_apart(op, held.spec.format.bits)
    reason = f"a function of '{value.name}' by itself"
    quant.place(Site(restored), replace(held.spec, fixed_range=(-end, end)), reason)
    for result in op.outputs[:1]:
        if result is not None and not any(quant.quantizers_on(result)):
            quant.place(Site(result), replace(held.spec, fixed_range=(low, high)), reason)


def _told_apart(op: Op, bits: int) -> float:
    """The distance to zero beyond which a function gives its ends, but for half a step of so many bits."""
    if op.is_type("Sigmoid"):
        return math.log(2 ** (bits + 1) - 1)
    if op.is_type("Tanh"):
        return math.atanh(1 - 2.0**-bits)
    alpha, beta = (float(op.attribute(*of)) for of in (("alpha", 0.2), ("beta", 0.5)))
    return max(beta, 1 - beta) / alpha


def is_gating(op: Op) -> bool:
    """Whether every gate has such an op: one of a function of more than constants."""
    return op.is_type("HardSwish", *_FUNCTIONS)


def gate_at(use: Use, value: Value, axis: int, weight: QuantSpec | None = None) -> Gate | None:
    """The function that begins with a use of a tensor and ends in a product with it; None if there is none.

    Args:
        axis: of the channels, counted from the end.
        weight: the format of the weight of a convolution, where what the function reads is restored by one.
            That needs a function of one op, and pictures.
    """
    op = use.op
    result = op.outputs[0]
    found = result if op.is_type("HardSwish") else _product(op, value, value, has_function=False)
    if found is None or (weight is not None and not _is_of_pictures(op, found, value, axis)):
        return None
    return Gate(use, axis, found, weight)


def _is_of_pictures(op: Op, product: Value, value: Value, axis: int) -> bool:
    """Whether a function is one op whose ends are known, and the tensor pictures."""
    multiplies = product.producer
    assert multiplies is not None
    is_one = op.is_type("HardSwish") or (op.op_type in _END_OF and op.outputs[0] in multiplies.inputs)
    return is_one and len(value.type.shape or ()) == _PICTURE == 1 - axis


def _product(op: Op, read: Value, value: Value, has_function: bool) -> Value | None:
    """The product of a tensor with what an op computes of it, there or behind; None if there is none.

    What else reads the function does not matter: it stays what it was.

    Args:
        read: what the op reads, the tensor or what was made of it.
        has_function: whether there was more than constants on the way.
    """
    result = op.outputs[0]
    if result is None or not op.is_type(*_FUNCTIONS, *_WITH_A_CONSTANT):
        return None
    if has_function and op.is_type("Mul") and value in op.inputs:
        return result
    if not _is_of_one(op, read):
        return None
    has_function = has_function or op.is_type(*_FUNCTIONS)
    behind = (_product(use.op, result, value, has_function) for use in result.uses)
    return next((product for product in behind if product is not None), None)


def _is_of_one(op: Op, value: Value) -> bool:
    """Whether an op computes from one tensor and constants."""
    inputs = [one for one in op.inputs if one is not None]
    return inputs.count(value) == 1 and sum(one.const is None for one in inputs) == 1
