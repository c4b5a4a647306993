"""Visits weights one after the other, with what they multiply behind all that were visited before."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

import numpy as np
from onnx import ModelProto

from qc.ir.executor import Feed, Steps
from qc.ir.model import Model
from qc.ir.onnx.float_model import lower_float
from qc.ir.onnx.lower import lower
from qc.ir.rewriter import Rewriter

from ...framework.base import Pass
from ...framework.context import PassContext
from ...lower.rounding.simulation import simulated
from ...quantize.calibration.bias import calibrate_biases
from ...quantize.calibration.pairs import PairLimit
from ..layers.biases import make_own_biases
from ..layers.layer import Layer
from ..layers.open import Uses, is_inside, leave, open_weights
from ..prerequisites import is_too_early, lacks_data
from .features import Features, SideBySide, Streamed, rounded_weight

# Bytes that tensors of all feeds may take; there are as many feeds as fit.
_MEMORY = 1 << 31


@dataclass(frozen=True)
class Visit:
    """A weight that something may be chosen for, and the layers that read it.

    Attributes:
        model: what they are of.
        uses: the layers, in the order of the graph.
        seen: what they multiply.
        steps: remembers results from an earlier run.
        most_pair_sum: what neighbouring codes may add up to on the target; 0 for anything.
    """

    model: Model
    uses: Uses
    seen: SideBySide | Streamed
    steps: Steps
    most_pair_sum: int

    @property
    def layer(self) -> Layer:
        """The last of the layers; all multiply the same matrix."""
        return self.uses[-1]

    @property
    def has_biases(self) -> bool:
        """Whether all layers can take back in their biases what the means of their results shift by."""
        return all(layer.bias is not None for layer in self.uses)

    @property
    def pair_limit(self) -> PairLimit:
        """What limits the codes of the weight."""
        assert self.layer.weight.quantizer is not None
        return PairLimit.of(self.model, self.layer.weight.quantizer, self.most_pair_sum)

    def features(self) -> Features | None:
        """What the layers multiply; None if no sample tells it."""
        return self.seen.features(self.uses)

    def leave(self) -> None:
        """Notes that the weight keeps its nearest codes, since there are no features."""
        reason = "no sample reaches it, or none with as many rows as in float"
        leave(self.model, self.layer.weight.constant.original, reason)

    def shift(self, layer: Layer, numbers: np.ndarray) -> np.ndarray:
        """What the means of a layer's results change by if the matrix has other numbers; 0 if not known.

        Args:
            numbers: float64, shape ``(groups, outputs, features)``.
        """
        mean = self.seen.mean(layer)
        if mean is None:
            return np.zeros(numbers[..., 0].size)
        both = np.concatenate([layer.matrix.astype(np.float64), -numbers], axis=2)
        return np.asarray(both @ mean[..., np.newaxis]).ravel()

    def correct_biases(self, shift: np.ndarray) -> None:
        """Takes back in the biases what the means of results change by, now that codes are chosen.

        One layer after the other, as each may read what those before give.

        Args:
            shift: that of the first layer.
        """
        rewriter = Rewriter(self.model)
        for layer in self.uses:
            if layer is not self.uses[0]:
                shift = self.steps.next(partial(self._shift_now, layer))["shift"]
            with rewriter.action("correct bias", layer.op):
                layer.add_to_bias(rewriter, layer.gain * shift, in_float=False)
            self.seen.settle(layer)

    def _shift_now(self, layer: Layer) -> dict[str, np.ndarray]:
        numbers = layer.as_matrix(rounded_weight(layer)).astype(np.float64)
        return {"shift": self.shift(layer, numbers)}


def visits(
    model: Model,
    context: PassContext,
    step: Pass,
    description: str,
    samples: int,
    names: Collection[str] = (),
) -> Iterator[Visit]:
    """The weights whose codes are open, in order; what was chosen for one counts for those behind it.

    Weights that bodies read come first: what they multiply is seen in the simulation, as it was before all
    visits, and summed up in bodies. Those of the main graph follow in the order of their last uses. With a
    cache, :attr:`Visit.steps` remembers results; the key is all that they depend on.

    Args:
        step: the pass that asks; results depend on all its options.
        description: what the progress bar says.
        samples: how many of the samples to look at, at most.
        names: of ops whose weights alone are visited; all if there are none.

    Raises:
        DataError: there is no sample, or some tensor becomes NaN or infinite.
        UsageError: there is no layer of such a name.
    """
    weights, kept = open_weights(model, names), "weights keep their nearest codes"
    if is_too_early(model, context, step.name, kept) or not weights:
        return
    if lacks_data(context, step.name, kept, "to choose others by"):
        return
    layers = list(chain.from_iterable(weights))
    make_own_biases(model, layers, context.target)
    executor = context.required_executor()
    feeds = _feeds(model, layers, context, f"pass '{step.name}'", samples)
    most = context.target.grids.most_pair_sum if context.target is not None else 0
    steps = executor.steps(repr((step, most)), lambda: _before(model), feeds, base_dir=model.base_dir)
    order = context.track(weights, description, len(weights))
    inside = [uses for uses in weights if is_inside(uses)]
    streamed = Streamed(model, inside, feeds, executor) if inside else None
    for uses in islice(order, len(inside)):
        assert streamed is not None
        yield Visit(model, uses, streamed, steps, most)
    outside = [layer for uses in weights[len(inside) :] for layer in uses]
    segments = SideBySide(model, outside, feeds, executor) if outside else None
    for uses in order:
        assert segments is not None
        yield Visit(model, uses, segments, steps, most)
        for layer in uses:
            segments.settle(layer)
    calibrate_biases(model)


def _before(model: Model) -> Sequence[ModelProto]:
    """The float model and the quantized one; results follow from them."""
    exact = lower_float(model)
    with simulated(model) as simulation:
        return exact, simulation


def _feeds(
    model: Model, layers: Sequence[Layer], context: PassContext, user: str, samples: int
) -> list[Feed]:
    """As many as are asked for, and fit into memory."""
    first = context.samples(1, user)
    main = (layer.data for layer in layers if layer.op.graph.parent is None)
    names = list(dict.fromkeys(value.name for value in main if value.const is None))
    sizes = [0]
    if names:
        runs = context.required_executor().run(lower(model), first, names, base_dir=model.base_dir)
        sizes = sorted(array.nbytes for run in runs for array in run.values())
    held = 2 * sum(sizes[-3:])  # of the float model and of the quantized one, where the graph is widest
    return context.samples(min(samples, max(_MEMORY // max(held, 1), 1)), user)
