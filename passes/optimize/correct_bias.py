"""Takes back in the biases what quantization shifts the means of results by."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import numpy as np
from annotated_types import Ge
from onnx import TensorProto

from qc.ir.errors import ModelError
from qc.ir.executor import Feed
from qc.ir.facts.op_traits import reads_shape_only
from qc.ir.graph import Graph, Value
from qc.ir.journal import SKIP, Remark
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
from .prerequisites import is_too_early, lacks_data

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
    is run with what samples before it tell, and the outputs are compared: with shifts as they were measured,
    and with shifts that are the smaller the more samples differ. Where neither takes away a tenth of the
    squared error, biases stay as they are: where much noise is left, the means of late layers follow from it,
    and to take them back can do harm. Outputs that an ArgMax chooses are judged by what it chooses from.

    Layers are the Conv, ConvTranspose, Gemm and MatMul of the main graph whose weight has a grid. One without
    a bias gets one, but for a MatMul without an Add behind it. To be run after ``calibrate``. The float model
    that others compare with keeps its biases.
    """

    name = "correct-bias"
    stage = Stage.ANNOTATE
    needs = frozenset({"data", "executor"})
    uses = frozenset({"target"})
    idempotent = False  # a shift that is measured again is small, but not zero

    samples: Annotated[int, Ge(1)] = option(32, "how many of the samples to measure the shift on, at most")

    def run(self, model: Model, context: PassContext) -> None:
        layers = [
            one for one in layers_of(model) if one.bias is not None and one.weight.quantizer is not None
        ]
        kept = "biases stay as they are"
        if is_too_early(model, context, self.name, kept) or not layers:
            return
        if lacks_data(context, self.name, kept, "to measure shifts on"):
            return
        if not context.can_read_again:
            context.notes.append(f"{kept}: pass '{self.name}' needs data that can be read again")
            return
        feeds = context.samples(self.samples, f"pass '{self.name}'")
        outputs = [value.name for value in _judged(model.graph)]
        if len(feeds) < 2 or not outputs:
            why = "a single sample does" if outputs else "outputs that are not made of floats do"
            return _leave(model, layers, f"{why} not tell whether corrections help")
        try:
            shifts, before, after = _measured(model, layers, feeds, outputs, context)
        except ModelError as error:  # the quantized model may run all the same
            context.notes.append(f"{kept}: in the simulation {error}")
            return
        detail = f"the outputs' squared error is {before:.3g} of their size without, {after:.3g} with it"
        if not after < _GAIN * before:
            return _leave(model, layers, detail)
        make_own_biases(model, layers, context.target)
        rewriter = Rewriter(model)
        for layer, shift in zip(layers, shifts, strict=True):
            with rewriter.action("correct bias", layer.op, detail):
                layer.add_to_bias(rewriter, shift, in_float=False)
        calibrate_biases(model)


def _judged(graph: Graph) -> list[Value]:
    """The outputs of floats, and what others are made of: the scores that an ArgMax chooses by."""
    reached = dict.fromkeys(graph.outputs)
    pending, found = list(reached), []
    while pending:
        value = pending.pop(0)
        producer = value.producer if value is not None else None
        if value is None or producer is None:
            continue
        if value.is_float or value.type.elem_type == TensorProto.DOUBLE:
            found.append(value)
        elif not reads_shape_only(producer):
            before = [one for one in producer.inputs if one not in reached]
            reached.update(dict.fromkeys(before))
            pending.extend(before)
    return found


def _leave(model: Model, layers: Sequence[Layer], why: str) -> None:
    for layer in layers:
        reason = f"keeps its bias: {why}"
        model.journal.note(Remark(SKIP, layer.op, layer.op.label, reason))


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

    def adapting(self, floats: Mapping[str, np.ndarray]) -> Feed:
        """What the shifted model is fed for a sample that counts already itself."""
        wanted = floats[self.float_mean]
        if not _tells(wanted):
            return self.shifting(self.shift)
        share = 1 / (self.count + 1)
        return self.shifting((1 - share) * self.shift + share * wanted, share)

    def shifting(self, base: np.ndarray, share: float = 0.0) -> Feed:
        """What the shifted model is fed to add ``base``, less a share of the mean that it finds."""
        return {self.names.base: base.astype(np.float32), self.names.share: np.asarray(share, np.float32)}

    def update(self, floats: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
        """Takes in what a sample tells."""
        wanted, quantized = floats[self.float_mean], found[self.names.mean]
        if _tells(wanted) and np.isfinite(quantized).all():
            self.count += 1
            before = wanted.astype(np.float64) - quantized - self.shift
            self.shift = self.shift + before / self.count
            self.squares += float(np.sum(before**2)) * (1 - 1 / self.count)


def _tells(mean: np.ndarray) -> bool:
    """Whether the mean of a float result says something: that of an empty one is 0, or no number."""
    return bool(np.isfinite(mean).all() and mean.any())


def _measured(
    model: Model, layers: Sequence[Layer], feeds: Sequence[Feed], outputs: Sequence[str], context: PassContext
) -> tuple[list[np.ndarray], float, float]:
    """The shift of each layer, and the squared error of the outputs without and with these shifts."""
    learned, judged = feeds[::2], feeds[1::2]
    means, runs = _run_in_float(model, layers, [*learned, *judged], outputs, context)
    waiting: deque[Mapping[str, np.ndarray]] = deque()
    estimates: list[_Estimate] = []

    def fed() -> Iterator[Feed]:
        for feed in learned:
            of_float = waiting.popleft()
            yield _joined(feed, *(one.adapting(of_float) for one in estimates))
        for feed in judged:
            yield feed
            yield _joined(feed, *(one.shifting(one.shrunk) for one in estimates))
            yield _joined(feed, *(one.shifting(one.shift) for one in estimates))

    shifted, quantized = _run_shifted(model, layers, fed(), outputs, context)
    zeros = (by_channel(layer, np.zeros(layer.channels)) for layer in layers)
    estimates += [_Estimate(*names) for names in zip(means, shifted, zeros, strict=True)]
    errors = _OutputErrors(outputs)
    for number, of_float in enumerate(context.track(runs, "correcting biases", len(feeds))):
        if number < len(learned):
            waiting.append(of_float)
            found = [next(quantized)]
        else:
            found = list(islice(quantized, 3))
            errors.add(of_float, found)
        for one in estimates:
            one.update(of_float, found[-1])
    without, shrunk, whole = errors.total
    if shrunk <= whole:
        return [one.shrunk.ravel() for one in estimates], without, shrunk
    return [one.shift.ravel() for one in estimates], without, whole


def _joined(*feeds: Feed) -> Feed:
    return {name: array for feed in feeds for name, array in feed.items()}


def _run_in_float(
    model: Model, layers: Sequence[Layer], feeds: Sequence[Feed], outputs: Sequence[str], context: PassContext
) -> tuple[list[str], Iterator[dict[str, np.ndarray]]]:
    """The names of the means of results in the float model, and runs that give these and the outputs."""
    rewriter, executor = Rewriter(model), context.required_executor()
    with rewriter.trial():
        rewriter.restore_floats()
        means = [tell_mean(rewriter, layer) for layer in layers]
        return means, executor.run(lower(model), feeds, [*means, *outputs], base_dir=model.base_dir)


def _run_shifted(
    model: Model, layers: Sequence[Layer], feeds: Iterable[Feed], outputs: Sequence[str], context: PassContext
) -> tuple[list[Shifted], Iterator[dict[str, np.ndarray]]]:
    """How the results of the layers are shifted in the simulation, and runs of it."""
    rewriter, executor = Rewriter(model), context.required_executor()
    with simulated(model):
        shifted = [shift_mean(rewriter, layer) for layer in layers]
        names = [*(one.mean for one in shifted), *outputs]
        return shifted, executor.run(lower(model), feeds, names, base_dir=model.base_dir)


class _OutputErrors:
    """Squared errors of the outputs of three models beside those of float, over samples.

    That of each output is relative to its squared size; their sum counts. Where float gives NaN or infinity,
    as masked scores have it, no error is counted, nor where an output has another shape in one of the models,
    as that of found things has, nor for one that is 0 everywhere.
    """

    def __init__(self, outputs: Sequence[str]) -> None:
        self._outputs = outputs
        self._error, self._size = np.zeros((3, len(outputs))), np.zeros(len(outputs))

    def add(self, floats: Mapping[str, np.ndarray], models: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Takes in the outputs of all for one sample."""
        for place, name in enumerate(self._outputs):
            wanted = floats[name].astype(np.float64)
            if any(found[name].shape != wanted.shape for found in models):
                continue
            counts = np.isfinite(wanted)
            self._size[place] += np.sum(wanted[counts] ** 2)
            for index, found in enumerate(models):
                self._error[index, place] += np.sum((found[name][counts] - wanted[counts]) ** 2)

    @property
    def total(self) -> np.ndarray:
        """The sum over the outputs, for each model; float64."""
        counts = self._size > 0
        return np.asarray((self._error[:, counts] / self._size[counts]).sum(axis=1))
