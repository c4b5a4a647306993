"""Ops that compute, in fewer dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from qc.ir.graph import Op, Value

from ...framework.target import Target
from .builder import Builder, Lengths, Writer, lengths_of
from .elementwise import leaky_relu, prelu


def has_more(target: Target, op: Op) -> bool:
    """Whether an op has more dimensions than a target has, or runs it in."""
    most = target.models.most_dimensions
    return bool(most) and (rank_of(op) > most or _rank(op.inputs[:1]) > most_dimensions(target, op))


def most_dimensions(target: Target, op: Op) -> int:
    """Of the data of an op; the table is of products by one matrix, and others are run in more."""
    if op.is_type("MatMul") and _rank(op.inputs[1:]) != 2:
        return target.models.most_dimensions
    return target.dimensions_of(op.op_type, op.domain)


def rank_of(op: Op) -> int:
    """The most dimensions of the data of an op and of what it makes."""
    return _rank((*op.inputs[:1], *op.outputs))


def _rank(values: Sequence[Value | None]) -> int:
    """The most dimensions that are known."""
    return max((len(value.type.shape or ()) for value in values if value is not None), default=0)


def too_many(target: Target, op: Op) -> int:
    """How many dimensions of an op that has more are too many: those of its data, or of all that it has."""
    of_data = _rank(op.inputs[:1])
    return of_data if of_data > most_dimensions(target, op) else rank_of(op)


def of_each_number(op: Op, rank: int) -> Writer | None:
    """An op that computes each number of its first input by itself, the others being numbers for all."""
    return _in_rows(op, rank)


def along_rows(op: Op, rank: int) -> Writer | None:
    """An op along the last axis alone, whose other inputs are flat, or one number."""
    data, *others = op.inputs
    lengths = lengths_of(data)
    if lengths is None or _axis(op) not in (-1, len(lengths) - 1):
        return None
    shapes = [other.type.shape for other in others if other is not None]
    if any(shape is None or len(shape) > 1 for shape in shapes):
        return None
    return _in_rows(op, rank)


def softmax(op: Op, rank: int) -> Writer | None:
    """A Softmax along rows, or along an axis between two others, which stand for all around it."""
    data = op.inputs[0]
    lengths = lengths_of(data)
    if data is None or lengths is None or _axis(op) in (-1, len(lengths) - 1):
        return along_rows(op, rank)
    if op.graph.model.opset < _SOFTMAX_ALONG_AN_AXIS or rank < 3:
        return None
    axis = _axis(op) % len(lengths)
    shape = prod(lengths[:axis]), lengths[axis], prod(lengths[axis + 1 :])

    def write(build: Builder) -> list[Value | None]:
        made = build.op(op.op_type, build.reshape(data, shape), shape=shape, axis=1)
        return [build.reshape(made, lengths)]

    return write


def _axis(op: Op) -> int:
    """The axis of a normalization; that of a softmax of old opsets is the second one if none is said."""
    older = op.is_type("LogSoftmax", "Softmax") and op.graph.model.opset < _SOFTMAX_ALONG_AN_AXIS
    return int(op.attribute("axis", 1 if older else -1))


def product(op: Op, rank: int) -> Writer | None:
    """A MatMul by one matrix, which all rows of all others meet."""
    (data, matrix), wanted = op.inputs, lengths_of(op.outputs[0])
    lengths = lengths_of(data)
    if data is None or matrix is None or lengths is None or wanted is None:
        return None
    if matrix.type.rank != 2:
        return None

    def write(build: Builder) -> list[Value | None]:
        rows = build.reshape(data, _shorter(lengths, rank))
        return [build.reshape(build.op("MatMul", rows, matrix, shape=_shorter(wanted, rank)), wanted)]

    return write


def max_pool(op: Op, rank: int) -> Writer | None:
    """A MaxPool along three axes: one along the last two, and one along the first behind it."""
    data, wanted = op.inputs[0], lengths_of(op.outputs[0])
    lengths = lengths_of(data)
    if data is None or lengths is None or wanted is None or (len(lengths), rank) != (5, 4):
        return None
    if op.attribute("ceil_mode", 0) and _ends_in_padding(op, lengths, wanted):
        return None
    samples, channels, depth = lengths[:3]

    def write(build: Builder) -> list[Value | None]:
        made = build.reshape(data, (samples, channels * depth, *lengths[3:]))
        shape = (samples, channels * depth, *wanted[3:])
        made = build.op("MaxPool", made, shape=shape, **_window(op, 1, 2))
        made = build.reshape(made, (samples, channels, depth, prod(wanted[3:])))
        shape = (*wanted[:3], prod(wanted[3:]))
        made = build.op("MaxPool", made, shape=shape, **_window(op, 0, None))
        return [build.reshape(made, wanted)]

    return write


def over_positions(op: Op, rank: int) -> Writer | None:
    """An op over all positions of each channel, wherever they are."""
    data, *others = op.inputs
    lengths, wanted = lengths_of(data), lengths_of(op.outputs[0])
    if data is None or lengths is None or wanted is None:
        return None

    def write(build: Builder) -> list[Value | None]:
        rows = build.reshape(data, _pictures(lengths, rank))
        made = build.op(op.op_type, rows, *others, shape=_pictures(wanted, rank), **_attributes(op))
        return [build.reshape(made, wanted)]

    return write


def _in_rows(op: Op, rank: int) -> Writer | None:
    data, *others = op.inputs
    lengths = lengths_of(data)
    if data is None or lengths is None:
        return None

    def write(build: Builder) -> list[Value | None]:
        shape = _shorter(lengths, rank)
        made = build.op(op.op_type, build.reshape(data, shape), *others, shape=shape, **_attributes(op))
        return [build.reshape(made, lengths)]

    return write


def _shorter(lengths: Lengths, rank: int) -> Lengths:
    """No more than ``rank`` dimensions: those that are too many become one with the first behind them."""
    many = len(lengths) - rank
    return (prod(lengths[: many + 1]), *lengths[many + 1 :]) if many > 0 else lengths


def _pictures(lengths: Lengths, rank: int) -> Lengths:
    """No more than ``rank`` dimensions: the last ones, of positions, become one."""
    return (*lengths[: rank - 1], prod(lengths[rank - 1 :]))


def _ends_in_padding(op: Op, lengths: Lengths, wanted: Lengths) -> bool:
    """Whether a last window begins behind the data, which runtimes leave out and shape inference counts."""
    count = len(lengths) - 2
    strides, pads = op.attribute("strides", [1] * count), op.attribute("pads", [0] * 2 * count)
    places = zip(lengths[2:], wanted[2:], strides, pads[:count], strict=True)
    return any((windows - 1) * stride >= length + pad for length, windows, stride, pad in places)


def _attributes(op: Op) -> dict[str, Any]:
    """Those of an op, along the last axis whatever the number of dimensions."""
    given = {name: op.attribute(name) for name in op.attributes}
    return given | ({"axis": -1} if "axis" in given else {})


def _window(op: Op, *axes: int | None) -> dict[str, Any]:
    """The attributes of a pool of three axes along some of them; along None it is 1 long."""
    made = _attributes(op)
    for name in op.attributes:
        if name in ("kernel_shape", "strides", "dilations"):
            made[name] = [1 if axis is None else made[name][axis] for axis in axes]
        elif name == "pads":
            made[name] = [0 if axis is None else made[name][axis + end] for end in (0, 3) for axis in axes]
    return made


_SOFTMAX_ALONG_AN_AXIS = 13  # the first opset whose softmax is not one of all dimensions from an axis on
_EACH_NUMBER = (
    *("Abs", "Ceil", "Clip", "Cos", "Elu", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish"),
    *("Log", "Neg", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Tanh"),
)
WRITERS: Mapping[str, Callable[[Op, int], Writer | None]] = {
    **dict.fromkeys(_EACH_NUMBER, of_each_number),
    **dict.fromkeys(("LayerNormalization", "LpNormalization"), along_rows),
    **dict.fromkeys(("LogSoftmax", "Softmax"), softmax),
    "LeakyRelu": lambda op, rank: leaky_relu(op),
    "MatMul": product,
    "MaxPool": max_pool,
    "PRelu": lambda op, rank: prelu(op),
    **dict.fromkeys(("GlobalMaxPool", "InstanceNormalization"), over_positions),
}
