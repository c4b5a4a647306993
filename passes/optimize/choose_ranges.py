"""Chooses ranges of activations by what rounding does to the results behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress
from typing import Annotated

import numpy as np
from annotated_types import Ge

from qc.ir.executor import Segments
from qc.ir.model import Model
from qc.ir.onnx.float_model import lower_float
from qc.ir.onnx.stored_types import computed_names
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import Encoding, Quantizer, setting_name

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..lower.rounding.simulation import simulated
from ..quantize.calibration.bias import calibrate_biases
from .layers.ratio import ratio
from .prerequisites import is_too_early, lacks_data
from .ranges.readers import chosen_freely, results_of

# What an end of a range is multiplied by, again and again.
_FACTORS = (0.5, 0.75, 1.25, 0.92)
# What an error has to be below, as a share of what it was.
_GAIN = 0.8

Range = tuple[float, float]


@dataclass(frozen=True)
class ChooseRanges(Pass):
    """Chooses the range of each activation by the error at the results of what reads it.

    ``calibrate`` looks at a tensor alone: an error is an error, wherever it is made. Behind it stand weights
    that multiply some channels by more than others, and functions such as HardSwish or a gate that make
    numbers 0. Here the ends of a range are moved in turn, and what stands behind the tensor is computed for
    each candidate, in the simulation, up to the results of layers and to what is rounded next; they are moved
    as long as the squared error against the float model falls on both halves of the samples, each result
    counting by its own power. Where a result has another size than in float, as sizes may depend on the data,
    the sample does not count for it. Tensors are visited in order, and each sees what rounding did before it.
    One whose error does not fall by 20 % keeps its range.

    Helps much where few numbers are large and hardly count, as in networks that read bytes or spectra; in
    most networks it finds nothing, or gains at the next result and not at the last.

    To be run after ``calibrate``. Weights have the codes that they have then. The cost is that of some
    twenty runs of the model on ``samples`` samples, which are held in memory.
    """

    name = "choose-ranges"
    stage = Stage.ANNOTATE
    needs = frozenset({"data", "executor"})
    idempotent = False  # behind other ranges than before, another one can be better by a little

    samples: Annotated[int, Ge(1)] = option(8, "how many of the samples to look at, at most")

    def run(self, model: Model, context: PassContext) -> None:
        if is_too_early(model, context, self.name, "ranges stay as they are"):
            return
        chosen = [(one, values, results_of(model, one)) for one, values in chosen_freely(model)]
        chosen = [(one, values, results) for one, values, results in chosen if results]
        if not chosen:
            return
        if lacks_data(context, self.name, "ranges stay as they are", "to choose them by"):
            return
        feeds = context.samples(self.samples, f"pass '{self.name}'")
        executor = context.required_executor()
        exact = lower_float(model)
        floats = executor.segments(exact, feeds, base_dir=model.base_dir)
        sources = computed_names(model, exact)
        with simulated(model) as simulation:
            computed = computed_names(model, simulation)
            names = {value: computed.get(value.name, value.name) for _, _, all in chosen for value in all}
        rounded = executor.segments(simulation, feeds, base_dir=model.base_dir)
        for quantizer, _, results in context.track(chosen, "choosing ranges", len(chosen)):
            wanted = floats.tensors([sources.get(value.name, value.name) for value in results])
            pairs = [(names[value], wanted[sources.get(value.name, value.name)]) for value in results]
            self._choose(model, quantizer, _Trials(rounded, quantizer, pairs))
        calibrate_biases(model)

    def _choose(self, model: Model, quantizer: Quantizer, trials: _Trials) -> None:
        encoding = quantizer.encoding
        assert encoding is not None
        own = float(encoding.minimum), float(encoding.maximum)
        if not np.isfinite(trials.error(own)).all():
            trials.keep(encoding)
            return
        best = _searched(trials.error, own, quantizer.spec.symmetric)
        before, after = (float(trials.error(ends).mean()) for ends in (own, best))
        if not after < _GAIN * before:
            trials.keep(encoding)
            return
        found = trials.encoding(best)
        trials.keep(found)
        ratios = ratio(1.0, after), ratio(1.0, before)
        reason = "[{:.6g}, {:.6g}] gives {} at the results behind it, [{:.6g}, {:.6g}] {}"
        model.quant.calibrate(quantizer, found, reason.format(*best, ratios[0], *own, ratios[1]))


class _Trials:
    """The errors that grids of one quantizer make in the results behind it."""

    def __init__(
        self, segments: Segments, quantizer: Quantizer, results: Sequence[tuple[str, Sequence[np.ndarray]]]
    ) -> None:
        self._segments = segments
        self._quantizer = quantizer
        self._results = results
        self._powers = [[_square(array) for array in arrays] for _, arrays in results]
        self.error = cache(self._error)

    def encoding(self, ends: Range) -> Encoding:
        """The grid of a range."""
        return encoding_of_range(self._quantizer.spec, *map(np.asarray, ends))

    def keep(self, encoding: Encoding) -> None:
        """Lets all that comes later see a grid."""
        name = self._quantizer.name
        self._segments.replace(setting_name(name, "scale"), encoding.scale)
        self._segments.replace(setting_name(name, "zero_point"), encoding.zero_point)

    def _error(self, ends: Range) -> np.ndarray:
        """The mean over the results of their squared error as a share of their power, on each half.

        Infinite if there is nothing to compare, so that no range is better for it.
        """
        self.keep(self.encoding(ends))
        found = self._segments.tensors([name for name, _ in self._results])
        shares = [
            _share_on_halves(found[name], exact, powers)
            for (name, exact), powers in zip(self._results, self._powers, strict=True)
        ]
        known = [share for share in shares if share is not None]
        return 2 * np.mean(known, axis=0) if known else np.full(2, np.inf)


def _share_on_halves(
    found: Sequence[np.ndarray], exact: Sequence[np.ndarray], powers: Sequence[float]
) -> list[float] | None:
    """The squared error on each half of the samples of one shape in both models, as a share of the power.

    A single one is both halves; None if they have no power.
    """
    same = [one.shape == other.shape for one, other in zip(found, exact, strict=True)]
    made = [_square(one - other) for one, other in compress(zip(found, exact, strict=True), same)]
    power = sum(compress(powers, same))
    return [sum(half) / power for half in (made[::2], made[1::2] or made)] if power > 0 else None


def _square(array: np.ndarray) -> float:
    return float(np.square(array, dtype=np.float64).sum())


def _searched(error: Callable[[Range], np.ndarray], own: Range, symmetric: bool) -> Range:
    """A range that is found by moving the ends as long as that helps, from the one that there is.

    Both ends of a symmetric grid move together; of others, each in turn, until neither does any more. Errors
    must fall on both halves of the samples.
    """
    best, before = own, None
    while best != before:
        before = best
        for moves in ((1, 1),) if symmetric else ((1, 0), (0, 1)):
            for factor in _FACTORS:
                moved = _moved(best, moves, factor)
                while moved != best and (error(moved) < error(best)).all():
                    best, moved = moved, _moved(moved, moves, factor)
    return best


def _moved(ends: Range, moves: tuple[int, int], factor: float) -> Range:
    return ends[0] * factor ** moves[0], ends[1] * factor ** moves[1]
