"""Adds the ops that take the place of one, each with a result of known type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from onnx import TensorProto

from qc.ir.facts.op_traits import axes_by_input
from qc.ir.graph import Op, Value
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef
from qc.ir.value_type import Shape, ValueType

SLICES_BY_INPUT = 10  # the first opset whose Slice takes its ends as inputs
_SPLITS_BY_INPUT = 13  # the first opset whose Split takes the lengths as an input
_BIAS_IS_OPTIONAL = 11  # the first opset whose Gemm may have none


class Builder:
    """Adds ops beside the one that they are to replace; names are made of that of its first result."""

    def __init__(self, rewriter: Rewriter, op: Op) -> None:
        self._rewriter, self._graph = rewriter, op.graph
        self._constants: list[Value] = []
        result = next(value for value in op.outputs if value is not None)
        self._name, self._elem_type = result.name, result.type.elem_type

    @property
    def opset(self) -> int:
        """That of the model."""
        return self._graph.model.opset

    def constant(self, array: np.ndarray | TensorRef, name: str) -> Value:
        """A constant, such as a weight."""
        self._constants.append(self._rewriter.add_constant(self._graph, array, f"{self._name}_{name}"))
        return self._constants[-1]

    def drop_unread(self) -> None:
        """Takes away the constants that no op reads, such as what a single step has no state for."""
        for value in self._constants:
            self._rewriter.drop_unread(value)

    def op(
        self,
        op_type: str,
        *inputs: Value | None,
        shape: Shape | None,
        type: int | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> Value:
        """The result of a new op, of a shape and an ONNX element type: that of the op to replace without."""
        made = self._value(op_type, shape, type)
        self._rewriter.add_op(self._graph, op_type, inputs, [made], attributes, domain)
        return made

    def same(self, op: Op, *inputs: Value | None) -> Value:
        """The first result of an op as another one, of other inputs."""
        result = op.outputs[0]
        assert result is not None, "somebody reads what is to be replaced"
        return self.op(
            op.op_type,
            *inputs,
            shape=result.type.shape,
            type=result.type.elem_type,
            domain=op.domain,
            **{name: op.attribute(name) for name in op.attributes},
        )

    def gemm(
        self, data: Value | None, weight: Value | None, bias: Value | None, shape: Shape | None, **turned: Any
    ) -> Value:
        """A Gemm without factors; opsets that demand a bias get zeros, where there is none."""
        if bias is None and self.opset < _BIAS_IS_OPTIONAL:
            columns = shape[-1] if shape else None
            bias = self.constant(np.zeros(columns if isinstance(columns, int) else 1, np.float32), "bias")
        return self.op("Gemm", data, weight, *([bias] if bias else []), shape=shape, **turned)

    def reshape(self, data: Value, shape: Shape) -> Value:
        """The numbers of ``data`` in another shape, which is known; the same value if it has that already."""
        if data.type.shape == shape:
            return data
        return self.op("Reshape", data, self.shape(shape), shape=shape, type=data.type.elem_type or None)

    def unsqueeze(self, data: Value, axes: Sequence[int], shape: Shape | None) -> Value:
        """The numbers of ``data`` with axes of length 1 more."""
        return self.along(axes, "Unsqueeze", data, shape=shape, type=data.type.elem_type)

    def along(self, axes: Sequence[int], op_type: str, data: Value, **more: Any) -> Value:
        """The result of a new op along axes, such as ReduceMean; ``more`` is what :meth:`op` takes."""
        if not axes_by_input(op_type, self.opset):
            return self.op(op_type, data, axes=list(axes), **more)
        return self.op(op_type, data, self.constant(np.array(axes, np.int64), "axes"), **more)

    def places(self, data: Value, axis: int) -> Value:
        """The numbers of all places along an axis, int64."""
        shape = data.type.shape or ()
        length = shape[axis]
        if isinstance(length, int):
            return self.constant(np.arange(length), "places")
        whole = self.op("Shape", data, shape=(len(shape),), type=TensorProto.INT64)
        along, first, step = (self.constant(np.array(one), "number") for one in (axis, 0, 1))
        end = self.op("Gather", whole, along, shape=(), type=TensorProto.INT64)
        return self.op("Range", first, end, step, shape=(length,), type=TensorProto.INT64)

    def shape(self, lengths: Shape) -> Value:
        """A constant that a Reshape takes for its shape."""
        return self.constant(np.array(lengths, np.int64), "shape")

    def pad(self, data: Value, axis: int, before: int, behind: int) -> Value:
        """Zeros at both ends of an axis; the same value if there are none."""
        if not before and not behind:
            return data
        shape = data.type.shape or ()
        ends = np.zeros((2, len(shape)), np.int64)
        ends[:, axis] = before, behind
        longer = shape[axis] + before + behind  # type: ignore[operator]
        given = self.constant(ends.ravel(), "pads")
        return self.op("Pad", data, given, shape=(*shape[:axis], longer, *shape[axis + 1 :]))

    def concat(self, parts: list[Value], axis: int, shape: tuple[int, ...]) -> Value:
        """Parts one behind the other, of ``shape`` together; the same value if there is only one."""
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, shape=shape, axis=axis)

    def split(self, data: Value, count: int, axis: int) -> list[Value]:
        """``count`` parts of equal length along an axis: of a row Slices, which all devices run exactly."""
        if count == 1:
            return [data]
        shape = data.type.shape or ()
        lengths = [shape[axis] // count] * count  # type: ignore[operator]
        rest = (*shape[:axis], *shape[axis + 1 :])
        if self.opset >= SLICES_BY_INPUT and all(length == 1 for length in rest):
            return self.slices(data, lengths, axis)
        return self.parts(data, lengths, axis)

    def parts(self, data: Value, lengths: Sequence[int], axis: int) -> list[Value]:
        """Parts one behind the other along an axis, by a Split."""
        shape, kind = data.type.shape or (), data.type.elem_type or None
        shapes = [(*shape[:axis], length, *shape[axis + 1 :]) for length in lengths]
        made = [self._value("Split", one, kind) for one in shapes]
        if self.opset < _SPLITS_BY_INPUT:
            self._rewriter.add_op(self._graph, "Split", [data], made, {"axis": axis, "split": [*lengths]})
        else:
            given = self.constant(np.array(lengths, np.int64), "lengths")
            self._rewriter.add_op(self._graph, "Split", [data, given], made, {"axis": axis})
        return made

    def slices(self, data: Value, lengths: Sequence[int], axis: int) -> list[Value]:
        """Parts one behind the other along an axis."""
        along = self.constant(np.array([axis], np.int64), "axis")
        places = zip(accumulate(lengths), lengths, strict=True)
        return [self.slice(data, axis, end - length, end, along) for end, length in places]

    def slice(self, data: Value, axis: int, begin: int, end: int, along: Value | None = None) -> Value:
        """A part along an axis, which ``along`` is, where that is a constant already; of one, a constant."""
        if data.original.const is not None:
            place = (slice(None),) * axis + (slice(begin, end),)
            return self.constant(np.ascontiguousarray(data.original.const.numpy()[place]), "part")
        shape = data.type.shape or ()
        ends = (self.constant(np.array([place], np.int64), "end") for place in (begin, end))
        along = along or self.constant(np.array([axis], np.int64), "axis")
        return self.op("Slice", data, *ends, along, shape=(*shape[:axis], end - begin, *shape[axis + 1 :]))

    def _value(self, name: str, shape: Shape | None, type: int | None = None) -> Value:
        made = ValueType(self._elem_type if type is None else type, shape)
        return self._rewriter.add_value(self._graph, f"{self._name}_{name}", made)


Lengths = tuple[int, ...]
Writer = Callable[[Builder], list[Value | None]]  # adds ops; what takes the place of each result


def put_in_place(rewriter: Rewriter, old: Value, new: Value) -> None:
    """Lets all read ``new`` instead of ``old``, by its name; a copy of what has a name of its own to keep."""
    name, graph = old.name, old.graph
    if new.is_input or new.captured is not None:
        copy = rewriter.add_value(graph, name, old.type)
        rewriter.add_op(graph, "Identity", [new], [copy])
        new = copy
    rewriter.replace_uses(old, new)
    if new.name != name:  # a graph output takes its name along
        rewriter.swap_names(old, new)


def lengths_of(value: Value | None) -> Lengths | None:
    """The shape of a value; None if a length is free, or 0, which a Reshape takes for that of its data."""
    shape = value.type.shape if value is not None else None
    if shape is None or not all(isinstance(length, int) and length > 0 for length in shape):
        return None
    return tuple(length for length in shape if isinstance(length, int))


def result_shape(op: Op) -> Shape | None:
    """The shape of the first result of an op; None if it is not known."""
    result = op.outputs[0]
    return result.type.shape if result is not None else None
