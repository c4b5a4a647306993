"""Attention with a cache of ONNX Runtime's own domain, for one sequence of known lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .attention import Attention, apart, together
from .builder import Builder, Writer
from .rotary import turn

_INPUTS = 12
_OTHERWISE = ("rotary_interleaved", "smooth_softmax", "qk_output", "k_quant_type", "v_quant_type")
_CHOOSES = 16  # the first opset whose Where takes integers as positions on all runtimes
_LENGTH = 2  # the axis of places in keys and values


def group_query_attention(op: Op) -> Writer | None:
    """``com.microsoft.GroupQueryAttention``: rotary embedding, a cache, two products and a Softmax.

    The cache grows by what is new, or has room for more than there is, and what is new is put into its place.
    One for several sequences, of lengths that are not known, with a sink, or with codes in its cache is not
    known.
    """
    read = [*op.inputs, *[None] * _INPUTS]
    made, (q, k, v, past_k, past_v, ends, total, cos, sin, *_) = op.outputs, read
    is_other = any(value is not None for value in (read[9], *read[11:])) or any(
        op.attribute(name, 0) not in (0, b"NONE", "NONE") for name in _OTHERWISE
    )
    has_scores = any(value is not None and value.is_read for value in made[3:])
    sizes = _Sizes.of(op, q, k, v, past_k, total)
    if (
        is_other
        or has_scores
        or sizes is None
        or q is None
        or ends is None
        or past_k is None
        or past_v is None
    ):
        return None
    if op.graph.model.opset < _CHOOSES or (op.attribute("do_rotary", 0) and not _is_table(cos, sin)):
        return None
    tables = (cos, sin) if op.attribute("do_rotary", 0) and cos is not None and sin is not None else None
    written = _Grouped(op, sizes, ends, tables, read[10])
    return lambda build: written.write(build, [q, k, v], [past_k, past_v])[: len(made)]


def _is_table(cos: Value | None, sin: Value | None) -> bool:
    return all(fixed_constant(table) is not None for table in (cos, sin))


@dataclass(frozen=True)
class _Sizes:
    """Lengths that are all known.

    Attributes:
        heads: of queries.
        shared: heads of keys and values.
        width: of a head.
        queries: how many there are.
        past: places of the cache.
        places: of the cache with what is new.
    """

    heads: int
    shared: int
    width: int
    queries: int
    past: int
    places: int

    @classmethod
    def of(
        cls,
        op: Op,
        q: Value | None,
        k: Value | None,
        v: Value | None,
        past: Value | None,
        total: Value | None,
    ) -> _Sizes | None:
        shape, before = (value.type.shape if value is not None else None for value in (q, past))
        known = shape is not None and before is not None and (k is None) == (v is None)
        count = fixed_constant(total)
        if (
            not known
            or shape is None
            or before is None
            or count is None
            or len(shape) != 3
            or len(before) != 4
        ):
            return None
        heads, shared = op.attribute("num_heads", 0), op.attribute("kv_num_heads", 0)
        batch, queries, wide, earlier = *shape, before[_LENGTH]
        whole = int(count.numpy().item())
        if batch != 1 or not (
            isinstance(queries, int) and isinstance(wide, int) and isinstance(earlier, int)
        ):
            return None
        if whole not in (earlier + queries, *range(queries + 1, earlier + 1)):
            return None
        width = wide // (heads + (2 * shared if k is None else 0))
        return cls(heads, shared, width, queries, earlier, max(earlier, whole))

    @property
    def grows(self) -> bool:
        """Whether what is new stands behind the cache, and not within."""
        return self.places == self.past + self.queries


@dataclass(frozen=True)
class _Grouped:
    """What takes the place of one op.

    Attributes:
        ends: the last place that is shown, for each sequence, as data.
        tables: cosine and sine of each place; None without rotary embedding.
        added: what is added to scores besides.
    """

    op: Op
    sizes: _Sizes
    ends: Value
    tables: tuple[Value, Value] | None
    added: Value | None

    def write(self, build: Builder, read: list[Value | None], past: list[Value]) -> list[Value | None]:
        sizes, scale = self.sizes, self.op.attribute("scale", 0.0) or None
        last = None if sizes.grows else self._last(build)
        q, k, v = self._heads(build, read)
        if self.tables is not None:
            cos, sin = (self._angles(build, table, last) for table in self.tables)
            q, k = (turn(build, one, cos, sin, self._turned) for one in (q, k))
        shape = (1, sizes.shared, sizes.places, sizes.width)
        if last is None:
            k, v = (
                build.op("Concat", *pair, shape=shape, axis=_LENGTH)
                for pair in zip(past, (k, v), strict=True)
            )
        else:
            k, v = (self._put(build, *pair, last) for pair in zip(past, (k, v), strict=True))
        mask, cap = self._mask(build, last), self.op.attribute("softcap", 0.0)
        shapes = [(1, sizes.heads, sizes.queries, sizes.width), shape, shape]
        made = Attention((q, k, v), shapes, mask, scale, cap).write(build)  # type: ignore[arg-type]
        return [together(build, made), k, v, None]

    def _heads(self, build: Builder, read: list[Value | None]) -> list[Value]:
        """Queries, keys and values with an axis for heads; they may be one tensor."""
        sizes = self.sizes
        counts = [sizes.heads, sizes.shared, sizes.shared]
        parts = [value for value in read if value is not None]
        if len(parts) == 1:
            parts = build.slices(parts[0], [count * sizes.width for count in counts], axis=2)
        shapes = [(1, count, sizes.queries, sizes.width) for count in counts]
        return [apart(build, part, shape) for part, shape in zip(parts, shapes, strict=True)]

    @property
    def _turned(self) -> int:
        assert self.tables is not None
        return 2 * int(self.tables[0].type.shape[-1])  # type: ignore[index, arg-type]

    def _angles(self, build: Builder, table: Value, last: Value | None) -> Value:
        """The rows of a table for the places of queries."""
        sizes, numbers = self.sizes, fixed_constant(table)
        assert numbers is not None
        shape = (1, 1, sizes.queries, self._turned // 2)
        if last is None:
            rows = numbers.numpy()[sizes.past : sizes.past + sizes.queries]
            return build.constant(rows.reshape(shape), "angles")
        own = self._shifted(build, last, np.arange(1 - sizes.queries, 1))
        found = build.op("Gather", table, own, shape=shape[2:], axis=0)
        return build.reshape(found, shape)

    def _last(self, build: Builder) -> Value:
        """The place of the last query, a number."""
        kind = TensorProto.INT32
        return build.op("Reshape", self.ends, build.shape((1,)), shape=(1,), type=kind)

    def _shifted(self, build: Builder, last: Value, by: np.ndarray) -> Value:
        """Places that lie so far from the last query."""
        offsets = build.constant(by.astype(np.int32), "offsets")
        return build.op("Add", last, offsets, shape=by.shape, type=TensorProto.INT32)

    def _put(self, build: Builder, past: Value, new: Value, last: Value) -> Value:
        """The cache with what is new in its place."""
        sizes, shape = self.sizes, past.type.shape
        places = np.arange(sizes.places, dtype=np.int32)
        if sizes.queries > 1:  # each place takes the new one that belongs there, the nearest where none does
            first = self._shifted(build, last, np.array([1 - sizes.queries]))
            own = build.constant(places, "places")
            index = build.op("Sub", own, first, shape=places.shape, type=TensorProto.INT32)
            for limit, op_type in ((0, "Max"), (sizes.queries - 1, "Min")):
                bound = build.constant(np.array([limit], np.int32), "bound")
                index = build.op(op_type, index, bound, shape=places.shape, type=TensorProto.INT32)
            new = build.op("Gather", new, index, shape=shape, axis=_LENGTH)
        is_old = self._compared(build, "Less", places, last, 1 - sizes.queries)
        is_later = self._compared(build, "Greater", places, last, 0)
        kept = build.op("Or", is_old, is_later, shape=is_old.type.shape, type=TensorProto.BOOL)
        return build.op("Where", build.unsqueeze(kept, (1,), (sizes.places, 1)), past, new, shape=shape)

    def _compared(
        self, build: Builder, op_type: str, places: np.ndarray, last: Value, by: int | np.ndarray
    ) -> Value:
        """Which places come before or behind those that lie so far from the last query."""
        limits = self._shifted(build, last, np.atleast_1d(by))
        own = build.constant(places, "places")
        shape = np.broadcast_shapes(places.shape, limits.type.shape)  # type: ignore[arg-type]
        return build.op(op_type, own, limits, shape=shape, type=TensorProto.BOOL)

    def _mask(self, build: Builder, last: Value | None) -> Value | None:
        """What is added to scores; None if nothing is."""
        sizes, lowest = self.sizes, np.float32(np.finfo(np.float32).min)
        window = self.op.attribute("local_window_size", -1)
        offsets = np.arange(1 - sizes.queries, 1)[:, np.newaxis]
        places = np.arange(sizes.places, dtype=np.int32)[np.newaxis]
        shape = (sizes.queries, sizes.places)
        if last is None:
            own = sizes.places - 1 + offsets
            hidden = (places > own) | ((window > 0) & (places <= own - window))
            return self._with_added(build, np.where(hidden, lowest, np.float32(0)) if hidden.any() else None)
        later = self._compared(build, "Greater", places, last, offsets)
        if window > 0:
            earlier = self._compared(build, "Less", places, last, offsets - window + 1)
            later = build.op("Or", later, earlier, shape=shape, type=TensorProto.BOOL)
        numbers = (build.constant(np.array(number, np.float32), "added") for number in (lowest, 0))
        return self._with_added(build, build.op("Where", later, *numbers, shape=shape))

    def _with_added(self, build: Builder, mask: np.ndarray | Value | None) -> Value | None:
        own = build.constant(mask, "mask") if isinstance(mask, np.ndarray) else mask
        if own is None or self.added is None:
            return own or self.added
        return build.op("Add", self.added, own, shape=self.added.type.shape)
