"""Products of integers whose grids are found at every run, as the products of floats that they stand for."""

from __future__ import annotations

from functools import reduce

import numpy as np

from qc.ir.facts.constants import constant_numbers
from qc.ir.graph import Op, Value

from .twins import FloatTwins, Grid, NoTwin, dynamic_grid, known_numbers, needed, replace


def integer_product(twins: FloatTwins, op: Op) -> None:
    """A MatMulInteger or ConvInteger, made float and multiplied by the scales of both inputs."""
    end, scales = _scaled(op)
    given, weight, given_zero, weight_zero = (*op.inputs, None, None)[:4]
    known = [found for scale in scales if (found := constant_numbers(scale)) is not None]
    factor = reduce(np.multiply, known) if known else None
    computed = [scale for scale in scales if constant_numbers(scale) is None]
    x = _operand(twins, given, given_zero, computed)
    if constant_numbers(weight) is None:
        y = _operand(twins, weight, weight_zero, computed)
        if factor is not None:
            raise NoTwin
    else:
        if factor is None:
            raise NoTwin
        y = _weight(twins, op, weight, weight_zero, factor)
    if computed:
        raise NoTwin
    replace(twins, op, [end], "Conv" if op.is_type("ConvInteger") else "MatMul", [x, y])


def _scaled(op: Op) -> tuple[Value, list[Value]]:
    """What the accumulators are at last, and all that they were multiplied by."""
    cast = op.only_use
    if cast is None or not cast.op.is_type("Cast"):
        raise NoTwin
    value, product = cast.op.outputs[0], cast.op.only_use
    if product is None or not product.op.is_type("Mul"):
        raise NoTwin
    end = product.op.outputs[0]
    others = [given for given in product.op.inputs if given is not None and given is not value]
    if end is None or len(others) != 1:
        raise NoTwin
    return end, _factors(others[0])


def _factors(value: Value) -> list[Value]:
    """What is multiplied to a scale."""
    op = value.producer
    if op is None or not op.is_type("Mul") or constant_numbers(value) is not None:
        return [value]
    return [factor for given in op.inputs if given is not None for factor in _factors(given)]


def _operand(twins: FloatTwins, codes: Value | None, zero_point: Value | None, scales: list[Value]) -> Value:
    """The twin of codes with a computed grid, whose scale is taken out of ``scales``."""
    made = codes.original.producer if codes is not None else None
    while made is not None and not made.is_type("DynamicQuantizeLinear"):  # codes that were moved
        source = made.inputs[0] if made.num_inputs else None
        made = source.original.producer if source is not None else None
    if made is None:
        raise NoTwin
    grid = dynamic_grid(made)
    found = next((scale for scale in scales if scale.original is grid.scale.original), None)
    same_zero = zero_point is not None and grid.zero_point is not None
    if found is None or not (same_zero and zero_point.original is grid.zero_point.original):  # type: ignore[union-attr]
        raise NoTwin
    scales.remove(found)
    return twins.of(codes, grid)


def _weight(
    twins: FloatTwins, op: Op, weight: Value | None, zero_point: Value | None, scale: np.ndarray
) -> Value:
    """The float weight, on the axis of whose channels the scale lies in the result."""
    assert weight is not None
    codes = known_numbers(weight).astype(np.int32)
    zero = known_numbers(zero_point).astype(np.int32) if zero_point is not None else np.zeros(1, np.int32)
    channels = 0 if op.is_type("ConvInteger") else codes.ndim - 1
    lined_up = [-1 if axis == channels else 1 for axis in range(codes.ndim)]
    for parameter in (zero, scale):
        if parameter.size not in (1, codes.shape[channels]):
            raise NoTwin
    array = (codes - zero.reshape(lined_up)).astype(np.float32) * scale.astype(np.float32).reshape(lined_up)
    return twins.constant(weight, array)


def dynamic_matmul(twins: FloatTwins, op: Op) -> None:
    """A DynamicQuantizeMatMul, which takes float data and codes of a weight."""
    x, weight, scale, zero_point, bias = (*op.inputs, None, None)[:5]
    _product(twins, op, x, weight, Grid(needed(scale), zero_point, -1), bias)


def matmul_to_float(twins: FloatTwins, op: Op) -> None:
    """A MatMulIntegerToFloat, which takes codes of both."""
    inputs = (*op.inputs, None, None, None)[:7]
    x, weight, x_scale, scale, x_zero, zero_point, bias = inputs
    given = twins.of(x, Grid(needed(x_scale), x_zero))
    _product(twins, op, given, weight, Grid(needed(scale), zero_point, -1), bias)


def _product(
    twins: FloatTwins, op: Op, x: Value | None, weight: Value | None, grid: Grid, bias: Value | None
) -> None:
    results, given = op.outputs, [x, twins.of(weight, grid)]
    if bias is not None:
        given = [twins.add_op(op, "MatMul", given), bias]
    replace(twins, op, results, "MatMul" if bias is None else "Add", given, {})


def dynamic_lstm(twins: FloatTwins, op: Op) -> None:
    """A DynamicQuantizeLSTM, whose weights are transposed and have a scale for each direction or channel."""
    inputs = (*op.inputs, *[None] * 12)[:12]
    weights = [
        _lstm_weight(twins, inputs[port], inputs[scale], inputs[scale + 1])
        for port, scale in ((1, 8), (2, 10))
    ]
    given = [inputs[0], *weights, *inputs[3:8]]
    replace(twins, op, op.outputs, "LSTM", given)


def _lstm_weight(
    twins: FloatTwins, codes: Value | None, scale: Value | None, zero_point: Value | None
) -> Value:
    array, scales = known_numbers(codes).astype(np.int32), known_numbers(scale)
    zeros = (
        known_numbers(zero_point).astype(np.int32) if zero_point is not None else np.zeros_like(scales, int)
    )
    per_direction = (array.shape[0], 1, -1)
    steps = (array - zeros.reshape(per_direction)).astype(np.float32)
    weight = steps * scales.reshape(per_direction)
    return twins.constant(needed(codes), np.ascontiguousarray(weight.transpose(0, 2, 1)))


def attention(twins: FloatTwins, op: Op) -> None:
    """A QAttention, which takes codes of data and weight."""
    inputs = (*op.inputs, *[None] * 9)[:9]
    x = twins.of(inputs[0], Grid(needed(inputs[3]), inputs[6]))
    weight = twins.of(inputs[1], Grid(needed(inputs[4]), inputs[7], -1))
    given = [x, weight, inputs[2], inputs[5], inputs[8]]
    replace(twins, op, op.outputs, "Attention", given, domain=op.domain)


def embedding(twins: FloatTwins, op: Op) -> None:
    """A QEmbedLayerNormalization, which takes codes of tables and norms."""
    inputs = (*op.inputs, *[None] * 18)[:18]
    tables = [
        twins.of(codes, Grid(needed(inputs[8 + index]), inputs[13 + index])) if codes is not None else None
        for index, codes in enumerate(inputs[2:7])
    ]
    given = [*inputs[:2], *tables, inputs[7]]
    replace(twins, op, op.outputs, "EmbedLayerNormalization", given, domain=op.domain)
