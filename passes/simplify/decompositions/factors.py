"""Products number by number, in forms that a device computes rightly."""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Writer, lengths_of

_RESHAPED = ("Reshape", "Unsqueeze", "Squeeze", "Flatten")
_EXPAND = 8  # the first opset that has it
_LOW = 8  # rows
_IN_PLACE = ("Add", "Clip", "Div", "Identity", "LeakyRelu", "Mul", "Neg", "Relu", "Slice", "Split", "Sub")


def factors(op: Op) -> Writer | None:
    """A Mul of columns by rows as one of columns by whole tensors; one by a constant with that in front.

    Of columns by rows, where both are reshaped and one is computed, the HTP makes wrong codes. Behind an
    InstanceNormalization of some shapes its product by a constant that stands second is 0. A SiLU of a low
    picture, or in front of a normalization of rows, is computed on one of a single row.
    """
    left, right = op.inputs
    wanted = lengths_of(op.outputs[0])
    if left is None or right is None or wanted is None:
        return None
    outer = columns_by_rows(left, right, wanted)
    if outer is not None:
        return outer
    if fixed_constant(right) is not None and _is_normalized(left):
        return lambda build: [build.op("Mul", right, left, shape=wanted)]
    return _silu(left, right, wanted) or _silu(right, left, wanted)


def columns_by_rows(left: Value | None, right: Value | None, wanted: tuple[int, ...]) -> Writer | None:
    """Each number of columns by each of rows, of which one is repeated first; None for other products."""
    if left is None or right is None or left.graph.model.opset < _EXPAND:
        return None
    if not _is_outer(left, right, wanted):
        return None

    def write(build: Builder) -> list[Value | None]:
        whole = build.op("Expand", right, build.shape(wanted), shape=wanted)
        return [build.op("Mul", left, whole, shape=wanted)]

    return write


def _silu(data: Value, gate: Value, shape: tuple[int, ...]) -> Writer | None:
    """A SiLU, the product of data by its Sigmoid, on a picture of one row.

    Of a picture of 2 to 8 rows that a Reshape made, and neither a convolution nor a pool since, the HTP
    computes other numbers altogether in 16 bits, if a convolution or a pool reads the result; and of any
    picture of several rows, if a LayerNormalization or RMSNormalization does.
    """
    sigmoid = gate.producer
    if sigmoid is None or not sigmoid.is_type("Sigmoid") or sigmoid.inputs[0] is not data:
        return None
    if len(shape) != 4 or shape[2] == 1:
        return None
    if not _is_normalized_next(gate) and (shape[2] > _LOW or not _is_reshaped_in_place(data)):
        return None
    row = (shape[0], shape[1], 1, shape[2] * shape[3])

    def write(build: Builder) -> list[Value | None]:
        flat = build.reshape(data, row)
        made = build.op("Mul", flat, build.op("Sigmoid", flat, shape=row), shape=row)
        return [build.reshape(made, shape)]

    return write


def _is_normalized_next(gate: Value) -> bool:
    """Whether a LayerNormalization or RMSNormalization reads the product by a gate."""
    multiplied = [use.op for use in gate.uses if use.op.is_type("Mul")]
    products = [result for op in multiplied for result in op.outputs]
    readers = [use.op for value in products if value is not None for use in value.uses]
    return any(op.is_type("LayerNormalization", "RMSNormalization") for op in readers)


def _is_reshaped_in_place(data: Value) -> bool:
    """Whether numbers are where a Reshape put them, for all that was done with them since."""
    pending, known = [data], {data}
    for value in pending:
        maker = value.producer
        if maker is None:
            continue
        if maker.is_type("Reshape"):
            return True
        read = [one for one in maker.inputs if one is not None and fixed_constant(one) is None]
        if maker.is_type("Concat") or (len(read) == 1 and maker.is_type(*_IN_PLACE)):
            fresh = [one for one in read if one not in known]
            known.update(fresh)
            pending += fresh
    return False


def _is_outer(left: Value, right: Value, wanted: tuple[int, ...]) -> bool:
    """Whether both data are repeated, one of them along the last axis but those of 1, the other not there."""
    shapes = lengths_of(left), lengths_of(right)
    if None in shapes or not all(shapes):
        return False
    last_axis = max((axis - len(wanted) for axis, length in enumerate(wanted) if length > 1), default=-1)
    if any(shape is None or len(shape) < -last_axis for shape in shapes):
        return False
    if any(fixed_constant(one) is not None for one in (left, right)):
        return False
    full = [shape is not None and np.prod(shape) == np.prod(wanted) for shape in shapes]
    last = [shape[last_axis] == wanted[last_axis] for shape in shapes if shape is not None]
    return not any(full) and last[0] != last[1] and _is_reshaped(left) and _is_reshaped(right)


def _is_reshaped(data: Value) -> bool:
    producer = data.producer
    return producer is not None and producer.is_type(*_RESHAPED)


def _is_normalized(data: Value) -> bool:
    """Whether an InstanceNormalization made it, in another shape maybe."""
    maker = data.producer
    while maker is not None and maker.is_type(*_RESHAPED):
        (source, *_) = maker.inputs
        maker = source.producer if source is not None else None
    return maker is not None and maker.is_type("InstanceNormalization")
