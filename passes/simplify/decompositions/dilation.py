"""Convolutions whose window reaches further than a device can hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

from .builder import Builder, Lengths, Writer, lengths_of

_ALONG_ONE_AXIS = 3  # dimensions: samples, channels, places
_CHANNELS_OF_A_BLOCK = 32
_PADS_BY_INPUT = 11  # the first opset whose Pad takes the lengths as an input


def dilated(op: Op, widest: int) -> Writer | None:
    """A convolution of neighbours, where numbers that are one dilation apart are put beside each other.

    Args:
        op: a Conv along one axis, without strides.
        widest: how many places a window may reach over, for every 32 channels; 0 for any number.
    """
    found = _found(op) if widest and op.graph.model.opset >= _PADS_BY_INPUT else None
    if found is None:
        return None
    blocks = -(-found.lengths[1] // _CHANNELS_OF_A_BLOCK)
    if found.dilation == 1 or blocks * found.dilation * (found.taps.shape[2] - 1) <= widest:
        return None
    return lambda build: [_write(build, op, found)]


class _Dilated(NamedTuple):
    """A Conv along one axis with a constant weight and known lengths of its data and its result."""

    data: Value
    taps: np.ndarray  # output channels, input channels of a group, places
    dilation: int
    pads: Lengths
    lengths: Lengths
    wanted: Lengths


def _found(op: Op) -> _Dilated | None:
    data, weight = op.inputs[:2]
    stored = fixed_constant(weight)
    lengths, wanted = lengths_of(data), lengths_of(op.outputs[0])
    if data is None or stored is None or lengths is None or wanted is None or len(lengths) != _ALONG_ONE_AXIS:
        return None
    strides, padding = set(op.attribute("strides", (1,))), op.attribute("auto_pad", "NOTSET")
    if strides != {1} or padding not in ("NOTSET", "VALID"):
        return None
    (dilation,) = op.attribute("dilations", (1,))
    return _Dilated(data, stored.numpy(), dilation, tuple(op.attribute("pads", (0, 0))), lengths, wanted)


def _write(build: Builder, op: Op, found: _Dilated) -> Value:
    samples, channels, length = found.lengths
    step, (before, behind) = found.dilation, found.pads
    rows = -(-(before + length + behind) // step)
    padded = build.pad(found.data, 2, before, rows * step - before - length)
    made_rows = rows - found.taps.shape[2] + 1
    made = build.op(
        "Conv",
        build.reshape(padded, (samples, channels, rows, step)),
        build.constant(found.taps[..., None], "weight"),
        *op.inputs[2:],
        shape=(samples, len(found.taps), made_rows, step),
        group=op.attribute("group", 1),
        kernel_shape=[found.taps.shape[2], 1],
    )
    flat = build.reshape(made, (*found.wanted[:2], made_rows * step))
    is_whole = made_rows * step == found.wanted[2]
    return flat if is_whole else build.slices(flat, [found.wanted[2]], axis=2)[0]
