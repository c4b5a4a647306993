"""Attention as the products and the Softmax that it consists of, by the ONNX operator specification."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from onnx import TensorProto

from qc.ir.graph import Op, Value

from .builder import Builder, Shape, Writer

_LENGTH, _WIDTH = 2, 3  # the axes of tensors of heads
_SAME, _REST = 0, -1  # lengths in the shape of a Reshape


def attention(op: Op) -> Writer | None:
    """``softmax(scale q k^T + mask) v``, also of several queries for each key.

    A row that a mask of booleans hides as a whole weighs all places the same. One with a cache, with results
    other than the first, or with a causal mask of a length that is free is not known.
    """
    read, made = op.graph.op_inputs(op), op.graph.op_outputs(op)
    q, k, v = read[:3]
    mask, *others = read[3:] or [None]
    precision = op.attribute("softmax_precision", TensorProto.FLOAT)
    has_more = any(value is not None for value in others) or any(
        value is not None and op.graph.is_read(value) for value in made[1:]
    )
    if q is None or k is None or v is None or has_more or precision != TensorProto.FLOAT:
        return None
    shapes = [value.type.shape for value in (q, k, v)]
    if any(shape is None or len(shape) not in (3, 4) for shape in shapes):
        return None
    counts = [op.attribute(name, None) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    parts = [_of_heads(shape, count) for shape, count in zip(shapes, counts, strict=True)]
    written = _Attention(op, (q, k, v), parts, mask)
    return written.write if written.is_known else None


def _of_heads(shape: Shape | None, count: int | None) -> Shape:
    """The shape with an axis for heads, which lie behind each other in the last axis of three."""
    if shape is None or len(shape) == 4:
        return shape or ()
    batch, length, width = shape
    return batch, count, length, width // count if count and isinstance(width, int) else None


@dataclass(frozen=True)
class _Attention:
    """Queries, keys and values, their shapes with an axis for heads, and the mask, if there is one."""

    op: Op
    inputs: tuple[Value, Value, Value]
    shapes: list[Shape]
    mask: Value | None

    @property
    def is_known(self) -> bool:
        """Whether all lengths are known that constants depend on."""
        (_, heads, length, width), (_, shared, places, _), _ = self.shapes
        mask = self.mask.type.shape if self.mask is not None else ()
        needed: list[object] = [heads, shared]
        needed += [] if self.op.attribute("scale", None) else [width]
        needed += [length, places] if self.op.attribute("is_causal", 0) else []
        fits = not mask or not isinstance(mask[-1], int) or mask[-1] in (1, places)
        return mask is not None and fits and all(isinstance(one, int) for one in needed)

    def write(self, build: Builder) -> list[Value | None]:
        """The ops."""
        q, k, v = (
            self._heads(build, value, shape) for value, shape in zip(self.inputs, self.shapes, strict=True)
        )
        (batch, heads, length, width), (_, shared, places, _), (*_, made) = self.shapes
        factor = build.constant(np.float32(self.op.attribute("scale", None) or 1 / sqrt(width)), "scale")  # type: ignore[arg-type]
        q = build.op("Mul", q, factor, shape=self.shapes[0])
        k = build.op("Transpose", k, shape=(batch, shared, width, places), perm=(0, 1, _WIDTH, _LENGTH))
        rows = length if heads == shared else None
        q = self._grouped(build, q, (batch, shared, rows, width))
        scores = build.op("MatMul", q, k, shape=(batch, shared, rows, places))
        scores = self._grouped(build, scores, (batch, heads, length, places))
        weights = build.op("Softmax", self._masked(build, scores), shape=scores.type.shape, axis=-1)
        weights = self._grouped(build, weights, (batch, shared, rows, places))
        result = build.op("MatMul", weights, v, shape=(batch, shared, rows, made))
        result = self._grouped(build, result, (batch, heads, length, made))
        outputs = len(self.op.graph.op_outputs(self.op))
        return [self._flat(build, result), *[None] * (outputs - 1)]

    def _heads(self, build: Builder, value: Value, shape: Shape) -> Value:
        """With an axis for heads."""
        if len(value.type.shape or ()) == len(shape):
            return value
        batch, count, length, width = shape
        given = build.shape((_SAME, _SAME, count, _REST))
        apart = build.op("Reshape", value, given, shape=(batch, length, count, width))
        return build.op("Transpose", apart, shape=shape, perm=(0, 2, 1, 3))

    def _grouped(self, build: Builder, data: Value, shape: Shape) -> Value:
        """With the queries of one key behind each other in the axis of places, or apart again."""
        if data.type.shape[1] == shape[1]:  # type: ignore[index]
            return data
        return build.op("Reshape", data, build.shape((_SAME, shape[1], _REST, _SAME)), shape=shape)

    def _masked(self, build: Builder, scores: Value) -> Value:
        """Scores with a bound, by the mask, and without what is to come."""
        shape = scores.type.shape
        lowest = np.array(np.finfo(np.float32).min, np.float32)
        cap = self.op.attribute("softcap", 0.0)
        if cap:
            bound = build.constant(np.array(cap, np.float32), "softcap")
            inner = build.op("Tanh", build.op("Div", scores, bound, shape=shape), shape=shape)
            scores = build.op("Mul", inner, bound, shape=shape)
        added = self.mask
        if added is not None and added.type.elem_type == TensorProto.BOOL:
            zero, hidden = build.constant(np.array(0, np.float32), "shown"), build.constant(lowest, "hidden")
            added = build.op("Where", added, zero, hidden, shape=added.type.shape)
        if added is not None:
            scores = build.op("Add", scores, added, shape=shape)
        if self.op.attribute("is_causal", 0):
            future = np.triu(np.full(shape[-2:], lowest), 1)  # type: ignore[index,arg-type]
            scores = build.op("Add", scores, build.constant(future, "future"), shape=shape)
        return scores

    def _flat(self, build: Builder, result: Value) -> Value:
        """With heads as the queries have them."""
        if len(self.inputs[0].type.shape or ()) == len(self.shapes[0]):
            return result
        batch, heads, length, width = result.type.shape or ()
        apart = build.op("Transpose", result, shape=(batch, length, heads, width), perm=(0, 2, 1, 3))
        wide = heads * width if isinstance(heads, int) and isinstance(width, int) else None
        return build.op("Reshape", apart, build.shape((_SAME, _SAME, _REST)), shape=(batch, length, wide))
