"""Convolutions on few channels: padded with zeros for devices whose integer kernels want more, and unpadded.

A convolution on a picture has three input channels, and the dot products of 8-bit kernels take four numbers
at a time: without a fourth, ONNX Runtime copies the picture into a matrix first. Codes of zero that meet
weights of zero add nothing, so the results are the same. One or two channels stay: to multiply two to four
times as much took 1.5 to 3.7 times as long as the copy on a processor with VNNI, and the weight would grow as
much.
"""

from __future__ import annotations

import numpy as np

from qc.ir.graph import Op, ValueType
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from .integer_convolution import BYTES, IntegerConvolution, integer_convolution, is_read_once, replace_codes

_MOST_ADDED = 1 / 3  # of the channels that there are

# The first opset whose Pad takes integers, and its lengths as an input.
_OLDEST_OPSET = 11


def pad_channels(model: Model, rewriter: Rewriter, least: int) -> None:
    """Gives integer convolutions with few less than ``least`` input channels so many, on 8-bit codes."""
    if model.opset < _OLDEST_OPSET:
        return
    for graph in list(model.graphs()):
        for op in graph.ops():
            found = _symmetric(op)
            producer = graph.producer(found.codes) if found is not None else None
            if found is None or producer is None or producer.op_type != "QuantizeLinear":
                continue
            shape = found.weights.type.shape
            channels = shape[1] if shape is not None else None
            if not isinstance(channels, int) or found.codes.type.elem_type not in BYTES:
                continue
            if 0 < least - channels <= _MOST_ADDED * channels:
                _pad(rewriter, found, least - channels)


def unpad_channels(model: Model, rewriter: Rewriter) -> None:
    """Takes such padding away again: a model that is imported has the channels it was exported with."""
    for op in [op for graph in model.graphs() for op in graph.ops()]:
        graph, found = op.graph, _symmetric(op)
        pad = graph.producer(found.codes) if found is not None else None
        added = _added_channels(pad) if pad is not None else 0
        if found is None or pad is None or not added:
            continue
        zero_point = graph.op_inputs(found.data)[2]
        inputs = graph.op_inputs(pad)
        if found.array[:, -added:].any() or len(inputs) < 3 or inputs[2] is not zero_point:
            continue
        with rewriter.action("unpad channels", op):
            replace_codes(rewriter, found, np.ascontiguousarray(found.array[:, :-added]))
            assert inputs[0] is not None
            rewriter.set_input(found.data, 0, inputs[0])
            rewriter.erase_op(pad)


def _symmetric(op: Op) -> IntegerConvolution | None:
    """The parts of a convolution by weights whose zero points are 0; None for other ops."""
    found = integer_convolution(op)
    return None if found is None or found.zero_points.any() else found


def _pad(rewriter: Rewriter, found: IntegerConvolution, added: int) -> None:
    graph, codes, weights = found.data.graph, found.codes, found.array
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
    replace_codes(rewriter, found, np.pad(weights, [(0, added if axis == 1 else 0) for axis in range(rank)]))


def _added_channels(pad: Op) -> int:
    """How many channels an op adds behind those of what was quantized; 0 if that is not all it does."""
    inputs = pad.graph.op_inputs(pad)
    if not pad.is_type("Pad") or pad.attribute("mode", "constant") != "constant" or len(inputs) != 3:
        return 0
    lengths = pad.graph.constant(inputs[1])
    producer = pad.graph.producer(inputs[0]) if inputs[0] is not None else None
    if (
        lengths is None
        or producer is None
        or producer.op_type != "QuantizeLinear"
        or not is_read_once(pad, 0)
    ):
        return 0
    array = lengths.numpy()
    behind = array.size // 2 + 1
    only = array.size >= 4 and int(array[behind]) > 0 and np.count_nonzero(array) == 1
    return int(array[behind]) if only else 0
