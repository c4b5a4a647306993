"""Attention of ONNX Runtime's own domain, as projections, two products and a Softmax."""

from __future__ import annotations

from itertools import accumulate, zip_longest

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.ir.value_type import Shape

from .attention import Attention, of_heads
from .builder import Builder, Writer

_RANGE = 11  # the first opset that has one
_HIDDEN = -10000.0  # what ONNX Runtime adds to scores that a mask hides, if an op does not say
_ENDS, _PLACES, _ROWS = 1, 2, 3  # the ranks of masks: how many keys are shown, which, and which to each query
_ALL_INPUTS = 10
_SHARED = ("num_heads", "scale", "unidirectional", "mask_filter_value")  # attributes of both ops


def projected_attention(op: Op, keeps_heads: bool = False) -> Writer | None:
    """``com.microsoft.Attention``: queries, keys and values are three products of the data by one weight.

    With ``keeps_heads`` the products of heads become a MultiHeadAttention. One with a cache or rotary
    embeddings, or whose weight is not constant, is not known.
    """
    data, weight, bias, mask, past, added, *more = _inputs(op)
    matrix, offsets = fixed_constant(weight), fixed_constant(bias)
    is_other = past is not None or any(more) or op.attribute("do_rotary", 0) or (bias and offsets is None)
    if data is None or matrix is None or is_other or not _is_known(op, data, mask):
        return None
    inputs, columns = matrix.shape
    widths = op.attribute("qkv_hidden_sizes", None) or [columns // 3] * 3
    lengths = (data.type.shape or (None, None, inputs))[:2]

    def write(build: Builder) -> list[Value | None]:
        parts = []
        for name, width, end in zip("qkv", widths, accumulate(widths), strict=True):
            own, shape = slice(end - width, end), (*lengths, width)
            factor = build.constant(matrix.numpy()[:, own], f"{name}_weight")
            parts.append(build.op("MatMul", data, factor, shape=shape))
            if offsets is not None:
                offset = build.constant(offsets.numpy()[own], f"{name}_bias")
                parts[-1] = build.op("Add", parts[-1], offset, shape=shape)
        if keeps_heads:
            return _with_rest(op, _of_heads(build, op, parts, mask, added))
        return _with_rest(op, _taken_apart(build, op, parts, mask, added))

    return write


def multi_head_attention(op: Op) -> Writer | None:
    """``com.microsoft.MultiHeadAttention``: queries, keys and values come from elsewhere, each with a bias.

    Keys and values may have an axis for heads. One with a cache, with all three in one tensor, with a bias
    that is not constant, or with an order of fewer queries than keys is not known.
    """
    q, k, v, bias, mask, added, *more = _inputs(op)
    offsets = fixed_constant(bias)
    if q is None or k is None or v is None or any(more) or (bias and offsets is None):
        return None
    shapes = [value.type.shape for value in (q, k, v)]
    widths = [shape[-1] for shape in shapes if shape and isinstance(shape[-1], int)]
    ranks = [len(shape or ()) for shape in shapes]
    if ranks not in ([3, 3, 3], [3, 4, 4]) or len(widths) < len(shapes) or (bias and ranks[1] == 4):
        return None
    if not _is_known(op, q, mask) or (op.attribute("unidirectional", 0) and not _have_one_length(q, k)):
        return None

    def write(build: Builder) -> list[Value | None]:
        parts = [q, k, v]
        if offsets is not None:
            apart = np.split(offsets.numpy(), np.cumsum(widths)[:-1])
            for index, (part, offset) in enumerate(zip(parts, apart, strict=True)):
                given = build.constant(offset, f"{'qkv'[index]}_bias")
                parts[index] = build.op("Add", part, given, shape=part.type.shape)
        return _with_rest(op, _taken_apart(build, op, parts, mask, added))

    return write


def _inputs(op: Op) -> list[Value | None]:
    """All that the ops may read; None for what one does not."""
    read = op.inputs
    return [*read, *[None] * (_ALL_INPUTS - len(read))]


def _is_known(op: Op, data: Value, mask: Value | None) -> bool:
    """Whether heads, results and the mask are of a kind that is known."""
    if op.graph.model.opset < _RANGE or not op.attribute("num_heads", 0):
        return False
    if any(value is not None and value.is_read for value in op.outputs[1:]):
        return False
    if mask is None:
        return True
    shape = mask.type.shape or ()
    if len(shape) == _ENDS:  # with twice as many numbers, it holds beginnings as well
        return shape[0] is not None and shape[0] == (data.type.shape or (None,))[0]
    # One with a single place is for ONNX Runtime no mask.
    return len(shape) == _ROWS or (len(shape) == _PLACES and shape[-1] != 1)


def _have_one_length(q: Value, k: Value) -> bool:
    """Whether there are known to be as many queries as keys."""
    (queries, keys) = ((value.type.shape or (None, None))[axis] for value, axis in ((q, 1), (k, -2)))
    return queries is not None and queries == keys


def _with_rest(op: Op, result: Value) -> list[Value | None]:
    """A result, and nothing for the others, which are not read."""
    return [result, *[None] * (len(op.outputs) - 1)]


def _of_heads(build: Builder, op: Op, parts: list[Value], mask: Value | None, added: Value | None) -> Value:
    """The op that ONNX Runtime has for attention without projections."""
    kept = {name: op.attribute(name) for name in _SHARED if op.attribute(name) is not None}
    read, shape = (*parts, None, mask, added), parts[2].type.shape
    return build.op("MultiHeadAttention", *read, shape=shape, domain=op.domain, **kept)


def _taken_apart(
    build: Builder, op: Op, parts: list[Value], mask: Value | None, added: Value | None
) -> Value:
    """What attention makes of queries, keys and values, in products of heads."""
    q, k, v = parts
    heads = op.attribute("num_heads", 0)
    places = build.places(k, len(k.type.shape or ()) - 2)
    addends = [] if mask is None else [_of_mask(build, op, mask, places)]
    addends += [_of_order(build, build.places(q, 1), places)] if op.attribute("unidirectional", 0) else []
    addends += [] if added is None else [added]
    total = addends[0] if addends else None
    for addend in addends[1:]:
        assert total is not None
        total = build.op("Add", total, addend, shape=_together(total.type.shape, addend.type.shape))
    scale = op.attribute("scale", 0.0) or None
    shapes = [of_heads(value.type.shape, heads) for value in parts]
    return Attention((q, k, v), shapes, total, scale).write(build)


def _of_mask(build: Builder, op: Op, mask: Value, places: Value) -> Value:
    """What a mask adds to scores: nothing to those of keys that are shown."""
    shape = mask.type.shape or ()
    (length,) = places.type.shape or (None,)
    if len(shape) == _ENDS:
        ends = build.op("Cast", mask, shape=shape, type=TensorProto.INT64, to=TensorProto.INT64)
        ends = build.unsqueeze(ends, (1, 2, 3), (shape[0], 1, 1, 1))
        shown = build.op("Greater", ends, places, shape=(shape[0], 1, 1, length), type=TensorProto.BOOL)
    else:
        none = build.constant(np.array(0, np.int32), "none")
        shown = build.op("Greater", mask, none, shape=shape, type=TensorProto.BOOL)
        axes = (1, 2) if len(shape) == _PLACES else (1,)
        rows = (1,) if len(shape) == _PLACES else shape[1:-1]
        shown = build.unsqueeze(shown, axes, (shape[0], 1, *rows, shape[-1]))
    hidden = op.attribute("mask_filter_value", _HIDDEN)
    return _added_where(build, shown, 0.0, hidden)


def _of_order(build: Builder, of_queries: Value, of_keys: Value) -> Value:
    """What is added to scores so that a query sees nothing behind its own place."""
    (rows,), (columns,) = (value.type.shape or (None,) for value in (of_queries, of_keys))
    own = build.unsqueeze(of_queries, (1,), (rows, 1))
    later = build.op("Greater", of_keys, own, shape=(rows, columns), type=TensorProto.BOOL)
    return _added_where(build, later, float(np.finfo(np.float32).min), 0.0)


def _added_where(build: Builder, condition: Value, number: float, other: float) -> Value:
    numbers = (build.constant(np.array(one, np.float32), "added") for one in (number, other))
    return build.op("Where", condition, *numbers, shape=condition.type.shape)


def _together(first: Shape | None, second: Shape | None) -> Shape:
    """The shape of a sum."""
    pairs = zip_longest(reversed(first or ()), reversed(second or ()), fillvalue=1)
    return tuple(other if one == 1 else one for one, other in pairs)[::-1]
