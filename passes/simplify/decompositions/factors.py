"""Products number by number, in forms that a device computes rightly."""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Writer
from .movement import lengths_of

_RESHAPED = ("Reshape", "Unsqueeze", "Squeeze", "Flatten")
_EXPAND = 8  # the first opset that has it


def factors(op: Op) -> Writer | None:
    """A Mul of columns by rows as one of columns by whole tensors; one by a constant with that in front.

    Of columns by rows, where both are reshaped and one is computed, the HTP makes wrong codes. Behind an
    InstanceNormalization of some shapes its product by a constant that stands second is 0.
    """
    left, right = op.graph.op_inputs(op)
    wanted = lengths_of(op.graph.op_outputs(op)[0])
    if left is None or right is None or wanted is None:
        return None
    if _is_outer(left, right, wanted) and op.graph.model.opset >= _EXPAND:

        def write(build: Builder) -> list[Value | None]:
            whole = build.op("Expand", right, build.shape(wanted), shape=wanted)
            return [build.op("Mul", left, whole, shape=wanted)]

        return write
    if fixed_constant(right) is not None and _is_normalized(left):
        return lambda build: [build.op("Mul", right, left, shape=wanted)]
    return None


def _is_outer(left: Value, right: Value, wanted: tuple[int, ...]) -> bool:
    """Whether both data are repeated, one of them along the last axis, the other not there."""
    shapes = lengths_of(left), lengths_of(right)
    if None in shapes or not all(shapes):
        return False
    if any(fixed_constant(one) is not None for one in (left, right)):
        return False
    full = [shape is not None and np.prod(shape) == np.prod(wanted) for shape in shapes]
    last = [shape[-1] == wanted[-1] for shape in shapes if shape is not None]
    return not any(full) and last[0] != last[1] and _is_reshaped(left) and _is_reshaped(right)


def _is_reshaped(data: Value) -> bool:
    producer = data.graph.producer(data)
    return producer is not None and producer.is_type(*_RESHAPED)


def _is_normalized(data: Value) -> bool:
    """Whether an InstanceNormalization made it, in another shape maybe."""
    maker = data.graph.producer(data)
    while maker is not None and maker.is_type(*_RESHAPED):
        (source, *_) = maker.graph.op_inputs(maker)
        maker = source.graph.producer(source) if source is not None else None
    return maker is not None and maker.is_type("InstanceNormalization")
