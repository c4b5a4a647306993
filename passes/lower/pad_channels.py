"""Convolutions on few channels: padded with zeros for devices whose integer kernels want more, and unpadded.

A convolution on a picture has three input channels, and the dot products of 8-bit kernels take four numbers
at a time: without a fourth, ONNX Runtime copies the picture into a matrix, which takes twice as long. Codes
of zero that meet weights of zero add nothing, so the results are the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from qc.ir.graph import Op, Value, ValueType
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

# The first opset whose Pad takes integers, and its lengths as an input.
_OLDEST_OPSET = 11
_BYTES = (TensorProto.INT8, TensorProto.UINT8)


class _Convolution(NamedTuple):
    """An integer convolution: its two DequantizeLinear ops, which nothing else reads, and their codes."""

    data: Op
    codes: Value
    weight: Op
    weights: Value


def pad_channels(model: Model, rewriter: Rewriter, least: int) -> None:
    """Gives integer convolutions with fewer than ``least`` input channels so many, on 8-bit codes."""
    if model.opset < _OLDEST_OPSET:
        return
    for graph in list(model.graphs()):
        for op in graph.ops():
            found = _convolution(op)
            maker = graph.producer(found.codes) if found is not None else None
            if found is None or maker is None or maker.op_type != "QuantizeLinear":
                continue
            shape = found.weights.type.shape
            channels = shape[1] if shape is not None else None
            if isinstance(channels, int) and channels < least and found.codes.type.elem_type in _BYTES:
                _pad(rewriter, found, least - channels)


def unpad_channels(model: Model) -> None:
    """Takes such padding away again: a model that is imported has the channels it was exported with."""
    rewriter = Rewriter(model)
    for op in [op for graph in model.graphs() for op in graph.ops()]:
        graph, found = op.graph, _convolution(op)
        pad = graph.producer(found.codes) if found is not None else None
        added = _added_channels(pad) if pad is not None else 0
        if found is None or pad is None or not added or found.weights.const is None:
            continue
        codes = found.weights.const.numpy()
        zero_point = graph.op_inputs(found.data)[2]
        inputs = graph.op_inputs(pad)
        if codes[:, -added:].any() or len(inputs) < 3 or inputs[2] is not zero_point:
            continue
        with rewriter.action("unpad channels", op):
            _replace(rewriter, found, np.ascontiguousarray(codes[:, :-added]))
            assert inputs[0] is not None
            rewriter.set_input(found.data, 0, inputs[0])
            rewriter.erase_op(pad)


def _convolution(op: Op) -> _Convolution | None:
    """The parts of an ungrouped convolution of 8-bit codes by symmetric weights; None for other ops."""
    if not op.is_type("Conv") or op.attribute("group", 1) != 1:
        return None
    graph = op.graph
    data, weight = (graph.producer(value) if value is not None else None for value in graph.op_inputs(op)[:2])
    for maker in (data, weight):
        if maker is None or maker.op_type != "DequantizeLinear" or maker.attribute("block_size", 0):
            return None
        if len(graph.op_inputs(maker)) < 3 or not _is_read_once(maker, 0):
            return None
    assert data is not None and weight is not None
    codes, weights = graph.op_inputs(data)[0], graph.op_inputs(weight)[0]
    zero_point = graph.constant(graph.op_inputs(weight)[2])
    if codes is None or weights is None or weights.const is None or zero_point is None:
        return None
    stored = weights.const.data_type in _BYTES and len(graph.uses(weights)) == 1
    if not stored or graph.is_output(weights) or zero_point.numpy().any():
        return None
    return _Convolution(data, codes, weight, weights)


def _is_read_once(op: Op, port: int) -> bool:
    result = op.graph.op_outputs(op)[port]
    return result is not None and len(op.graph.uses(result)) == 1 and not op.graph.is_output(result)


def _pad(rewriter: Rewriter, found: _Convolution, added: int) -> None:
    graph, codes = found.data.graph, found.codes
    assert found.weights.const is not None
    weights = found.weights.const.numpy()
    rank = weights.ndim
    lengths = np.zeros(2 * rank, np.int64)
    lengths[rank + 1] = added
    elem_type, shape = codes.type
    if shape is not None:
        shape = (shape[0], weights.shape[1] + added, *shape[2:])
    padded = rewriter.add_value(graph, f"{codes.name}_padded", ValueType(elem_type, shape))
    pads = rewriter.add_constant(graph, lengths, f"{codes.name}_pads")
    zero_point = graph.op_inputs(found.data)[2]
    rewriter.add_op(graph, "Pad", (codes, pads, zero_point), [padded], {}, "", f"{codes.name}_Pad")
    rewriter.set_input(found.data, 0, padded)
    _replace(rewriter, found, np.pad(weights, [(0, added if axis == 1 else 0) for axis in range(rank)]))


def _replace(rewriter: Rewriter, found: _Convolution, weights: np.ndarray) -> None:
    """Stores other codes of the weight under the same name, and says so in the types behind them."""
    graph, old = found.weight.graph, found.weights
    new = rewriter.add_constant(graph, weights, old.name)
    rewriter.set_input(found.weight, 0, new)
    rewriter.swap_names(old, new)
    rewriter.drop_unread(old)
    channels = weights.shape[1]
    for op in (found.data, found.weight):
        result = graph.op_outputs(op)[0]
        assert result is not None
        elem_type, shape = result.type
        if shape is not None:
            rewriter.set_type(result, ValueType(elem_type, (shape[0], channels, *shape[2:])))


def _added_channels(pad: Op) -> int:
    """How many channels an op adds behind those of what was quantized; 0 if that is not all it does."""
    inputs = pad.graph.op_inputs(pad)
    if not pad.is_type("Pad") or pad.attribute("mode", "constant") != "constant" or len(inputs) != 3:
        return 0
    lengths = pad.graph.constant(inputs[1])
    maker = pad.graph.producer(inputs[0]) if inputs[0] is not None else None
    if lengths is None or maker is None or maker.op_type != "QuantizeLinear" or not _is_read_once(pad, 0):
        return 0
    array = lengths.numpy()
    behind = array.size // 2 + 1
    only = array.size >= 4 and int(array[behind]) > 0 and np.count_nonzero(array) == 1
    return int(array[behind]) if only else 0
