"""Which unit of the HTP computes a convolution, as its emulator shows, and how codes are made there."""

from __future__ import annotations

from qc.ir.facts.op_traits import is_depthwise
from qc.ir.graph import Op
from qc.ir.quant.device_arithmetic import Arithmetic
from qc.ir.quant.spec import PerTensor, Quantizer

_MATRIX, _VECTOR = Arithmetic.MATRIX.value, Arithmetic.VECTOR.value
# The matrix unit takes kernels up to these lengths, those along both axes together: in strides, and of
# depthwise convolutions in places. A kernel along one axis is 1 long along the other.
_LONGEST, _LONGEST_DEPTHWISE = 64, 63
# With strides of 2 along both axes, the vector unit takes depthwise kernels that are shorter than the first
# of these, and the matrix unit those that are shorter than the second.
_OF_VECTORS, _OF_MATRICES = 8, 17


def kind_of_convolution(op: Op, weight: Quantizer | None) -> str:
    """How the codes of a Conv are made: ``matrix``, ``vector``, ``exact``, or empty if that is not known.

    Args:
        weight: what holds the grid of its weight.
    """
    kernel = _kernel(op)
    strides = op.attribute("strides", [1] * len(kernel))
    if not kernel or 0 in kernel or len(strides) != len(kernel):
        return ""
    in_strides = [-(-length // stride) for length, stride in zip(kernel, strides, strict=True)]
    other = int(len(kernel) == 1)
    if not is_depthwise(op):
        return "exact" if sum(in_strides) + other > _LONGEST else _MATRIX
    if max(strides) > 2:
        return ""
    longest, is_strided = max(kernel), len(strides) == 2 and min(strides) == 2
    if longest == 1 and not is_strided:  # a table of all codes for each channel, wrong by one scale for all
        has_one_scale = weight is None or isinstance(weight.spec.granularity, PerTensor)
        return "" if has_one_scale else "exact"
    if is_strided and 1 < longest < _OF_VECTORS:
        return _VECTOR
    is_long = longest >= _OF_MATRICES if is_strided else sum(kernel) + other > _LONGEST_DEPTHWISE
    return "exact" if is_long else _MATRIX


def _kernel(op: Op) -> tuple[int, ...]:
    """The lengths of its kernel, with 0 for what is not known; empty if nothing is."""
    weight = op.inputs[1]
    shape = weight.type.shape if weight is not None and weight.type.shape is not None else ()
    return tuple(length if isinstance(length, int) else 0 for length in shape[2:])
