"""Convolutions of many products, for processors with matrix units: weights one step lower, and back.

ONNX Runtime has a kernel of its own for convolutions by weights whose zero points are 0, which multiplies
vectors, and takes it on processors with AMX too. Any other zero point leads to its matrix product, which uses
the matrix unit: for sums of many products that is up to twice as fast, for short ones slower, since the sums
go through memory before they are rounded. Codes of a narrow grid have room for one step down, and codes and
zero points that move together stand for the same numbers, so the results are the same.
"""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto

from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from .integer_convolution import IntegerConvolution, integer_convolution, replace_codes, replace_constant

_SHIFTED = -1
_LOWEST, _HIGHEST = np.iinfo(np.int8).min, np.iinfo(np.int8).max


def shift_weights(model: Model, rewriter: Rewriter, products: int) -> None:
    """Moves int8 weights per channel by -1 where a result of the convolution sums ``products`` or more."""
    for graph in list(model.graphs()):
        for op in graph.ops():
            found = integer_convolution(op)
            if found is None or not _has_zero_points(found, 0):
                continue
            long = prod(found.array.shape[1:]) >= products
            if long and found.codes.type.elem_type == TensorProto.UINT8 and found.array.min() > _LOWEST:
                _move(rewriter, found, _SHIFTED)


def unshift_weights(model: Model, rewriter: Rewriter) -> None:
    """Moves such weights back; where they were made like that, they stay the same numbers all the same."""
    for op in model.ops():
        found = integer_convolution(op)
        if found is not None and _has_zero_points(found, _SHIFTED) and found.array.max(initial=0) < _HIGHEST:
            with rewriter.action("unshift weights", op):
                _move(rewriter, found, -_SHIFTED)


def _has_zero_points(found: IntegerConvolution, value: int) -> bool:
    """Whether every one of several channels has that zero point, and the codes are signed."""
    points = found.zero_points
    return points.dtype == np.int8 and points.size > 1 and bool((points == value).all())


def _move(rewriter: Rewriter, found: IntegerConvolution, step: int) -> None:
    replace_codes(rewriter, found, (found.array + step).astype(np.int8))
    replace_constant(rewriter, found.weight, 2, (found.zero_points + step).astype(np.int8))
