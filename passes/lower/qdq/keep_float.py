"""Keeps products in float, or in integers, where ONNX Runtime would do the other by itself, and back.

ONNX Runtime rounds a float weight of a Conv, ConvTranspose or Gemm to 8 bits with one scale for all channels
if its data comes from a DequantizeLinear and its result goes to a QuantizeLinear (WeightBiasQuantization is
its name there). Small channels of the weight are lost. A float bias beside a weight in codes becomes 32-bit
integers, whether it fits into them or not. ONNX Runtime looks through Relu and Clip alone, so a LeakyRelu of
slope 1 keeps it from that: it changes no number, and becomes part of the convolution or Gemm when the model
is loaded.

A product of codes whose result stays float becomes an integer op. It does not in front of a Relu or Clip that
is its only reader, be it behind a bias, has one reader itself, and does what no QuantizeLinear behind it
would do anyway: then it is computed in float. Nor does a MatMul of two axes in front of an Add of what is no
dequantized constant, or a Gemm without bias in front of a Sum of two: both become one Gemm, which has no
integers for that, and whose weight is dequantized in every run. There the LeakyRelu costs an op, and saves
the integers.

:mod:`.keep_barred` and :mod:`.keep_layout` have further cases of ONNX Runtime, :mod:`.openvino` those of
OpenVINO.
"""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import initializer
from qc.ir.facts.op_traits import bias_port, is_grid_preserving
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ...framework.target import Target
from .keep_barred import keep_barred, keep_weighed_by_data
from .keep_layout import keep_layout
from .neighbours import (
    PRODUCTS,
    comes_to,
    dequantize_behind,
    end_of_product,
    is_constant,
    only_reader,
    put_identity_behind,
    stored_codes,
)
from .openvino.constants import keep_constants
from .openvino.products import joined_to_keep_apart, result_to_keep_apart
from .openvino.reductions import keep_reductions
from .openvino.shapes import keep_shapes

_LARGEST = np.iinfo(np.int32).max
_CPU = "CPUExecutionProvider"
_OPENVINO = "OpenVINOExecutionProvider"


def keep_kernels(model: Model, rewriter: Rewriter, target: Target | None) -> None:
    """Keeps ops apart that a runtime would make one of with other numbers."""
    provider = target.provider if target is not None else _CPU
    if not provider:
        return
    for graph in list(model.graphs()):
        for op in graph.ops():
            if op.is_type("Concat", *PRODUCTS) and (result := _result_to_keep(op, provider)) is not None:
                put_identity_behind(rewriter, result)
    if provider == _CPU:
        keep_layout(model, rewriter)
        if target is not None:
            keep_barred(model, rewriter, target)
    if target is not None:
        keep_weighed_by_data(model, rewriter, target)
    if provider == _OPENVINO:
        keep_reductions(model, rewriter)
        keep_constants(model, rewriter)
        keep_shapes(model, rewriter)


def unkeep_float(model: Model, rewriter: Rewriter) -> None:
    """Takes such LeakyRelu ops away again."""
    for op in [op for op in model.ops() if op.is_type("LeakyRelu")]:
        source, (result, *_) = op.inputs[0], op.outputs
        is_computed = source is not None and source.producer is not None
        if source is None or result is None or not is_computed or op.attribute("alpha", 0.01) != 1.0:
            continue
        with rewriter.action("unkeep float", op):
            rewriter.replace_uses(result, source)
            rewriter.erase_op(op)


def _result_to_keep(op: Op, provider: str) -> Value | None:
    """The tensor behind which the LeakyRelu of a product stands, if it needs one."""
    if op.is_type("Concat"):
        return joined_to_keep_apart(op) if provider == _OPENVINO else None
    if _is_quantized_by_itself(op) and _is_rounded(end := end_of_product(op)):
        return end
    if provider == _OPENVINO and _multiplies_moved_codes(op):
        return result_to_keep_apart(op)
    if not op.is_type("Gemm", "MatMul") or not _is_product_of_codes(op):
        return None
    if provider == _CPU and _is_kept_by_sum(op):
        return op.outputs[0]
    result = _with_bias(op)
    return result if result is not None and _is_kept_by_activation(result) else None


def _is_quantized_by_itself(op: Op) -> bool:
    """Whether data comes in codes, and the weight is a float constant or the bias too large for integers."""
    data, weight = op.inputs[:2]
    dequantize = dequantize_behind(data) if data is not None else None
    if dequantize is None or weight is None:
        return False
    of_weight = weight.producer
    if of_weight is None or not is_qdq(of_weight, "DequantizeLinear"):
        return is_constant(weight)
    return _has_too_large_bias(op, dequantize, of_weight)


def _has_too_large_bias(op: Op, data: Op, weight: Op) -> bool:
    port = bias_port(op)
    inputs = op.inputs
    bias = initializer(inputs[port]) if port is not None and port < len(inputs) else None
    of_data, of_weight = (initializer(source.inputs[1]) for source in (data, weight))
    if bias is None or of_data is None or of_weight is None or of_data.size != 1:
        return False
    scale = of_data.numpy().astype(np.float64) * of_weight.numpy()
    if scale.size not in (1, bias.size):
        return False
    return bool(np.any(np.abs(bias.numpy().ravel()) > _LARGEST * scale.ravel()))


def _is_rounded(value: Value) -> bool:
    """Whether a QuantizeLinear reads a tensor, be it behind an activation or ops that only move it."""
    return comes_to(
        value,
        lambda op: is_qdq(op, "QuantizeLinear"),
        lambda op: op.is_type("Relu", "Clip") or is_grid_preserving(op),
    )


def _is_product_of_codes(op: Op) -> bool:
    factors = op.inputs[:2]
    producers = (value.producer for value in factors if value is not None)
    return all(producer is not None and is_qdq(producer, "DequantizeLinear") for producer in producers)


def _multiplies_moved_codes(op: Op) -> bool:
    """Whether both factors are dequantized, be it before ops that only move them."""
    return all(value is not None and dequantize_behind(value) for value in op.inputs[:2])


def _with_bias(op: Op) -> Value | None:
    """The result of a product, or that of the bias behind it, with which a MatMul of two axes is a Gemm."""
    result, addend = op.outputs[0], _addend(op)
    reader = only_reader(result)
    if reader is None or addend is None or not (is_constant(addend) or stored_codes(addend)):
        return result
    return reader.outputs[0]


def _addend(op: Op) -> Value | None:
    """What is added to a product, which becomes a Gemm with it."""
    data, (result, *_) = op.inputs[0], op.outputs
    reader = only_reader(result)
    is_matrix = data is not None and data.type.rank in (None, 2)
    if reader is None or not is_matrix or reader.num_inputs != 2 or op.num_inputs != 2:
        return None
    if (op.op_type, reader.op_type) not in (("MatMul", "Add"), ("Gemm", "Sum")) or reader.domain:
        return None
    return next((value for value in reader.inputs if value is not result), None)


def _is_kept_by_sum(op: Op) -> bool:
    """Whether what is added to a MatMul makes a Gemm of it that has no integers."""
    addend = _addend(op)
    if addend is None or (addend.type.shape is not None and len(addend.type.shape) > 2):
        return False
    if stored_codes(addend) is not None:
        return False
    return not is_constant(addend) or not _is_rounded(end_of_product(op))


def _is_kept_by_activation(value: Value) -> bool:
    """Whether an activation alone reads a tensor, and nothing behind it rounds to a grid that begins at 0."""
    activation = only_reader(value)
    if activation is None or not activation.is_type("Relu", "Clip"):
        return False
    reader: Op | None = activation
    while reader is not None and (reader is activation or is_grid_preserving(reader)):
        reader = only_reader(reader.outputs[0])
    if reader is None or not is_qdq(reader, "QuantizeLinear"):
        return only_reader(activation.outputs[0]) is not None
    zero_point = reader.inputs[2:]
    codes = initializer(zero_point[0]) if zero_point else None
    return codes is not None and bool(np.any(codes.numpy()))
