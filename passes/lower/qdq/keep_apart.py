"""Keeps a product apart from what OpenVINO would compute with it in wrong numbers.

A LeakyRelu of slope 1 changes no number, becomes part of the product when the model is loaded, and takes no
time. OpenVINO 2026.4 needs it

* in a chain of products with few rows, which it computes as one kernel: behind one without a bias that is
  rounded, numbers are random;
* behind a product to whose result axes of length 1 are appended, or which is pooled or resized: it moves the
  scales of channels across that, and to the second axis from the last, or ends there;
* between a convolution of 1 x 1 with strides and a Transpose, which it takes for one to channels last.
"""

from __future__ import annotations

from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_traits import bias_port, is_grid_preserving
from qc.ir.facts.qdq import is_qdq
from qc.ir.graph import Op, Value

from ...simplify.fold_constants import constant_ops

# With constants, these become part of the product in front of them.
FOLDED = ("Add", "BatchNormalization", "Div", "Mul", "Sub")
_POOLS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "Resize")
_Shape = tuple[int | str | None, ...]


def result_to_keep_apart(op: Op) -> Value | None:
    """The tensor of a product behind which the LeakyRelu stands; None if it needs none.

    Args:
        op: a Conv, ConvTranspose, Gemm or MatMul of codes.
    """
    result, end = op.graph.op_outputs(op)[0], end_of_product(op)
    if op.is_type("Conv"):
        return end if _is_strided_point(op) and _is_transposed(end) else None
    if not op.is_type("Gemm", "MatMul"):
        return None
    return result if _is_chained(op) else end if _is_moved_along(end) else None


def only_reader(value: Value | None) -> Op | None:
    """The op that reads a tensor, if nothing else does."""
    uses = value.graph.uses(value) if value is not None else []
    return uses[0].op if value is not None and len(uses) == 1 and value not in value.graph.outputs else None


def end_of_product(op: Op) -> Value:
    """The result of a product with what becomes part of it."""
    graph = op.graph
    (result, *_) = graph.op_outputs(op)
    assert result is not None
    while len(uses := graph.uses(result)) == 1 and uses[0].op.is_type(*FOLDED):
        reader = uses[0].op
        others = [value for value in graph.op_inputs(reader) if value is not None and value is not result]
        (behind, *_) = graph.op_outputs(reader)
        if behind is None or not others or not all(map(is_constant, others)):
            break
        result = behind
    return result


def is_constant(value: Value) -> bool:
    """Whether a tensor is computed from constants alone, which ONNX Runtime does when it loads the model."""
    return constant_data(value) is not None or value.graph.producer(value) in constant_ops(value.graph)


def _is_chained(op: Op) -> bool:
    """Whether a product by a weight is rounded for another one, and a factor is the last to come before that.

    That is one by a constant, or the scale of the product where it has no bias. Relu and Clip let it pass.
    """
    if not _is_by_stored_weight(op):
        return False
    port, (result, *_) = bias_port(op), op.graph.op_outputs(op)
    is_scaled, value = port is None or port >= op.num_inputs, result
    while value is not None and (reader := only_reader(value)) is not None:
        if is_qdq(reader, "QuantizeLinear"):
            return is_scaled and _leads_to_product(reader)
        if not reader.is_type("Relu", "Clip") and not is_grid_preserving(reader):
            is_scaled = reader.is_type("Div", "Mul")
        value = reader.graph.op_outputs(reader)[0]
    return False


def _leads_to_product(quantize: Op) -> bool:
    """Whether codes are multiplied by a stored weight, be they moved before."""
    graph, waiting = quantize.graph, [quantize]
    for op in waiting:
        readers = [use.op for value in graph.op_outputs(op) if value is not None for use in graph.uses(value)]
        if any(reader.is_type("Gemm", "MatMul") and _is_by_stored_weight(reader) for reader in readers):
            return True
        waiting += [one for one in readers if is_qdq(one, "DequantizeLinear") or is_grid_preserving(one)]
    return False


def _is_by_stored_weight(op: Op) -> bool:
    graph, weight = op.graph, op.graph.op_inputs(op)[1]
    producer = graph.producer(weight) if weight is not None else None
    codes = graph.op_inputs(producer)[0] if producer is not None else None
    return codes is not None and codes.const is not None


def _is_moved_along(value: Value) -> bool:
    """Whether a tensor is pooled or resized, or gets axes of length 1 behind its own."""
    shape, waiting, graph = value.type.shape or (), [value], value.graph
    while waiting and shape:
        for op, _ in graph.uses(waiting.pop()):
            moved = [result for result in graph.op_outputs(op) if result is not None]
            if op.is_type(*_POOLS):
                return True
            if is_grid_preserving(op) or op.is_type("Neg", "Pad"):
                waiting.extend(moved)
                if any(_appends_ones(shape, result.type.shape or ()) for result in moved):
                    return True
    return False


def _appends_ones(shape: _Shape, longer: _Shape) -> bool:
    return longer[: len(shape)] == shape and set(longer[len(shape) :]) == {1}


def _is_strided_point(op: Op) -> bool:
    """Whether a convolution has a kernel of one element, and strides."""
    weight = op.graph.op_inputs(op)[1]
    kernel = (weight.type.shape or ())[2:] if weight is not None else ()
    return set(kernel) == {1} and set(op.attribute("strides", [1])) != {1}


def _is_transposed(value: Value) -> bool:
    return any(use.op.is_type("Transpose") for use in value.graph.uses(value))
