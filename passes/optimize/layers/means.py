"""Models that tell the means of what layers give, and shift them by what they are fed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from qc.ir.graph import Value
from qc.ir.rewriter import Rewriter

from ...simplify.decompositions.builder import Builder
from .layer import Layer


class Shifted(NamedTuple):
    """A result to which ``base - share * mean`` is added, in each channel: names of tensors.

    Attributes:
        mean: the mean of each channel before it is shifted.
        base, share: inputs that are 0 if they are not fed: a number for each channel, and one for all.
    """

    mean: str
    base: str
    share: str


def by_channel(layer: Layer, numbers: np.ndarray) -> np.ndarray:
    """A number for each channel of a layer's result, float32, in a shape that is added to the result."""
    axes = [1] * len(layer.result.type.shape or ())
    axes[layer.output_axis] = -1
    return np.asarray(numbers, np.float32).reshape(axes)


def tell_mean(rewriter: Rewriter, layer: Layer) -> str:
    """Adds ops that compute the mean of each channel of a layer's result; its name. To be used in a trial."""
    return _mean(_builder(rewriter, layer), layer).name


def shift_mean(rewriter: Rewriter, layer: Layer) -> Shifted:
    """Lets all that reads a layer's result read a shifted one. To be used in a trial."""
    build, result, graph = _builder(rewriter, layer), layer.result, layer.op.graph
    readers = result.uses
    mean = _mean(build, layer)
    base = build.constant(by_channel(layer, np.zeros(layer.channels)), "base")
    share = build.constant(np.zeros((), np.float32), "share")
    rewriter.add_defaults(graph, [base, share])
    across = mean.type.shape
    known = build.op("Mul", mean, share, shape=across, type=TensorProto.FLOAT)
    shift = build.op("Sub", base, known, shape=across, type=TensorProto.FLOAT)
    shape = result.type.shape
    shifted = build.op("Add", result, _as(build, shift, result.type.elem_type), shape=shape)
    rewriter.replace_uses(result, shifted, readers.__contains__)
    return Shifted(mean.name, base.name, share.name)


def _builder(rewriter: Rewriter, layer: Layer) -> Builder:
    producer = layer.result.producer
    assert producer is not None
    return Builder(rewriter, producer)


def _mean(build: Builder, layer: Layer) -> Value:
    rank = len(layer.result.type.shape or ())
    axes = [axis for axis in range(rank) if axis != layer.output_axis]
    floats = _as(build, layer.result, TensorProto.FLOAT)
    shape, kind = by_channel(layer, np.zeros(layer.channels)).shape, TensorProto.FLOAT
    if not axes:
        return build.op("Identity", floats, shape=shape, type=kind)
    return build.along(axes, "ReduceMean", floats, shape=shape, type=kind)


def _as(build: Builder, data: Value, elem_type: int) -> Value:
    if data.type.elem_type == elem_type:
        return data
    return build.op("Cast", data, shape=data.type.shape, type=elem_type, to=elem_type)
