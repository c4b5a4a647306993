"""Splits channels whose range is far beyond that of all others into several that share it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt, Le

from qc.ir.executor import Observation
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from .layers.observed import observed_in_float
from .scaling.stretches import Stretch, stretches_of

# By how much the largest range must shrink at least, for channels to be split.
_WORTH = 2.0


@dataclass(frozen=True)
class SplitChannels(Pass):
    """Splits channels whose range is far beyond that of all others into several that share it.

    The step of a grid follows the largest channel of a tensor. A channel may instead be computed several
    times, each time divided by how many there are, and read as often: the float model computes the same, and
    the step of all others becomes smaller (outlier channel splitting, in R. Zhao et al., Improving Neural
    Network Quantization without Retraining using Outlier Channel Splitting, 2019). With ``of=weights`` the
    columns of the weights that read the channel are divided, for weights with one scale.

    Channels are split between a layer and the layers that read its result, through Relu, pooling and the like
    and through depthwise convolutions; not where the result is added to others, joined with them, or read by
    anything else. As few channels are added as make most of the largest range smaller, at most ``share``, and
    none if it would not fall to half. Each costs as much as any other channel of both layers.

    It helps where one or two channels are large, and seldom in networks of today: most large channels are in
    residual streams or in front of other activations than Relu. Where many are large, ``equalize`` or 16-bit
    activations do. To be run after ``fold-batch-norms`` and ``equalize``.
    """

    name = "split-channels"
    stage = Stage.FLOAT
    needs = frozenset({"data", "executor"})
    idempotent = False  # among the channels that there are then, others may be the largest
    tolerance = 1e-5

    of: Literal["activations", "weights"] = option("activations", "whose ranges to look at")
    share: Annotated[float, Gt(0), Le(1)] = option(0.1, "how many channels may be added, of those there are")

    def run(self, model: Model, context: PassContext) -> None:
        stretches = stretches_of(model)
        if not stretches:
            return
        ranges = (
            _activations(model, stretches, context) if self.of == "activations" else map(_weights, stretches)
        )
        rewriter = Rewriter(model)
        for stretch, found in zip(stretches, ranges, strict=True):
            copies = _copies(found, self.share)
            if copies.max() == 1:
                continue
            largest, left = found.max(), (found / copies).max()
            reason = (
                f"split channels: {np.sum(copies > 1)} of {copies.size} into {copies[copies > 1].sum()}, "
                f"the largest range of {self.of} is {left / largest:.2g} of what it was"
            )
            with rewriter.action(reason, stretch.first.op):
                stretch.split(rewriter, copies, divides_weights=self.of == "weights")


def _activations(model: Model, stretches: Sequence[Stretch], context: PassContext) -> list[np.ndarray]:
    """The range of each channel of what is read, as a share of the largest of the tensor."""
    asked = [[(value, Observation("range", axis)) for value, axis in stretch.read] for stretch in stretches]
    data = context.required_data("pass 'split-channels'")
    found = observed_in_float(model, [*chain.from_iterable(asked)], data, context.required_executor())
    return [
        _largest([np.maximum(np.abs(found[one].minimum), np.abs(found[one].maximum)) for one in some])
        for some in asked
    ]


def _weights(stretch: Stretch) -> np.ndarray:
    """The range of each column of the weights that read channels, as a share of the largest of the weight."""
    return _largest([np.abs(columns).max(axis=1) for columns in stretch.columns])


def _largest(ranges: Sequence[np.ndarray]) -> np.ndarray:
    finite = [np.where(np.isfinite(one), one, 0).astype(np.float64) for one in ranges]
    return np.max([one / max(one.max(), np.finfo(np.float32).tiny) for one in finite], axis=0)


def _copies(ranges: np.ndarray, share: float) -> np.ndarray:
    """How often each channel is to be there; int64, 1 for all if it is not worth it."""
    copies = np.ones(ranges.size, np.int64)
    queue = [(-float(one), channel) for channel, one in enumerate(ranges)]
    heapq.heapify(queue)
    left, chosen = [-queue[0][0]], []
    for _ in range(int(share * ranges.size)):
        channel = queue[0][1]
        chosen.append(channel)
        copies[channel] += 1
        heapq.heapreplace(queue, (-float(ranges[channel] / copies[channel]), channel))
        left.append(-queue[0][0])
    if not left[0] or left[-1] * _WORTH > left[0]:
        return np.ones_like(copies)
    enough = left[0] * (left[-1] / left[0]) ** 0.9
    added = next(count for count, largest in enumerate(left) if largest <= enough)
    return 1 + np.bincount(chosen[:added], minlength=ranges.size)
