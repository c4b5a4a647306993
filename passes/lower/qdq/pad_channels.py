"""Convolutions on few channels: with some of them twice for devices that want more, and as they were.

A convolution on a picture has three input channels, and the dot products of 8-bit kernels take four numbers
at a time: without a fourth, ONNX Runtime copies the picture into a matrix first. The first channel once more
meets weights of zero and adds nothing, so the results are the same. A Gather does that quickly in whichever
layout ONNX Runtime gives the picture; a Pad by zeros took four times as long where channels come last, as in
models from TensorFlow. One or two channels stay: to multiply two to four times as much took 1.5 to 3.7 times
as long as the copy on a processor with VNNI, and the weight would grow as much.
"""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import initializer
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType

from .integer_convolution import BYTES, IntegerConvolution, integer_convolution, replace_codes

_MOST_ADDED = 1 / 3  # of the channels that there are


def pad_channels(model: Model, rewriter: Rewriter, least: int) -> None:
    """Gives integer convolutions with few less than ``least`` input channels so many, on 8-bit codes."""
    for graph in list(model.graphs()):
        for op in graph.ops():
            found = _symmetric(op)
            producer = found.codes.producer if found is not None else None
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
    for op in model.ops():
        found = _symmetric(op)
        gather = found.codes.producer if found is not None else None
        added = _added_channels(gather) if gather is not None else 0
        if found is None or gather is None or not added or found.array[:, -added:].any():
            continue
        with rewriter.action("unpad channels", op):
            replace_codes(rewriter, found, np.ascontiguousarray(found.array[:, :-added]))
            codes = gather.inputs[0]
            assert codes is not None
            rewriter.set_input(found.data, 0, codes)
            rewriter.erase_op(gather)


def _symmetric(op: Op) -> IntegerConvolution | None:
    """The parts of a convolution by weights whose zero points are 0; None for other ops."""
    found = integer_convolution(op)
    return None if found is None or found.zero_points.any() else found


def _pad(rewriter: Rewriter, found: IntegerConvolution, added: int) -> None:
    graph, codes, weights = found.data.graph, found.codes, found.array
    channels = weights.shape[1]
    elem_type, shape = codes.type
    if shape is not None:
        shape = (shape[0], channels + added, *shape[2:])
    padded = rewriter.add_value(graph, f"{codes.name}_padded", ValueType(elem_type, shape))
    taken = np.array([*range(channels), *[0] * added])
    indices = rewriter.add_constant(graph, taken, f"{codes.name}_channels")
    rewriter.add_op(graph, "Gather", (codes, indices), [padded], {"axis": 1}, "", f"{codes.name}_Gather")
    rewriter.set_input(found.data, 0, padded)
    lengths = [(0, added if axis == 1 else 0) for axis in range(weights.ndim)]
    replace_codes(rewriter, found, np.pad(weights, lengths))


def _added_channels(gather: Op) -> int:
    """How often an op takes the first channel of what was quantized again; 0 if that is not all it does."""
    use = gather.only_use
    if not gather.is_type("Gather") or gather.attribute("axis", 0) != 1 or use is None:
        return 0
    codes, indices = gather.inputs
    producer = codes.producer if codes is not None else None
    taken = initializer(indices)
    if taken is None or producer is None or producer.op_type != "QuantizeLinear":
        return 0
    array = taken.numpy()
    behind = array[1:]
    added = int(np.count_nonzero(behind == 0)) if array.ndim == 1 else 0
    is_ours = added and np.array_equal(array, [*range(array.size - added), *[0] * added])
    return added if is_ours else 0
