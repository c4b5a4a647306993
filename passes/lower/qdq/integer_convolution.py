"""Convolutions on integers as lowering writes them: the parts of one, and other codes for its weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import initializer
from qc.ir.graph import Op, Value
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType

BYTES = (TensorProto.INT8, TensorProto.UINT8)


class IntegerConvolution(NamedTuple):
    """An ungrouped convolution of codes by stored codes; nothing else reads its two DequantizeLinear ops.

    Attributes:
        data: the DequantizeLinear op of what is convolved.
        codes: what it dequantizes.
        weight: the DequantizeLinear op of the weight.
        weights: what it dequantizes, a constant of 8-bit codes that no body captures.
        zero_points: the zero points of the weight.
    """

    data: Op
    codes: Value
    weight: Op
    weights: Value
    zero_points: np.ndarray

    @property
    def array(self) -> np.ndarray:
        """The codes of the weight."""
        assert self.weights.const is not None
        return self.weights.const.numpy()


def integer_convolution(op: Op) -> IntegerConvolution | None:
    """The parts of such a convolution; None for other ops."""
    if not op.is_type("Conv") or op.attribute("group", 1) != 1:
        return None
    data, weight = (value.producer if value is not None else None for value in op.inputs[:2])
    for source in (data, weight):
        if source is None or source.op_type != "DequantizeLinear" or source.attribute("block_size", 0):
            return None
        if len(source.inputs) < 3 or source.only_use is None:
            return None
    assert data is not None and weight is not None
    codes, weights = data.inputs[0], weight.inputs[0]
    zero_points = initializer(weight.inputs[2])
    if codes is None or weights is None or weights.const is None or zero_points is None:
        return None
    stored = weights.const.data_type in BYTES and not weights.capturing
    if not stored or weights.is_output:
        return None
    return IntegerConvolution(data, codes, weight, weights, zero_points.numpy())


def replace_codes(rewriter: Rewriter, found: IntegerConvolution, codes: np.ndarray) -> None:
    """Stores other codes of the weight under the same name, and says so in the types behind them."""
    replace_constant(rewriter, found.weight, 0, codes)
    channels = codes.shape[1]
    for op in (found.data, found.weight):
        result = op.outputs[0]
        assert result is not None
        elem_type, shape = result.type
        if shape is not None:
            rewriter.set_type(result, ValueType(elem_type, (shape[0], channels, *shape[2:])))


def replace_constant(rewriter: Rewriter, op: Op, port: int, array: np.ndarray) -> None:
    """Lets an op read other numbers; under the same name, unless something else reads those it read."""
    graph = op.graph
    old = op.inputs[port]
    assert old is not None
    new = rewriter.add_constant(graph, array, old.name)
    rewriter.set_input(op, port, new)
    if old.const is not None and not old.is_read:
        rewriter.swap_names(old, new)
    rewriter.drop_unread(old)
