"""Measures the statistics of batch normalizations again, on what quantized layers give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from qc.ir.errors import DataError
from qc.ir.executor import Feed, Observation
from qc.ir.facts.op_traits import measures_batch
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.onnx.stored_types import computed_names
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..lower.rounding.simulation import simulated
from .layers.constant import Constant
from .layers.observed import observed_in_float
from .prerequisites import is_too_early

_MEAN, _VARIANCE = 3, 4  # input ports
_EPSILON = 1e-5  # of the operator, if it has none of its own
# A variance below this share of the squared mean is what is left of digits where both were subtracted.
_LEAST_VARIANCE = 1e-12
_CHANNELS = Observation("moments", axis=1)


@dataclass(frozen=True)
class ReestimateBatchNorms(Pass):
    """Measures the statistics of batch normalizations again, on what quantized layers give them.

    A BatchNormalization subtracts the mean of each channel and divides by its deviation, which are constants
    of the model. Rounded weights of few bits give results of another mean and another deviation, often
    smaller ones. Both are measured on data, in the simulation and in the float model, over all samples
    together; the constants are changed so that the normalized results have the mean and deviation on the
    data that they have in the float model. One normalization is done after the other, behind those that were
    done before (after M. Nagel et al., Overcoming Oscillations in Quantization-Aware Training, 2022, where
    constants become the averages over batches).

    It is for networks whose normalizations stay, since they are not folded or cannot be. Where they are
    folded, ``correct-bias`` mends the means. With weights of 8 bits there is little to mend. To be run once,
    after ``calibrate`` and ``round-weights``; it takes two runs of the model on ``samples`` samples, whose
    tensors are held in memory as long as something reads them.
    """

    name = "reestimate-batch-norms"
    stage = Stage.ANNOTATE
    needs = frozenset({"data", "executor"})
    idempotent = False  # the float model, which is compared with, has the new statistics after a run

    samples: Annotated[int, Ge(1)] = option(256, "how many of the samples to measure on, at most")

    def run(self, model: Model, context: PassContext) -> None:
        if is_too_early(model, context, self.name, "statistics stay as they are"):
            return
        feeds = context.samples(self.samples, f"pass '{self.name}'")
        norms = [norm for op in model.graph.ops() if (norm := _BatchNorm.of(model, op)) is not None]
        if not norms or not model.quant.quantizers():
            return
        rewriter = Rewriter(model)
        for norm in norms:
            norm.own_statistics(rewriter)
        wanted = _float_moments(model, norms, feeds, context)
        with simulated(model) as simulation:
            names = {norm: norm.names for norm in norms}
            computed = computed_names(model, simulation)
        segments = context.required_executor().segments(simulation, feeds, base_dir=model.base_dir)
        for norm in context.track(norms, "measuring", len(norms)):
            data, *stored = names[norm]
            data = computed.get(data, data)
            found = ChannelMoments.of_arrays(segments.tensors([data])[data])
            if not np.isfinite(found.variance).all():
                raise DataError(f"pass '{self.name}': '{data}' becomes NaN or infinite where it is quantized")
            norm.change(rewriter, wanted[norm], found)
            for name, constant in zip(stored, (norm.mean, norm.variance), strict=True):
                segments.replace(name, constant.array)


@dataclass(frozen=True)
class ChannelMoments:
    """Mean and variance of each channel; float64, shape ``(channels,)``."""

    mean: np.ndarray
    variance: np.ndarray

    @property
    def is_alive(self) -> np.ndarray:
        """Whether a channel has numbers that differ, as far as float64 can tell; bool, ``(channels,)``."""
        return self.variance > _LEAST_VARIANCE * np.square(self.mean)

    @classmethod
    def of_arrays(cls, arrays: Sequence[np.ndarray]) -> ChannelMoments:
        """Of all elements of several arrays, whose channels are along axis 1."""
        rows = [np.moveaxis(array, 1, 0).reshape(array.shape[1], -1).astype(np.float64) for array in arrays]
        count = max(sum(row.shape[1] for row in rows), 1)
        with np.errstate(invalid="ignore"):  # infinities, which make the variance NaN
            mean = np.sum([row.sum(axis=1) for row in rows], axis=0) / count
            squares = [np.square(row - mean[:, np.newaxis]).sum(axis=1) for row in rows]
            return cls(mean, np.sum(squares, axis=0) / count)


@dataclass(frozen=True)
class _BatchNorm:
    """A BatchNormalization with constant statistics."""

    op: Op
    mean: Constant
    variance: Constant

    @classmethod
    def of(cls, model: Model, op: Op) -> _BatchNorm | None:
        if not op.is_type("BatchNormalization") or measures_batch(op):
            return None
        mean, variance = (Constant.at(model, op, port) for port in (_MEAN, _VARIANCE))
        if mean is None or variance is None or any(one.quantizer for one in (mean, variance)):
            return None
        return cls(op, mean, variance) if mean.array.dtype == variance.array.dtype == np.float32 else None

    @property
    def data(self) -> Value:
        """What is normalized."""
        data = self.op.inputs[0]
        assert data is not None
        return data

    @property
    def names(self) -> tuple[str, str, str]:
        """Of the data, the mean and the variance as they are now."""
        return self.data.name, self.mean.constant.name, self.variance.constant.name

    def own_statistics(self, rewriter: Rewriter) -> None:
        """Copies statistics that others read too, or that are stored in another type than is read."""
        if all(one.is_own and not one.is_converted for one in (self.mean, self.variance)):
            return
        with rewriter.action("statistics of its own", self.op):
            for constant in (self.mean, self.variance):
                constant.set(rewriter, constant.array)

    def change(self, rewriter: Rewriter, wanted: ChannelMoments, found: ChannelMoments) -> None:
        """Gives what has the moments that were found the result of what has those that are wanted."""
        epsilon = self.op.attribute("epsilon", _EPSILON)
        mean, variance = (constant.array.astype(np.float64) for constant in (self.mean, self.variance))
        alive = wanted.is_alive & (found.variance > 0)
        ratio = np.where(alive, found.variance, 1) / np.where(alive, wanted.variance, 1)
        new_variance = np.maximum((variance + epsilon) * ratio - epsilon, 0)
        divides = variance + epsilon > 0  # a channel that is divided by 0 stays as it is
        gain = np.sqrt((new_variance + epsilon) / np.where(divides, variance + epsilon, 1))
        new_variance = np.where(divides, new_variance, variance)
        new_mean = np.where(divides, found.mean - (wanted.mean - mean) * gain, mean)
        deviation = np.sqrt(np.where(wanted.is_alive, wanted.variance, 1) + epsilon)
        shift = np.abs(found.mean - wanted.mean) / deviation
        low, high = np.sqrt(ratio.min()), np.sqrt(ratio.max())
        reason = (
            f"statistics on quantized data: deviations {low:.3g} to {high:.3g} of those in float, "
            f"means at most {shift.max():.2g} deviations away"
        )
        with rewriter.action(reason, self.op):
            self.mean.set(rewriter, new_mean)
            self.variance.set(rewriter, new_variance)


def _float_moments(
    model: Model, norms: Sequence[_BatchNorm], feeds: Sequence[Feed], context: PassContext
) -> Mapping[_BatchNorm, ChannelMoments]:
    """Those of the data of normalizations in the float model."""
    asked = {norm: (norm.data, _CHANNELS) for norm in norms}
    found = observed_in_float(model, asked.values(), feeds, context.required_executor())
    moments = {}
    for norm in norms:
        seen = found[asked[norm]]
        variance = np.maximum(seen.second_moment() - np.square(seen.mean()), 0)
        moments[norm] = ChannelMoments(seen.mean(), variance)
    return moments
