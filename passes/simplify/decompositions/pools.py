"""AveragePools in the form that devices run: of whole pictures, with a border, or as a Conv of ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from qc.ir.graph import Op, Value

from .builder import Builder, Writer, lengths_of


def average(op: Op) -> Writer | None:
    """An AveragePool whose one window has all of the picture, or whose last windows reach beyond it.

    Devices take ``ceil_mode`` for another thing than ONNX, where what a window reaches beyond the picture
    does not count. A border that does not count says the same, if it is no wider than half of a window. Else,
    and with dilations, it is a Conv of each channel by itself and a product with what each window lacks.
    """
    data, wanted = op.inputs[0], lengths_of(op.outputs[0])
    lengths = lengths_of(data)
    if data is None or lengths is None or wanted is None:
        return None
    if _has_all(op, lengths, wanted):
        return lambda build: [build.op("GlobalAveragePool", data, shape=wanted)]
    if not _is_explicit(op):
        return None
    axes = _axes_of(op, lengths[2:], wanted[2:])
    if any(axis.is_all_border for axis in axes):
        return None
    counts_border = bool(op.attribute("count_include_pad", 0))
    reaches_beyond, dilated = any(axis.beyond for axis in axes), any(axis.dilation > 1 for axis in axes)
    is_narrow = all(2 * max(axis.before, axis.end) <= axis.window for axis in axes)
    if is_narrow and not dilated and not (reaches_beyond and counts_border):
        return (lambda build: [_bordered(build, data, axes, wanted)]) if reaches_beyond else None
    return lambda build: [_convolved(build, data, axes, wanted, counts_border)]


@dataclass(frozen=True)
class _Axis:
    """How windows go along an axis; ``beyond`` is how far the last one reaches behind the border."""

    length: int
    windows: int
    window: int
    stride: int
    dilation: int
    before: int
    behind: int

    @property
    def beyond(self) -> int:
        reached = (self.windows - 1) * self.stride + (self.window - 1) * self.dilation + 1
        return max(reached - self.before - self.length - self.behind, 0)

    @property
    def is_all_border(self) -> bool:
        """Whether the last window begins behind the picture; runtimes do not agree on there being one."""
        return (self.windows - 1) * self.stride >= self.before + self.length

    @property
    def end(self) -> int:
        """How wide the border behind is that holds all of the last window."""
        return self.behind + self.beyond

    def counts(self, counts_border: bool) -> np.ndarray:
        """How many places of each window count, int64."""
        first = np.arange(self.windows) * self.stride - self.before
        places = first[:, None] + np.arange(self.window) * self.dilation
        before, behind = (self.before, self.behind) if counts_border else (0, 0)
        return ((places >= -before) & (places < self.length + behind)).sum(axis=1)


def _has_all(op: Op, lengths: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether there is one window, of all of the picture, without a border."""
    window = op.attribute("kernel_shape", ())
    has_all = all(length <= size for length, size in zip(lengths[2:], window, strict=True))
    is_plain = not any(op.attribute("pads", ())) and set(op.attribute("dilations", (1,))) == {1}
    counts_border = not _is_explicit(op) and op.attribute("count_include_pad", 0)
    return has_all and is_plain and not counts_border and set(wanted[2:]) == {1}


def _is_explicit(op: Op) -> bool:
    """Whether the border is what ``pads`` say."""
    return op.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID")


def _axes_of(op: Op, lengths: tuple[int, ...], windows: tuple[int, ...]) -> list[_Axis]:
    count = len(lengths)
    strides, dilations = (op.attribute(name, [1] * count) for name in ("strides", "dilations"))
    pads = op.attribute("pads", [0] * (2 * count))
    given = (lengths, windows, op.attribute("kernel_shape"), strides, dilations, pads[:count], pads[count:])
    return [_Axis(*numbers) for numbers in zip(*given, strict=True)]


def _bordered(build: Builder, data: Value, axes: list[_Axis], shape: tuple[int, ...]) -> Value:
    pads = [*(axis.before for axis in axes), *(axis.end for axis in axes)]
    strides, window = [axis.stride for axis in axes], [axis.window for axis in axes]
    return build.op("AveragePool", data, shape=shape, kernel_shape=window, strides=strides, pads=pads)


def _convolved(
    build: Builder, data: Value, axes: list[_Axis], shape: tuple[int, ...], counts_border: bool
) -> Value:
    channels, window = shape[1], tuple(axis.window for axis in axes)
    weight = build.constant(np.full((channels, 1, *window), 1 / prod(window), np.float32), "weight")
    attributes: dict[str, Any] = {
        "pads": [*(axis.before for axis in axes), *(axis.end for axis in axes)],
        "strides": [axis.stride for axis in axes],
        "dilations": [axis.dilation for axis in axes],
    }
    made = build.op("Conv", data, weight, shape=shape, group=channels, **attributes)
    counts = reduce(np.multiply.outer, [axis.counts(counts_border) for axis in axes])
    if (counts == prod(window)).all():
        return made
    factors = (prod(window) / np.maximum(counts, 1)).astype(np.float32)  # what counts nothing is zero
    return build.op("Mul", made, build.constant(factors[None, None], "factors"), shape=shape)
