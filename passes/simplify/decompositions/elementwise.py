"""Functions of each number by itself, by the formulas of the ONNX operator specification."""

from __future__ import annotations

from functools import reduce
from math import prod

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.ir.value_type import Shape
from qc.patterns.attributes import attribute_of

from .builder import Builder, Writer, lengths_of, result_shape
from .factors import columns_by_rows

_ROOTS = {0.5: "Sqrt", -1.0: "Reciprocal"}


def prelu(op: Op) -> Writer | None:
    """The larger of the data and its product with slopes, none of which is above 1."""
    (data, slope), shape = op.inputs, result_shape(op)
    slopes = fixed_constant(slope)
    if data is None or slopes is None or not np.all(slopes.numpy() <= 1):
        return None
    return lambda build: [build.op("Max", data, build.op("Mul", data, slope, shape=shape), shape=shape)]


def leaky_relu(op: Op) -> Writer | None:
    """The larger of the data and its product with a slope that is not above 1."""
    data, slope, shape = _data(op), op.attribute("alpha", 0.01), result_shape(op)
    if slope > 1:
        return None

    def write(build: Builder) -> list[Value | None]:
        factor = build.constant(np.array(slope, np.float32), "slope")
        return [build.op("Max", data, build.op("Mul", data, factor, shape=shape), shape=shape)]

    return write


def clip(op: Op) -> Writer | None:
    """The larger one of data and a limit, and the smaller one of that and the other, if one is data."""
    limits = zip(("Max", "Min"), op.inputs[1:], (-np.inf, np.inf), strict=False)
    given = {
        name: limit for name, limit, end in limits if limit is not None and not _is_beyond(op, limit, end)
    }
    if all(fixed_constant(limit) is not None for limit in given.values()):
        return None

    def write(build: Builder) -> list[Value | None]:
        made = _data(op)
        for name, limit in given.items():
            made = build.op(name, made, limit, shape=result_shape(op))
        return [made]

    return write


def _is_beyond(op: Op, limit: Value, end: float) -> bool:
    """Whether a limit is a constant beyond which there are no numbers on the side of ``end``."""
    constant = fixed_constant(limit)
    if constant is None or constant.size != 1:
        return False
    return bool(constant.numpy().item() * np.sign(end) >= np.finfo(np.float32).max)


def mish(op: Op) -> Writer:
    """``x * tanh(softplus(x))``."""
    data, shape = _data(op), result_shape(op)

    def write(build: Builder) -> list[Value | None]:
        factor = build.op("Tanh", build.op("Softplus", data, shape=shape), shape=shape)
        return [build.op("Mul", data, factor, shape=shape)]

    return write


def softsign(op: Op) -> Writer:
    """``x / (1 + |x|)``."""
    data, shape = _data(op), result_shape(op)

    def write(build: Builder) -> list[Value | None]:
        one = build.constant(np.ones((), np.float32), "one")
        size = build.op("Add", build.op("Abs", data, shape=shape), one, shape=shape)
        return [build.op("Div", data, size, shape=shape)]

    return write


def selu(op: Op) -> Writer:
    """``gamma * elu(x)``."""
    data, shape = _data(op), result_shape(op)
    alpha = op.attribute("alpha", 1.67326319217681884765625)
    gamma = np.array(op.attribute("gamma", 1.05070102214813232421875), np.float32)

    def write(build: Builder) -> list[Value | None]:
        elu = build.op("Elu", data, shape=shape, alpha=alpha)
        return [build.op("Mul", elu, build.constant(gamma, "gamma"), shape=shape)]

    return write


def celu(op: Op) -> Writer | None:
    """An Elu of the data in units of ``alpha``, times that; only of what is above 0 are there units."""
    data, shape, alpha = _data(op), result_shape(op), op.attribute("alpha", 1.0)
    if not alpha > 0:
        return None

    def write(build: Builder) -> list[Value | None]:
        if alpha == 1:
            return [build.op("Elu", data, shape=shape)]
        unit, units = (build.constant(np.array(one, np.float32), "unit") for one in (alpha, 1 / alpha))
        elu = build.op("Elu", build.op("Mul", data, units, shape=shape), shape=shape)
        return [build.op("Mul", elu, unit, shape=shape)]

    return write


def power(op: Op) -> Writer | None:
    """A product of the data with itself, a root or a reciprocal, by the exponent."""
    data, shape = _data(op), result_shape(op)
    given = op.inputs[1]
    exponent = fixed_constant(given)
    if exponent is None or exponent.numpy().size != 1 or shape != data.type.shape:
        return None
    number = float(exponent.numpy().item())
    if number in _ROOTS:
        return lambda build: [build.op(_ROOTS[number], data, shape=shape)]
    if number not in (2, 3):
        return None
    return lambda build: [reduce(lambda x, y: build.op("Mul", x, y, shape=shape), [data] * int(number))]


def euclidean(op: Op) -> Writer | None:
    """The root of the mean of squares, by that of their number."""
    read, shape = op.inputs, result_shape(op)
    data, axes = _data(op), attribute_of(op, "axes", read)
    lengths = data.type.shape
    if not isinstance(axes, tuple) or not axes or lengths is None:
        return None
    count = [length for axis in axes if isinstance(length := lengths[axis], int)]
    if len(count) < len(axes):
        return None

    def write(build: Builder) -> list[Value | None]:
        squares = build.op("Mul", data, data, shape=lengths)
        given = {name: op.attribute(name) for name in ("axes", "keepdims")}
        mean = build.op("ReduceMean", squares, *read[1:], shape=shape, **given)
        root = build.constant(np.array(prod(count) ** 0.5, np.float32), "root")
        return [build.op("Mul", build.op("Sqrt", mean, shape=shape), root, shape=shape)]

    return write


def total(op: Op) -> Writer | None:
    """A chain of additions of data of one shape."""
    data, shape = [value for value in op.inputs if value is not None], result_shape(op)
    if len(data) < 2 or any(value.type.shape != shape for value in data):
        return None
    return lambda build: [reduce(lambda left, right: build.op("Add", left, right, shape=shape), data)]


def mean(op: Op) -> Writer | None:
    """The total by the number of inputs."""
    shape, add = result_shape(op), total(op)
    if add is None:
        return None

    def write(build: Builder) -> list[Value | None]:
        share = build.constant(np.array(1 / op.num_inputs, np.float32), "share")
        return [build.op("Mul", *add(build), share, shape=shape)]

    return write


def scaler(op: Op) -> Writer | None:
    """``(x - offset) * scale`` of each feature, by numbers of their own or by one for all."""
    data = _data(op)
    numbers = [np.array(op.attribute(name, ()), np.float32) for name in ("offset", "scale")]
    shape = data.type.shape
    features = shape[-1] if shape and len(shape) <= 2 else None
    if any(each.size not in (1, features) for each in numbers):
        return None

    def write(build: Builder) -> list[Value | None]:
        made = data
        for name, number, same in zip(("Sub", "Mul"), numbers, (0, 1), strict=True):
            if not np.all(number == same):
                made = build.op(name, made, build.constant(number, name), shape=shape)
        return [made if made is not data else build.op("Identity", data, shape=shape)]

    return write


def product(op: Op) -> Writer | None:
    """Each number of columns by each of rows, where a product of matrices adds nothing up; else turned."""
    left, right = op.inputs
    shapes = [value.type.shape or () for value in (left, right) if value is not None]
    if all(len(shape) >= 2 for shape in shapes) and shapes[0][-1] == 1 == shapes[1][-2]:
        wanted = lengths_of(op.outputs[0])
        outer = columns_by_rows(left, right, wanted) if wanted is not None else None
        return outer or (lambda build: [build.op("Mul", left, right, shape=result_shape(op))])
    return turned_product(op)


def turned_product(op: Op) -> Writer | None:
    """A constant in front of data is multiplied behind it, all three matrices turned: weights are there."""
    left, right = op.inputs
    factor, made = fixed_constant(left), result_shape(op)
    shape = right.type.shape if right is not None else None
    if factor is None or len(factor.shape) < 2 or shape is None or len(shape) < 2:
        return None
    if fixed_constant(right) is not None or made is None or len(made) != len(shape):
        return None

    def write(build: Builder) -> list[Value | None]:
        def turned(data: Value | None, shape: Shape) -> Value:
            order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            return build.op("Transpose", data, shape=_turned(shape), perm=order)

        weight = build.constant(np.ascontiguousarray(factor.numpy().swapaxes(-1, -2)), "turned")
        columns = build.op("MatMul", turned(right, shape), weight, shape=_turned(made))
        return [turned(columns, _turned(made))]

    return write


def _turned(shape: Shape) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2])


def _data(op: Op) -> Value:
    data = op.inputs[0]
    assert data is not None
    return data
