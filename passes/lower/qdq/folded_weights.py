"""Stored weights of float products, dequantized once when ONNX Runtime loads the model, and back.

It runs a DequantizeLinear in every run, and has no convolution on codes beside float data, nor a Gemm or a
product by several matrices, nor one by a small matrix that is quicker than in float. Cast and Mul of
constants it computes when it loads the model: the file is small, and the time is that of the float op.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import constant_numbers
from qc.ir.facts.op_traits import traits, weight_port
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Graph, Op, Use, Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef
from qc.ir.value_type import Shape, ValueType

from .neighbours import dequantize_behind
from .stored_weight import BYTES

_PACKED = (TensorProto.INT4, TensorProto.UINT4)
_CASTS_PACKED = 21  # the first opset whose Cast reads packed codes; before, each code takes a byte
_FOLDED = ("convolution", "matrix")
_MATRIX = 2  # the rank of a weight that ONNX Runtime fuses with its DequantizeLinear


class _Weight(NamedTuple):
    """Codes and their grid; scale and zero point have the rank of the codes in blocks, or length 1."""

    codes: Value
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int
    block_size: int


def fold_weights(model: Model, rewriter: Rewriter, fewer: int = 0) -> list[str]:
    """Puts Cast and Mul in the place of each DequantizeLinear that ops on floats alone read, one by one.

    Args:
        fewer: matrices of fewer numbers are treated likewise.

    Returns:
        A note if codes that were packed had to be stored with one in each byte.
    """
    widened = False
    for graph in list(model.graphs()):
        for op in graph.ops():
            weight = _dequantized(op) if is_qdq(op, "DequantizeLinear") else None
            (result, *_) = op.outputs
            if weight is None or result is None or not _multiplies_floats(result, weight, fewer):
                continue
            if weight.codes.type.elem_type in _PACKED and model.opset < _CASTS_PACKED:
                weight, widened = weight._replace(codes=_in_bytes(rewriter, weight.codes)), True
            rewriter.replace_uses(result, _cast(rewriter, graph, weight))
            rewriter.erase_unread(result)
    if not widened:
        return []
    return [
        "weights of float ops, dequantized when the model is loaded, are stored with one code in each byte, "
        f"as no Cast before opset {_CASTS_PACKED} reads packed ones, and the model has opset {model.opset}: "
        f"exported with opset {_CASTS_PACKED} its file is smaller"
    ]


def unfold_weights(model: Model, rewriter: Rewriter) -> None:
    """Puts the DequantizeLinear ops back."""
    for op in model.ops():
        port = weight_port(op) if traits(op).product in _FOLDED else None
        folded = op.inputs[port] if port is not None else None
        weight = _folded(folded) if folded is not None else None
        if folded is None or weight is None:
            continue
        with rewriter.action("product of codes to dequantized ones", op):
            rewriter.replace_uses(folded, _dequantize(rewriter, op.graph, weight, folded.type))
            rewriter.erase_unread(folded)


def _dequantized(op: Op) -> _Weight | None:
    codes, scale, zero_point = (*op.inputs, None)[:3]
    scales, zeros = constant_numbers(scale), constant_numbers(zero_point)
    if codes is None or codes.const is None or scales is None or (zero_point is not None and zeros is None):
        return None
    if codes.type.elem_type not in (*BYTES, *_PACKED) or scales.dtype != np.float32:
        return None
    zeros = np.zeros(scales.shape, np.int8) if zeros is None else zeros
    rank, size = len(codes.const.shape), op.attribute("block_size", 0)
    axis = op.attribute("axis", 1) % max(rank, 1)
    if scales.ndim == 1 and not size:
        shape = tuple(-1 if index == axis else 1 for index in range(rank))
        scales, zeros = scales.reshape(shape), zeros.reshape(shape)
    if size and codes.const.shape[axis] % size:
        return None
    return _Weight(codes, scales, zeros, axis, size)


def _in_bytes(rewriter: Rewriter, codes: Value) -> Value:
    assert codes.const is not None
    byte = np.uint8 if codes.type.elem_type == TensorProto.UINT4 else np.int8
    return rewriter.add_constant(codes.graph, codes.const.numpy().astype(byte), codes.name)


def _multiplies_floats(value: Value, weight: _Weight, fewer: int) -> bool:
    uses, (codes, *_) = value.uses, weight
    assert codes.const is not None
    is_small, is_matrix = codes.const.size < fewer, len(codes.const.shape) == _MATRIX
    fused = is_matrix and not is_small
    return bool(uses) and all(_is_of_floats(use, fused) for use in uses) and not value.is_output


def _is_of_floats(use: Use, fused: bool) -> bool:
    """Whether an op on floats reads its weight there; not if ONNX Runtime makes a MatMul of codes of it."""
    op, port = use
    data = op.inputs[0]
    if traits(op).product not in _FOLDED or port != weight_port(op) or data is None:
        return False
    pair, is_fused = dequantize_behind(data), op.is_type("MatMul")
    return not (fused and is_fused) if pair is None else is_fused and _is_wide(pair)


def _is_wide(pair: Op) -> bool:
    """Whether codes have 16 bits, for which ONNX Runtime has no product: it takes floats.

    Of a MatMul by codes of a weight it would make one that rounds such data to 8 bits.
    """
    codes = pair.inputs[0]
    return codes is not None and codes.type.elem_type in (TensorProto.INT16, TensorProto.UINT16)


def _cast(rewriter: Rewriter, graph: Graph, weight: _Weight) -> Value:
    """The result of Cast and Mul, and of a Sub if there are zero points; blocks get an axis of their own."""
    codes, (_, scale, zero_point, axis, size) = weight.codes, weight
    assert codes.const is not None
    shape = codes.const.shape
    value = _add(rewriter, graph, "Cast", [codes], shape, {"to": TensorProto.FLOAT})
    if size:
        split = (*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])
        value = _reshape(rewriter, value, split)
        scale, zero_point = (np.expand_dims(array, axis + 1) for array in (scale, zero_point))
    if zero_point.any():
        zeros = rewriter.add_constant(graph, zero_point.astype(np.float32), f"{codes.name}_zero")
        value = _add(rewriter, graph, "Sub", [value, zeros], value.type.shape)
    factor = rewriter.add_constant(graph, scale, f"{codes.name}_factor")
    value = _add(rewriter, graph, "Mul", [value, factor], value.type.shape)
    return _reshape(rewriter, value, shape) if size else value


def _reshape(rewriter: Rewriter, value: Value, shape: tuple[int, ...]) -> Value:
    lengths = rewriter.add_constant(value.graph, np.array(shape), f"{value.name}_shape")
    return _add(rewriter, value.graph, "Reshape", [value, lengths], shape)


def _add(
    rewriter: Rewriter,
    graph: Graph,
    op_type: str,
    inputs: list[Value],
    shape: Shape | None,
    attributes: dict[str, object] | None = None,
) -> Value:
    result = rewriter.add_value(graph, f"{inputs[0].name}_{op_type}", ValueType(TensorProto.FLOAT, shape))
    rewriter.add_op(graph, op_type, inputs, [result], attributes)
    return result


# -- back ---------------------------------------------------------------------------------------------------


def _folded(value: Value) -> _Weight | None:
    """The weight that such ops make a tensor of."""
    end, whole = _before(value, "Reshape")
    scaled, scale = _operand(end, "Mul")
    shifted, zero = _operand(scaled, "Sub")
    begin, _ = _before(shifted, "Reshape")
    codes, _ = _before(begin, "Cast")
    if (
        codes is begin
        or codes.const is None
        or scale is None
        or codes.type.elem_type not in (*BYTES, *_PACKED)
    ):
        return None
    zero_point = np.zeros_like(scale) if zero is None else zero
    shape = codes.const.shape
    if not _are_codes(zero_point, codes.type.elem_type):  # of a product that was no DequantizeLinear
        return None
    if scale.shape != zero_point.shape or (whole is None) != (begin is shifted):
        return None
    if whole is None:
        long = [axis for axis, length in enumerate(scale.shape) if length > 1]
        fits = scale.ndim in (0, len(shape)) and len(long) <= 1
        return _Weight(codes, scale, zero_point, long[0] if long else 0, 0) if fits else None
    split = shifted.type.shape or ()
    lengths = [
        axis for axis in range(len(shape)) if split[:axis] == shape[:axis] and split[axis:] != shape[axis:]
    ]
    axis = lengths[-1] if lengths else 0
    size = split[axis + 1] if len(split) == len(shape) + 1 else 0
    if not isinstance(size, int) or not size or scale.shape[axis + 1] != 1:
        return None
    return _Weight(codes, scale.squeeze(axis + 1), zero_point.squeeze(axis + 1), axis, size)


def _are_codes(numbers: np.ndarray, elem_type: int) -> bool:
    """Whether numbers are whole and within the limits of a type."""
    format = IntFormat(4 if elem_type in _PACKED else 8, elem_type in (TensorProto.INT4, TensorProto.INT8))
    return bool(np.all(numbers == np.clip(np.rint(numbers), format.lowest, format.highest)))


def _before(value: Value, op_type: str) -> tuple[Value, np.ndarray | None]:
    """What an op of a type made a tensor of, with its other input; the tensor itself if no such op did."""
    producer = value.producer
    if producer is None or not producer.is_type(op_type):
        return value, None
    source, other = (*producer.inputs, None)[:2]
    return (source, constant_numbers(other)) if source is not None else (value, None)


def _operand(value: Value, op_type: str) -> tuple[Value, np.ndarray | None]:
    source, constant = _before(value, op_type)
    return (source, constant) if constant is not None else (value, None)


def _dequantize(rewriter: Rewriter, graph: Graph, weight: _Weight, type: ValueType) -> Value:
    codes, (_, scale, zero_point, axis, size) = weight.codes, weight
    attributes: dict[str, object] = {"axis": axis, "block_size": size} if size else {"axis": axis}
    if not size:
        scale, zero_point = (
            array.ravel() if array.size > 1 else array.reshape(()) for array in (scale, zero_point)
        )
    zeros = TensorRef.from_array(zero_point.astype(np.int32), codes.type.elem_type)
    inputs = [
        codes,
        rewriter.add_constant(graph, np.ascontiguousarray(scale), f"{codes.name}_scale"),
        rewriter.add_constant(graph, zeros, f"{codes.name}_zero_point"),
    ]
    return _add(rewriter, graph, "DequantizeLinear", inputs, type.shape, attributes)
