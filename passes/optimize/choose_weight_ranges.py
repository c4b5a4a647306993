"""Chooses the grids of weights so that the results of layers change least on data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from qc.ir.model import Model
from qc.ir.quant.spec import Quantizer

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from .layers.ratio import ratio
from .weights.problem import Problem, tied_scales
from .weights.ranges import choose_grid
from .weights.visits import Visit, visits


@dataclass(frozen=True)
class ChooseWeightRanges(Pass):
    """Chooses the grid of each weight so that the result of its layer changes least on the data.

    A range that fits the numbers of a weight best is not the one that fits its results: large numbers that
    multiply little may be cut, which leaves finer steps to the others. Tried are shares of the range of the
    numbers, then steps around the best one, of the scale and, on asymmetric grids, of the zero point: one
    scale after the other, each in the face of the errors of the others in its output. What counts is the
    result of the float model, from the features of the quantized one, so that layers are visited in order
    (AIMET's sequential mean squared error; A. Zhang et al., COMQ, 2024).

    It helps below 8 bits, and where codes are to stay the nearest ones. ``round-weights`` chooses scales
    together with the codes, which loses less, and needs no pass before it. Frozen grids stay. To be run after
    ``calibrate``. The time goes into running the model and its Gram matrices, as for ``round-weights``;
    without data nothing changes.
    """

    name = "choose-weight-ranges"
    stage = Stage.ANNOTATE
    needs = frozenset({"executor"})
    uses = frozenset({"data", "target"})
    idempotent = False  # the search goes on from the best grids, behind layers that have better ones

    candidates: Annotated[int, Ge(1), Le(10_000)] = option(
        20, "how many shares of the range of the numbers are tried"
    )
    samples: Annotated[int, Ge(1)] = option(256, "how many of the samples to look at, at most")
    only: tuple[str, ...] = option((), "names of the ops to choose grids for; all if there are none")

    def run(self, model: Model, context: PassContext) -> None:
        for visit in visits(model, context, self, "choosing ranges", self.samples, self.only):
            quantizer = visit.layer.weight.quantizer
            if quantizer is not None and not quantizer.frozen:
                self._choose(visit, quantizer)

    def _choose(self, visit: Visit, quantizer: Quantizer) -> None:
        found = visit.steps.next(lambda: _found(visit, quantizer, self.candidates))
        if not found:
            visit.leave()
            return
        assert quantizer.encoding is not None
        power, after, before = (float(found[name]) for name in ("power", "after", "before"))
        if after < before:
            encoding = replace(quantizer.encoding, scale=found["scale"], zero_point=found["zero_point"])
            result = visit.layer.op.label
            reason = f"{ratio(power, after)} at the result of {result}, {ratio(power, before)} before"
            visit.model.quant.calibrate(quantizer, encoding, reason)


def _found(visit: Visit, quantizer: Quantizer, candidates: int) -> dict[str, np.ndarray]:
    """The grid of a weight, and what it errs by; nothing if no sample tells what it multiplies."""
    features = visit.features()
    if features is None:
        return {}
    assert quantizer.encoding is not None
    problem = Problem.of(visit.layer, quantizer.encoding, features, mismatch=1.0)
    least = visit.pair_limit.least_scales(quantizer.spec.granularity)
    chosen = choose_grid(problem, quantizer.encoding, candidates, least)
    tied = tied_scales(visit.layer, quantizer.encoding)
    before, after = (one.error(one.nearest(one.weight)).sum() for one in (problem, problem.on(chosen)))
    power = problem.error(problem.zero).sum()
    return {
        "scale": chosen.scale.ravel()[tied],
        "zero_point": chosen.zero_point.ravel()[tied],
        "power": np.asarray(power),
        "before": np.asarray(before),
        "after": np.asarray(after),
    }
