"""How much an op has to do, in the quantities that a target has costs for."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from qc.ir.graph import Op, Value
from qc.ir.value_type import KnownShape

from ...framework.target_costs import Amounts

ShapeOf = Callable[[Value | None], KnownShape | None]

_MEASURED = ("Add", "Mul", "Sigmoid", "LeakyRelu")  # elementwise ops that have costs
# In float these keep the layout of the convolutions around them; of other elementwise ops none is known.
BLOCKED = (
    *("Add", "Clip", "Concat", "Gelu", "HardSigmoid", "LeakyRelu", "Mul", "Relu", "Resize"),
    *("Sigmoid", "Tanh"),
)
ELEMENTWISE = (
    *BLOCKED,
    *("Abs", "Div", "Elu", "Erf", "Exp", "Max", "Neg", "Pow", "PRelu", "Softplus", "Sqrt", "Sub"),
)


class Work(NamedTuple):
    """What an op does.

    Attributes:
        kind: the kind of kernel that costs are listed by: an op type, or one of convolution
            (``DepthwiseConv``, ``GroupedConv``, and with ``Narrow`` in front where the channels of a group
            do not fill vectors, with ``Flat`` where there is one spatial axis and ``Volume`` where there are
            three or more, which have no blocked layouts).
            A ``LoneMaxPool`` is not behind a convolution. A ``Swish`` is the Mul of a tensor by its own
            Sigmoid, of which runtimes make one op in float. A ``HardSwish`` is that of the result of a
            convolution by its HardSigmoid, which becomes part of the convolution in float.
        amounts: by quantity.
    """

    kind: str
    amounts: Amounts


def work_of(op: Op, shape_of: ShapeOf, lanes: int) -> Work | None:
    """What an op does; None if it is of no kind that has costs, or depends on a shape that is not known."""
    read = [shape_of(value) for value in op.inputs]
    made = shape_of(op.outputs[0])
    if made is None or not read or read[0] is None or op.domain:
        return None
    if op.is_type("Conv"):
        kernel = read[1] if len(read) > 1 else None
        return _convolution(op, read[0], kernel, made, lanes) if kernel is not None else None
    if op.is_type("MatMul", "Gemm"):
        return _product(op, read[0], made)
    if op.is_type("AveragePool", "MaxPool"):
        lone = op.is_type("MaxPool") and not _follows_convolution(op)
        taps = prod(op.attribute("kernel_shape", [1]))
        return _work(f"Lone{op.op_type}" if lone else op.op_type, product=prod(made) * taps)
    if op.is_type("GlobalAveragePool"):
        return _work(op.op_type, read=prod(read[0]))
    if op.is_type("Concat"):
        return _work(op.op_type, made=prod(made), single=_taken_singly(op, read))
    if op.is_type(*_MEASURED):
        return _work(_gated(op) or op.op_type, made=prod(made))
    return None


def _gated(op: Op) -> str:
    """The kind of a Mul of a tensor by its own (Hard)Sigmoid, which nothing else reads; else empty."""
    factors = op.inputs if op.is_type("Mul") else []
    for factor, other in zip(factors, reversed(factors), strict=True):
        gate = factor.producer if factor is not None else None
        if factor is None or gate is None or len(factor.uses) > 1:
            continue
        if other is not None and gate.inputs[0] is other:
            source = other.producer
            if gate.is_type("Sigmoid"):
                return "Swish"
            if gate.is_type("HardSigmoid") and source is not None and source.is_type("Conv"):
                return "HardSwish"
    return ""


def _follows_convolution(op: Op) -> bool:
    """Whether the data of an op comes from a convolution, in whose layout integers stay from op to op."""
    while op.is_type(*ELEMENTWISE, "MaxPool"):
        source = op.inputs[0]
        producer = source.producer if source is not None else None
        if producer is None:
            return False
        op = producer
    return op.is_type("Conv")


def _work(kind: str, **amounts: float) -> Work:
    return Work(kind, {"op": 1, **amounts})


def _product(op: Op, data: KnownShape, made: KnownShape) -> Work | None:
    if not data or not made:
        return None
    length = data[0 if op.attribute("transA", 0) and op.is_type("Gemm") else -1]
    columns = made[-1]
    return _work(
        op.op_type,
        product=prod(made) * length,
        weight=length * columns,
        read=prod(data),
        made=prod(made),
    )


def _taken_singly(op: Op, pieces: list[KnownShape | None]) -> int:
    """How many numbers come from pieces that have a single one between two of other pieces."""
    known = [piece for piece in pieces if piece]
    axis = op.attribute("axis", 0)
    return sum(prod(piece) for piece in known if prod(piece[axis % len(piece) :]) == 1)


def _convolution(op: Op, data: KnownShape, kernel: KnownShape, made: KnownShape, lanes: int) -> Work | None:
    if len(data) < 3 or len(kernel) != len(data) or not kernel[1]:
        return None
    places, taps = made[0] * prod(made[2:]), prod(kernel[2:])
    is_dilated = op.attribute("dilations", [1])[-1] > 1
    inputs, outputs, each = data[1], made[1], kernel[1]
    groups = max(inputs // each, 1)
    kind = "Conv" if groups == 1 else "DepthwiseConv" if each == 1 and inputs == outputs else "GroupedConv"
    wide = each if each < lanes else _up(each, lanes)
    # Groups have the layout of blocks where they fill them, and one convolution where its channels fill one.
    is_narrow = each < lanes if kind == "Conv" else any(width % lanes for width in (each, outputs // groups))
    narrow = "Narrow" if is_narrow and kind != "DepthwiseConv" else ""
    of_axes = {3: f"Flat{kind}", 4: f"{narrow}{kind}"}
    return _work(
        of_axes.get(len(data), f"Volume{kind}"),
        product=places * taps * each * outputs,
        padded=places * taps * wide * _up(outputs, lanes),
        ragged=places * taps * each * outputs if outputs % lanes else 0,
        tail=places * taps * each * (outputs % (lanes // 2)),
        patch=places * taps * inputs,
        group=places * groups,
        window=places * taps,
        row=places * (taps if is_dilated else prod(kernel[2:-1])),
        channel=outputs,
        read=prod(data),
        made=prod(made),
    )


def _up(length: int, step: int) -> int:
    return -(-length // step) * step
