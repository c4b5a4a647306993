"""Normalizations of ONNX Runtime's own domain, with the sums and lookups in front of them."""

from __future__ import annotations

import numpy as np

from qc.ir.graph import Op, Value

from .builder import Builder, Writer

_NORMALIZES = 17  # the first opset with a LayerNormalization
_SCALES = 23  # the first with an RMSNormalization
_RANGE = 11  # the first opset with one
_EPSILON = 1e-12  # that of ops that do not say
_EPSILON_ALONE = 1e-5  # of one without a sum


def skip_layer_norm(op: Op) -> Writer | None:
    """The LayerNormalization of a sum of data, of what skipped some ops, and of a bias."""
    data, skip, scale, shift, bias = _inputs(op, 5)
    return _of_sum(op, [data, skip, bias], scale, shift)


def skip_rms_norm(op: Op) -> Writer | None:
    """The same without mean and shift, ``SkipSimplifiedLayerNormalization``."""
    data, skip, scale, bias = _inputs(op, 4)
    return _of_sum(op, [data, skip, bias], scale, None)


def rms_norm(op: Op) -> Writer | None:
    """The one without a sum, which ONNX Runtime has in ONNX's domain, ``SimplifiedLayerNormalization``."""
    data, scale = _inputs(op, 2)
    _, *rest = op.outputs
    if data is None or scale is None or any(value is not None and value.is_read for value in rest):
        return None
    if op.attribute("axis", -1) not in (-1, len(data.type.shape or ()) - 1):
        return None

    def write(build: Builder) -> list[Value | None]:
        return [_normalized(build, op, data, scale, None), *[None] * len(rest)]

    return write


def embedding(op: Op) -> Writer | None:
    """The LayerNormalization of a sum of rows that are looked up: of words, places and segments.

    The number of words that a mask shows is a result, too.
    """
    words, segments, of_words, of_places, of_segments, scale, shift, mask, places = _inputs(op, 9)
    results = [*op.outputs, None, None][:3]
    shape, rows = words.type.shape if words else None, of_words.type.shape if of_words else None
    counts = results[1] is not None and results[1].is_read
    if (
        words is None
        or of_words is None
        or of_places is None
        or scale is None
        or op.graph.model.opset < _RANGE
    ):
        return None
    if shape is None or len(shape) != 2 or not rows or (counts and mask is None):
        return None

    def write(build: Builder) -> list[Value | None]:
        made = (*shape, rows[-1])
        total = build.op("Gather", of_words, words, shape=made, axis=0)
        for table, indices in ((of_places, places or build.places(words, 1)), (of_segments, segments)):
            if table is not None and indices is not None:
                found = (*(indices.type.shape or ()), rows[-1])
                looked_up = build.op("Gather", table, indices, shape=found, axis=0)
                total = build.op("Add", total, looked_up, shape=made)
        count = _sum_of_rows(build, mask, shape[0]) if counts and mask is not None else None
        normal = _normalized(build, op, total, scale, shift)
        return [normal, count, total][: len(op.outputs)]

    return write


def _inputs(op: Op, count: int) -> list[Value | None]:
    return [*op.inputs, *[None] * count][:count]


def _of_sum(op: Op, addends: list[Value | None], scale: Value | None, shift: Value | None) -> Writer | None:
    """The normalization of a sum, which may be read itself; mean and deviation may not."""
    data, skip, bias = addends
    results = op.outputs
    if data is None or skip is None or scale is None:
        return None
    if any(value is not None and value.is_read for value in results[1:3]):
        return None

    def write(build: Builder) -> list[Value | None]:
        total = build.op("Add", data, skip, shape=data.type.shape)
        if bias is not None:
            total = build.op("Add", total, bias, shape=data.type.shape)
        return [_normalized(build, op, total, scale, shift), None, None, total][: len(results)]

    return write


def _normalized(build: Builder, op: Op, data: Value, scale: Value, shift: Value | None) -> Value:
    """A tensor normalized along its last axis, as the op does it."""
    least = _EPSILON_ALONE if op.op_type == "SimplifiedLayerNormalization" else _EPSILON
    shape, epsilon = data.type.shape, op.attribute("epsilon", least)
    is_centred = "Simplified" not in op.op_type
    if is_centred and op.graph.model.opset >= _NORMALIZES:
        given = [scale] if shift is None else [scale, shift]
        return build.op("LayerNormalization", data, *given, shape=shape, axis=-1, epsilon=epsilon)
    if not is_centred and op.graph.model.opset >= _SCALES:
        return build.op("RMSNormalization", data, scale, shape=shape, axis=-1, epsilon=epsilon)
    if is_centred:
        data = build.op("Sub", data, _mean(build, data), shape=shape)
    # ONNX Runtime and OpenVINO make one op of this, which they do not of a product of the data with itself.
    two = build.constant(np.array(2, np.float32), "two")
    squares = _mean(build, build.op("Pow", data, two, shape=shape))
    smallest = build.constant(np.array(epsilon, np.float32), "epsilon")
    variance = build.op("Add", squares, smallest, shape=squares.type.shape)
    deviation = build.op("Sqrt", variance, shape=squares.type.shape)
    normal = build.op("Div", data, deviation, shape=shape)
    normal = build.op("Mul", normal, scale, shape=shape)
    return normal if shift is None else build.op("Add", normal, shift, shape=shape)


def _mean(build: Builder, data: Value) -> Value:
    shape = data.type.shape
    return build.along([-1], "ReduceMean", data, shape=(*shape[:-1], 1) if shape else None)


def _sum_of_rows(build: Builder, mask: Value, count: int | str | None) -> Value:
    """How many numbers of each row are 1; the others are 0."""
    return build.along([1], "ReduceSum", mask, shape=(count,), type=mask.type.elem_type, keepdims=0)
