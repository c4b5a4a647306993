"""Takes back in the biases what quantization shifts the means of results by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, tee
from typing import Annotated

import numpy as np
from annotated_types import Ge

from qc.ir.executor import Feed
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..lower.rounding.simulation import simulated
from ..quantize.calibration.bias import calibrate_biases
from .layers.biases import make_own_biases
from .layers.layer import Layer, layers_of
from .layers.means import Shifted, by_channel, shift_mean, tell_mean

# What the squared error of the outputs has to be below, as a share of what it was: less may be chance.
_GAIN = 0.9


@dataclass(frozen=True)
class CorrectBias(Pass):
    """Takes back in the bias of each layer what quantization shifts the mean of its result by.

    Rounded weights and activations move the mean of each channel of a result, the more so the fewer products
    are summed and the fewer bits there are, and noise in front of a Relu does. The shift is measured on data,
    in the simulation against the float model, and subtracted from the bias, for each layer behind layers that
    were corrected (empirical bias correction of M. Nagel et al., Data-Free Quantization Through Weight
    Equalization and Bias Correction, 2019).

    One run on each sample is enough for all layers: as it runs, the mean of a result becomes that of float,
    as far as samples before and this one tell. This is done on one half of the samples. On the other each
    is run with what samples before it tell, and the outputs are compared: where shifts do not take away a
    tenth of their squared error, biases stay as they are. Where much noise is left, the means of late layers
    follow from it, and to take them back can do harm.

    Layers are the Conv, ConvTranspose, Gemm and MatMul of the main graph whose weight has a grid. One without
    a bias gets one, but for a MatMul without an Add behind it. To be run after ``calibrate``, and instead of
    ``round-weights``, which shifts biases itself: behind that, or a second time, it does nothing, since the
    float graph with other biases is none to compare with.
    """

    name = "correct-bias"
    stage = Stage.ANNOTATE
    needs = frozenset({"data", "executor"})
    uses = frozenset({"target"})
    idempotent = False  # in a context of its own it is done again

    samples: Annotated[int, Ge(1)] = option(32, "how many of the samples to measure the shift on, at most")

    def run(self, model: Model, context: PassContext) -> None:
        layers = [
            one for one in layers_of(model) if one.bias is not None and one.weight.quantizer is not None
        ]
        if not layers or context.biases_shifted:
            return
        has_data = getattr(context.data, "length", None) != 0
        if not has_data or not context.can_read_again:
            what = "data that can be read again" if has_data else "data beside the statistics"
            context.notes.append(f"biases stay as they are: pass '{self.name}' needs {what}")
            return
        feeds = context.samples(self.samples, f"pass '{self.name}'")
        shifts, (before, after) = _measured(model, layers, feeds, context)
        rewriter = Rewriter(model)
        detail = f"the outputs' squared error is {before:.3g} of their size without, {after:.3g} with it"
        if not after <= _GAIN * before:
            with rewriter.action("leave biases as they are", layers[-1].op, detail):
                return
        context.biases_shifted = True
        make_own_biases(model, layers, context.target)
        for layer, shift in zip(layers, shifts, strict=True):
            with rewriter.action("correct bias", layer.op, detail):
                layer.add_to_bias(rewriter, shift)
        calibrate_biases(model)


@dataclass
class _Estimate:
    """What has to be added to the mean of each channel of a result, as far as samples have told."""

    float_mean: str
    names: Shifted
    shift: np.ndarray
    count: int = 0
    squares: float = 0.0  # of the differences of samples from their mean, summed over channels

    @property
    def shrunk(self) -> np.ndarray:
        """The shift, the smaller the more of it is chance, as samples differ (W. James, C. Stein, 1961)."""
        chance = self.squares / (self.count * (self.count - 1)) if self.count > 1 else 0.0
        size = float(np.sum(self.shift**2))
        return self.shift * max(0.0, 1 - chance / size) if size else self.shift

    def inputs(self, floats: Mapping[str, np.ndarray], adapts: bool) -> Feed:
        """What the shifted model is fed for a sample: with ``adapts``, the sample itself counts already."""
        mean = floats[self.float_mean]
        share = 1 / (self.count + 1) if adapts and _tells(mean) else 0.0
        base = (1 - share) * self.shift + share * mean if share else self.shrunk
        return {self.names.base: base.astype(np.float32), self.names.share: np.asarray(share, np.float32)}

    def update(self, floats: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
        """Takes in what a sample tells."""
        mean, quantized = floats[self.float_mean], found[self.names.mean]
        if _tells(mean) and np.isfinite(quantized).all():
            self.count += 1
            before = mean.astype(np.float64) - quantized - self.shift
            self.shift = self.shift + before / self.count
            self.squares += float(np.sum(before**2)) * (1 - 1 / self.count)


def _tells(mean: np.ndarray) -> bool:
    """Whether the mean of a float result says something: that of an empty one is 0, or no number."""
    return bool(np.isfinite(mean).all() and mean.any())


def _measured(
    model: Model, layers: Sequence[Layer], feeds: Sequence[Feed], context: PassContext
) -> tuple[list[np.ndarray], np.ndarray]:
    """The shift of each layer, and the squared error of the outputs without and with shifts."""
    learned, judged = feeds[::2], feeds[1::2] or feeds
    outputs = [value.name for value in model.graph.outputs if value is not None and value.is_float]
    rewriter, run = Rewriter(model), context.required_executor().run
    with rewriter.trial():
        means = [tell_mean(rewriter, layer) for layer in layers]
        exact = lower(model)
    with simulated(model) as simulation:
        shifted = [shift_mean(rewriter, layer) for layer in layers]
        corrected = lower(model)
    zeros = (by_channel(layer, np.zeros(layer.channels)) for layer in layers)
    estimates = [_Estimate(*names) for names in zip(means, shifted, zeros, strict=True)]
    floats, known = tee(run(exact, [*learned, *judged], [*means, *outputs], base_dir=model.base_dir))

    def fed() -> Iterator[Feed]:
        for number, feed in enumerate([*learned, *judged]):
            found, inputs = next(known), dict(feed)
            for one in estimates:
                inputs.update(one.inputs(found, adapts=number < len(learned)))
            yield inputs

    plain = run(simulation, judged, outputs, base_dir=model.base_dir)
    names = [*(one.mean for one in shifted), *outputs]
    with_shifts = run(corrected, fed(), names, base_dir=model.base_dir)
    errors = _OutputErrors(outputs)
    runs = zip(floats, chain(repeat(None, len(learned)), plain), with_shifts, strict=True)
    for of_float, without, found in context.track(runs, "correcting biases", len(learned) + len(judged)):
        for one in estimates:
            one.update(of_float, found)
        if without is not None:
            errors.add(of_float, (without, found))
    return [one.shrunk.ravel() for one in estimates], errors.total


class _OutputErrors:
    """Squared errors of the outputs of two models beside those of float, over samples.

    That of each output is relative to its squared size; their sum counts. Where float gives NaN or infinity,
    as masked scores have it, no error is counted.
    """

    def __init__(self, outputs: Sequence[str]) -> None:
        self._outputs = outputs
        self._error, self._size = np.zeros((2, len(outputs))), np.zeros(len(outputs))

    def add(self, floats: Mapping[str, np.ndarray], models: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Takes in the outputs of all for one sample."""
        for place, name in enumerate(self._outputs):
            wanted = floats[name].astype(np.float64)
            counts = np.isfinite(wanted)
            self._size[place] += np.sum(wanted[counts] ** 2)
            for index, found in enumerate(models):
                self._error[index, place] += np.sum((found[name][counts] - wanted[counts]) ** 2)

    @property
    def total(self) -> np.ndarray:
        """The sum over the outputs, for each model; float64."""
        return np.asarray((self._error / np.maximum(self._size, np.finfo(np.float64).tiny)).sum(axis=1))
