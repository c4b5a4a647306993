"""Weights of recurrent ops that are dequantized from stored codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import constant_numbers
from qc.ir.graph import Op, Value

BYTES = (TensorProto.INT8, TensorProto.UINT8)
_CODES = (*BYTES, TensorProto.INT4, TensorProto.UINT4)


class StoredWeight(NamedTuple):
    """A weight that is dequantized from a constant, with zero points of 0.

    Attributes:
        codes: (directions, gates, inputs), perhaps captured.
        scale: of the whole tensor, or of each gate.
    """

    codes: Value
    scale: np.ndarray

    @property
    def array(self) -> np.ndarray:
        """The codes in 8 bits."""
        assert self.codes.original.const is not None
        array = self.codes.original.const.numpy()
        return array if array.dtype == np.uint8 else array.astype(np.int8)


def stored_weight(op: Op, port: int) -> StoredWeight | None:
    """The weight that an op reads, if a DequantizeLinear makes it of codes with zero points of 0."""
    value = op.inputs[port]
    source = value.producer if value is not None else None
    if source is None or source.op_type != "DequantizeLinear" or source.attribute("block_size", 0):
        return None
    codes, scale, zero_point = (*source.inputs, None)[:3]
    if codes is None or codes.original.const is None or codes.type.elem_type not in _CODES:
        return None
    scales, points = constant_numbers(scale), constant_numbers(zero_point)
    if scales is None or (zero_point is not None and (points is None or points.any())):
        return None
    fits = not scales.ndim or source.attribute("axis", 1) % 3 == 1
    return StoredWeight(codes, scales) if fits and len(codes.original.const.shape) == 3 else None
