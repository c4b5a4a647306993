"""Expand ops whose copies nothing needs, since what reads them broadcasts by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.ir.value_type import Shape
from qc.patterns.attributes import attribute_of

OLDEST_OPSET = 8  # whose elementwise ops all take inputs of several shapes

_REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
_ELEMENTWISE = ("Add", "And", "Cast", "Div", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow", "Sub", "Where")
_BY_NUMBERS = ("Clip",)  # whose other inputs are numbers


def narrow_shapes(expand: Op) -> dict[Value, Shape] | None:
    """The shapes of all that gets fewer numbers without an Expand; None if something needs its copies.

    These follow the result through elementwise ops, and through sums along other axes, up to ops whose other
    operands are as long, which then make what they made before. All lengths on the way must be known.
    """
    source, result = expand.inputs[0], expand.outputs[0]
    lengths = fixed_constant(expand.inputs[1])
    if source is None or result is None or source.type.shape is None or lengths is None:
        return None
    if len(source.type.shape) != lengths.size or result.type.shape is None:
        return None
    if _joined([source.type.shape, tuple(map(int, lengths.numpy()))]) != result.type.shape:
        return None
    before, after = {result: result.type.shape}, {result: source.type.shape}
    for op in expand.graph.ops():
        read = [value for value in op.inputs if value in after]
        if not read or op is expand:
            continue
        made = op.outputs[0] if op.num_outputs == 1 else None
        full, narrow = (_made_of(op, known) for known in (before, after))
        if made is None or full is None or narrow is None or made.type.shape != full:
            return None
        if op.is_type(*_REDUCTIONS) and _sums_copies(op, before[read[0]], after[read[0]]):
            return None
        if narrow != full:
            before[made], after[made] = full, narrow
    return after if not any(one.is_output or one.capturing for one in after) else None


def _made_of(op: Op, known: Mapping[Value, Shape]) -> Shape | None:
    """The shape of what an op makes, with other shapes than the declared ones for some of its inputs."""
    given = [value for value in op.inputs if value is not None]
    shapes = [known.get(value, value.type.shape) for value in given]
    if op.is_type(*_REDUCTIONS):
        return _reduced(op, shapes[0])
    if op.is_type(*_ELEMENTWISE):
        return _joined(shapes)
    return shapes[0] if op.is_type(*_BY_NUMBERS) and not any(value in known for value in given[1:]) else None


def _sums_copies(op: Op, full: Shape, narrow: Shape) -> bool:
    """Whether one of the axes that are summed along has fewer numbers."""
    return any(full[axis] != narrow[axis] for axis in attribute_of(op, "axes", op.inputs))


def _reduced(op: Op, shape: Shape | None) -> Shape | None:
    axes = attribute_of(op, "axes", op.inputs)
    if shape is None or not isinstance(axes, tuple) or not axes:
        return None
    keeps = op.attribute("keepdims", 1)
    lengths = [
        1 if axis in axes else length for axis, length in enumerate(shape) if keeps or axis not in axes
    ]
    return tuple(lengths)


def _joined(shapes: Sequence[Shape | None]) -> Shape | None:
    """What an elementwise op makes of inputs of some shapes; None if that is not known."""
    rank = max((len(shape) for shape in shapes if shape is not None), default=0)
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes if shape is not None]
    if len(aligned) != len(shapes):
        return None
    lengths = [{length for length in axis if length != 1} for axis in zip(*aligned, strict=True)]
    if any(len(axis) > 1 or None in axis for axis in lengths):
        return None
    return tuple(axis.pop() if axis else 1 for axis in lengths)
