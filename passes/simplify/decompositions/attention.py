"""Attention as the products and the Softmax that it consists of, by the ONNX operator specification."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.ir.value_type import Dimension, Shape

from .builder import Builder, Writer

_LENGTH, _WIDTH = 2, 3  # the axes of tensors of heads
_SAME, _REST = 0, -1  # lengths in the shape of a Reshape
UNLIMITED = -1  # a side of a window


def attention(op: Op) -> Writer | None:
    """``softmax(scale q k^T + mask) v``, also of several queries for each key.

    A row that a mask of booleans hides as a whole is 0. A cache stands in front of keys and values, which are
    results with it. One with scores as a result, with counts of places, or with a window of places, as a
    causal one has, whose lengths are free is not known.
    """
    read, made = [*op.inputs, *[None] * 7][:7], op.outputs
    q, k, v, mask, *cache, counted = read
    precision = op.attribute("softmax_precision", TensorProto.FLOAT)
    has_scores = any(value is not None and value.is_read for value in made[3:])
    has_more = counted is not None or has_scores or None in cache != [None, None]
    if q is None or k is None or v is None or has_more or precision != TensorProto.FLOAT:
        return None
    shapes = [value.type.shape for value in (q, k, v)]
    if any(shape is None or len(shape) not in (3, 4) for shape in shapes):
        return None
    counts = [op.attribute(name, None) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    parts = [of_heads(shape, count) for shape, count in zip(shapes, counts, strict=True)]
    longer = [
        part if past is None else behind(past, part) for past, part in zip(cache, parts[1:], strict=True)
    ]
    scale, cap = op.attribute("scale", None), op.attribute("softcap", 0.0)
    before = (cache[0].type.shape or (None,) * 4)[_LENGTH] if cache[0] is not None else 0
    written = Attention((q, k, v), [parts[0], *longer], mask, scale, cap, _window_of(op), before)
    if not written.is_known:
        return None

    def write(build: Builder) -> list[Value | None]:
        keys, values = (apart(build, value, part) for value, part in zip((k, v), parts[1:], strict=True))
        if cache[0] is not None:
            keys, values = (
                build.op("Concat", past, new, shape=shape, axis=_LENGTH)
                for past, new, shape in zip(cache, (keys, values), longer, strict=True)
            )
        made_of = replace(written, inputs=(q, keys, values))
        return [made_of.write(build), keys, values, None][: len(made)]

    return write


def _window_of(op: Op) -> tuple[int, int]:
    left, right = (op.attribute(f"{side}_window_size", UNLIMITED) for side in ("left", "right"))
    return left, 0 if op.attribute("is_causal", 0) else right


def behind(past: Value, part: Shape) -> Shape:
    """The shape of keys or values behind those of a cache."""
    before, (batch, count, length, width) = past.type.shape or (None,) * 4, part
    places = before[_LENGTH]
    total = places + length if isinstance(places, int) and isinstance(length, int) else None
    return batch, count, total, width


def apart(build: Builder, value: Value, shape: Shape) -> Value:
    """With an axis for heads, which is there already or in the last of three."""
    if len(value.type.shape or ()) == len(shape):
        return value
    batch, count, length, width = shape
    given = build.shape((_SAME, _SAME, count, _REST))
    parted = build.op("Reshape", value, given, shape=(batch, length, count, width))
    return build.op("Transpose", parted, shape=shape, perm=(0, 2, 1, 3))


def together(build: Builder, heads: Value) -> Value:
    """With heads behind each other in the last of three axes."""
    batch, count, length, width = heads.type.shape or ()
    parted = build.op("Transpose", heads, shape=(batch, length, count, width), perm=(0, 2, 1, 3))
    wide = count * width if isinstance(count, int) and isinstance(width, int) else None
    return build.op("Reshape", parted, build.shape((_SAME, _SAME, _REST)), shape=(batch, length, wide))


def of_heads(shape: Shape | None, count: int | None) -> Shape:
    """The shape with an axis for heads, which lie behind each other in the last axis of three."""
    if shape is None or len(shape) == 4:
        return shape or ()
    batch, length, width = shape
    return batch, count, length, width // count if count and isinstance(width, int) else None


@dataclass(frozen=True)
class Attention:
    """Queries, keys and values, their shapes with an axis for heads, and what is done to scores.

    Attributes:
        mask: what is added to scores, or tells which are to be seen; None if there is none.
        scale: of scores; None for that of the width of a head.
        cap: what scores stay below, in front of the mask; 0 for none.
        window: how many places a query sees before and behind its own; (-1, 0) for all before it.
        before: how many places are before that of the first query.
    """

    inputs: tuple[Value, Value, Value]
    shapes: list[Shape]
    mask: Value | None = None
    scale: float | None = None
    cap: float = 0.0
    window: tuple[int, int] = (UNLIMITED, UNLIMITED)
    before: Dimension = 0

    @property
    def is_known(self) -> bool:
        """Whether all lengths are known that constants depend on."""
        (_, heads, length, width), (_, shared, places, _), _ = self.shapes
        mask = self.mask.type.shape if self.mask is not None else ()
        needed: list[object] = [heads, shared]
        needed += [] if self.scale else [width]
        needed += [length, places, self.before] if self._is_limited else []
        fits = not mask or not isinstance(mask[-1], int) or mask[-1] in (1, places)
        return mask is not None and fits and all(isinstance(one, int) for one in needed)

    def write(self, build: Builder) -> Value:
        """The ops, and their result."""
        q, k, v = (apart(build, value, shape) for value, shape in zip(self.inputs, self.shapes, strict=True))
        (batch, heads, length, width), (_, shared, places, _), (*_, made) = self.shapes
        factor = np.array(self.scale or 1 / sqrt(width), np.float32)  # type: ignore[arg-type]
        if factor != 1:
            q = build.op("Mul", q, build.constant(factor, "scale"), shape=self.shapes[0])
        k = build.op("Transpose", k, shape=(batch, shared, width, places), perm=(0, 1, _WIDTH, _LENGTH))
        rows = length if heads == shared else None
        q = self._grouped(build, q, (batch, shared, rows, width))
        scores = build.op("MatMul", q, k, shape=(batch, shared, rows, places))
        scores = self._grouped(build, scores, (batch, heads, length, places))
        weights = build.op("Softmax", self._masked(build, scores), shape=scores.type.shape, axis=-1)
        weights = self._grouped(build, weights, (batch, shared, rows, places))
        result = build.op("MatMul", weights, v, shape=(batch, shared, rows, made))
        result = self._grouped(build, result, (batch, heads, length, made))
        if self._may_hide_rows():
            result = self._without_hidden(build, result)
        is_flat = len(self.inputs[0].type.shape or ()) < len(self.shapes[0])
        return together(build, result) if is_flat else result

    def _grouped(self, build: Builder, data: Value, shape: Shape) -> Value:
        """With the queries of one key behind each other in the axis of places, or apart again."""
        if data.type.shape[1] == shape[1]:  # type: ignore[index]
            return data
        return build.op("Reshape", data, build.shape((_SAME, shape[1], _REST, _SAME)), shape=shape)

    @property
    def _has_booleans(self) -> bool:
        return self.mask is not None and self.mask.type.elem_type == TensorProto.BOOL

    @property
    def _is_limited(self) -> bool:
        return self.window != (UNLIMITED, UNLIMITED)

    @property
    def _in_window(self) -> np.ndarray:
        """Which places a query may look at but for the mask."""
        if not self._is_limited:
            return np.array(True)
        queries, places = (shape[_LENGTH] for shape in self.shapes[:2])
        place = np.arange(queries)[:, None] + self.before  # type: ignore[arg-type, operator]
        distance = np.arange(places) - place  # type: ignore[arg-type]
        left, right = self.window
        is_near = (distance >= -left) | (left == UNLIMITED)
        return is_near & ((distance <= right) | (right == UNLIMITED))

    def _where_shown(self, build: Builder, shown: float, hidden: float) -> Value:
        """A number for what a mask of booleans shows within the window, and another for the rest."""
        assert self.mask is not None
        first = build.constant(np.where(self._in_window, shown, hidden).astype(np.float32), "shown")
        other = build.constant(np.array(hidden, np.float32), "hidden")
        shape = self.mask.type.shape or ()
        shape = (*shape[:-2], *self._in_window.shape) if self._in_window.ndim else shape
        return build.op("Where", self.mask, first, other, shape=shape)

    def _may_hide_rows(self) -> bool:
        """Whether a mask or the window may hide all places from a query; of data only one of booleans."""
        shown = self._shown
        return self._has_booleans if shown is None else not np.atleast_1d(shown).any(-1).all()

    @property
    def _shown(self) -> np.ndarray | None:
        """Which places a query sees, by the window and the mask; None if the mask is data."""
        known = fixed_constant(self.mask)
        if known is None:
            return self._in_window if self.mask is None else None
        seen = known.numpy() if self._has_booleans else known.numpy() != -np.inf
        return seen & self._in_window

    def _without_hidden(self, build: Builder, result: Value) -> Value:
        """The result with 0 where nothing is shown, which a Softmax cannot give."""
        if self._shown is None:
            places = self._where_shown(build, 1.0, 0.0)
            axis = build.constant(np.array([-1], np.int64), "axis")
            rows = build.op("ReduceMax", places, axis, shape=(*(places.type.shape or ())[:-1], 1))
        else:
            rows = build.constant(np.asarray(self._shown.any(-1, keepdims=True), np.float32), "rows")
        return build.op("Mul", result, rows, shape=result.type.shape)

    def _masked(self, build: Builder, scores: Value) -> Value:
        """Scores with a bound, by the mask, and without what is beyond the window."""
        shape, lowest = scores.type.shape, float(np.finfo(np.float32).min)
        if self.cap:
            bound = build.constant(np.array(self.cap, np.float32), "softcap")
            inner = build.op("Tanh", build.op("Div", scores, bound, shape=shape), shape=shape)
            scores = build.op("Mul", inner, bound, shape=shape)
        if self._has_booleans:
            return build.op("Add", scores, self._where_shown(build, 0.0, lowest), shape=shape)
        if self.mask is not None:
            scores = build.op("Add", scores, self.mask, shape=shape)
        if self._is_limited:
            hidden = np.where(self._in_window, 0.0, lowest).astype(np.float32)
            scores = build.op("Add", scores, build.constant(hidden, "hidden"), shape=shape)
        return scores
