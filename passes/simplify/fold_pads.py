"""Folds a Pad into the padding of the convolutions and pools behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qc.ir.facts.result_range import result_range
from qc.ir.graph import Op, Use, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.patterns.attributes import attribute_of

from ..framework.base import Pass, Stage
from ..framework.context import PassContext

_COUNTED = 7  # the first opset whose AveragePool can count zeros
_LOWEST = float(np.finfo(np.float32).min)
_LAYOUT = 2  # batch and channels, in front of the axes of a picture


@dataclass(frozen=True)
class FoldPads(Pass):
    """Folds a Pad into the padding of the convolutions and pools that read it.

    Exporters of Keras, and of models with TensorFlow's padding, write one in front of strided convolutions.
    As an op of its own it is computed in float on CPUs, and has a grid of its own elsewhere.

    The Pad must be one of zeros along the axes of the picture alone, must not crop, and nothing else may read
    it. An AveragePool must count the zeros then, so one that has a padding of its own that it does not count
    keeps the Pad. A MaxPool passes over its padding, so it may be any number below which it finds nothing,
    such as -infinity or the lowest one, which no grid holds beside others. Pools that round lengths up, or
    whose padding would be as long as the window, keep the Pad. So do convolutions of 1 x 1: OpenVINO 2026.4
    makes results without the padding of those with strides.
    """

    name = "fold-pads"
    stage = Stage.FLOAT
    tolerance = 1e-6  # the runtime may add up the products of another window in another order

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        for graph in model.graph.walk():  # not function bodies, whose attributes may be those of the call
            for pad in reversed(graph.ops()):
                if pad.is_type("Pad"):
                    _fold(rewriter, pad)


class _Border(NamedTuple):
    """What a Pad puts around pictures.

    Attributes:
        lengths: how much in front of each axis, then behind each.
        number: what it is filled with.
    """

    lengths: tuple[int, ...]
    number: float


def _fold(rewriter: Rewriter, pad: Op) -> None:
    data, padded = pad.inputs[0], pad.outputs[0]
    border = _border(pad)
    if data is None or padded is None or border is None or padded.is_output:
        return
    readers = padded.uses
    if not readers or not all(_takes(use, border, data) for use in readers):
        return
    with rewriter.action("fold into the padding", pad):
        for use in readers:
            _widen(rewriter, use.op, data, border)
        rewriter.erase_op(pad)


def _border(pad: Op) -> _Border | None:
    """What a Pad puts around axes of a picture; None if it does other things."""
    inputs = pad.inputs
    pads, number = attribute_of(pad, "pads", inputs), attribute_of(pad, "value", inputs)
    if pad.attribute("mode", "constant") != "constant" or not isinstance(number, int | float):
        return None
    if not isinstance(pads, tuple) or len(pads) % 2 or min(pads, default=-1) < 0:
        return None
    before, behind = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    if any((*before[:_LAYOUT], *behind[:_LAYOUT])):
        return None
    return _Border((*before[_LAYOUT:], *behind[_LAYOUT:]), number)


def _takes(use: Use, border: _Border, data: Value) -> bool:
    """Whether an op may pad its data by so much more."""
    op = use.op
    if use.port != 0 or not op.is_type("Conv", "AveragePool", "MaxPool"):
        return False
    if op.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return False
    if op.is_type("Conv"):
        return border.number == 0 and not _is_of_points(op)
    if op.is_type("AveragePool") and op.graph.model.opset < _COUNTED:
        return False
    is_average = op.is_type("AveragePool")
    finds_same = border.number == 0 and _counts(op) if is_average else _exceeds(op, data, border.number)
    windows = op.attribute("kernel_shape", ()) * 2
    fits = all(length < window for length, window in zip(_sum(op, border), windows, strict=True))
    rounds_up = op.attribute("ceil_mode", 0) and any(step != 1 for step in op.attribute("strides", ()))
    return finds_same and fits and not rounds_up


def _is_of_points(op: Op) -> bool:
    weight = op.inputs[1]
    return weight is not None and set((weight.type.shape or ())[2:]) == {1}


def _counts(op: Op) -> bool:
    """Whether an average counts zeros around its data, or may, as there are none."""
    return bool(op.attribute("count_include_pad", 0)) or not any(op.attribute("pads", ()))


def _exceeds(op: Op, data: Value, number: float) -> bool:
    """Whether a maximum of data and a number is one of the data, wherever it was found."""
    is_dense = all(step == 1 for step in op.attribute("dilations", ()))
    return op.num_outputs == 1 and is_dense and number <= max(result_range(data)[0], _LOWEST)


def _sum(op: Op, border: _Border) -> list[int]:
    own = op.attribute("pads", [0] * len(border.lengths))
    return [one + other for one, other in zip(own, border.lengths, strict=True)]


def _widen(rewriter: Rewriter, op: Op, data: Value, border: _Border) -> None:
    pads = _sum(op, border)
    rewriter.set_input(op, 0, data)
    rewriter.set_attribute(op, "pads", pads)
    if "auto_pad" in op.attributes:
        rewriter.set_attribute(op, "auto_pad", "NOTSET")
    if op.is_type("AveragePool"):
        rewriter.set_attribute(op, "count_include_pad", 1)
