"""Chooses the codes of weights so that the results of layers change least on data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from qc.ir.model import Model
from qc.ir.quant.arithmetic import codes_of
from qc.ir.quant.spec import Quantizer

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from .layers.layer import Layer
from .layers.ratio import ratio
from .weights.adaround import Annealing
from .weights.features import Features
from .weights.methods import MethodName, method_of
from .weights.problem import Problem, tied_scales
from .weights.scales import choose_scales, refit_scales
from .weights.visits import Visit, visits


@dataclass(frozen=True)
class RoundWeights(Pass):
    """Chooses the codes of each weight so that the result of its layer changes least on the data.

    The errors of the nearest codes add up over the sum of a layer. Others make errors that cancel on data:
    what matters are the mean products of each two features that the weight multiplies, their Gram matrix.
    Layers are visited in order, and each also makes up for what rounding did before it: it is to give the
    result of the float model from the features of the quantized one. What it shifts the means of results by
    is taken back in the bias.

    The methods: ``gptq`` rounds one feature after the other and lets those that follow make up for the
    error; ``qronos`` does so too, but the first feature in the face of what earlier layers changed; ``beam``
    keeps the best few sets of codes on the way; ``coordinate`` moves one feature and then eight together to
    the best codes given all others, a few times over; ``adaround`` learns by gradients whether to round up or
    down; ``best`` takes for each output the best of them. Their sources are in ``passes/optimize/weights``.

    With ``scales`` the scales of weights change with the codes: first to those with which GPTQ errs least,
    then to those of least squares. Frozen ones stay. An output whose error does not fall keeps its scale and
    the nearest codes.

    Weights are those of Conv, ConvTranspose, Gemm and MatMul, and both of LSTM, GRU and RNN, with integer
    codes of at most 8 bits. One that several ops read is rounded at the last of them, by what all of them
    multiply. Weights in bodies of If and Loop come first, by what they multiply in the quantized model. Where
    numbers of rows depend on the data, samples count on which a layer gets as many as in float. What else has
    such codes keeps the nearest, and a remark says why: an embedding, say, of which each row is read alone.

    To be run after ``calibrate``; without data all keep the nearest codes. The tensors that layers read are
    held in memory for as many samples as fit in 2 GiB, at most ``samples``: more would change little, since
    a layer looks at 8,192 rows of features, or 16 for each feature, spread over all samples. Time grows
    with the number of layers. With a cache, a run that was killed goes on behind the last layer.
    """

    name = "round-weights"
    stage = Stage.ANNOTATE
    needs = frozenset({"executor"})
    uses = frozenset({"data", "target"})

    method: MethodName = option("beam", "how codes are chosen")
    scales: bool = option(True, "choose scales of weights together with the codes")
    mismatch: Annotated[float, Ge(0), Le(1)] = option(
        0.5, "how much of what earlier layers changed a layer makes up for, from 0 to 1"
    )
    samples: Annotated[int, Ge(1)] = option(256, "how many of the samples to look at, at most")
    only: tuple[str, ...] = option((), "names of the ops to choose codes for; all if there are none")
    iterations: Annotated[int, Ge(1)] = option(500, "adaround: steps for each layer")
    regularization: Annotated[float, Ge(0)] = option(0.01, "adaround: what a number between two codes costs")
    beta: tuple[float, float] = option((20.0, 2.0), "adaround: how flat that cost is at first and at last")
    warm_start: Annotated[float, Ge(0), Le(1)] = option(
        0.2, "adaround: the share of steps before numbers between codes cost anything"
    )

    def run(self, model: Model, context: PassContext) -> None:
        if self.method not in ("adaround", "best"):
            annealing = ("iterations", "regularization", "beta", "warm_start")
            self.refuse_idle(annealing, f"method={self.method}", "give method=adaround as well")
        for visit in visits(model, context, self, "rounding weights", self.samples, self.only):
            self._round(visit)

    def _round(self, visit: Visit) -> None:
        quantizer = visit.layer.weight.quantizer
        assert quantizer is not None and quantizer.encoding is not None
        found = visit.steps.next(lambda: self._found(visit, quantizer))
        if not found:
            visit.leave()
            return
        power, after, before = (float(found[name].sum()) for name in ("power", "after", "before"))
        better = f"{ratio(power, after)} at the result of {visit.layer.op.label}"
        reason = f"{self.method}: {better}, {ratio(power, before)} with the nearest"
        encoding = replace(quantizer.encoding, scale=found["scale"])
        quant = visit.model.quant
        if not encoding.equals(quantizer.encoding):
            quant.calibrate(quantizer, encoding, "scales that fit the codes")
        quant.choose_codes(quantizer, found["codes"], reason)
        if visit.has_biases:
            visit.correct_biases(found["shift"])

    def _found(self, visit: Visit, quantizer: Quantizer) -> dict[str, np.ndarray]:
        """What is chosen for a weight; nothing if no sample tells what it multiplies."""
        layer, features = visit.layer, visit.features()
        if features is None:
            return {}
        assert quantizer.encoding is not None
        if visit.has_biases:
            features = features.centred
        limit = visit.pair_limit
        least = limit.least_scales(quantizer.spec.granularity)
        given = Problem.of(layer, quantizer.encoding, features, self.mismatch, least)
        nearest = layer.as_matrix(codes_of(layer.weight.array, quantizer)).astype(np.float64)
        problem, found = self._solved(given, may_scale=not quantizer.frozen)
        found = layer.as_matrix(limit.limited(layer.as_weight(found)))
        change = _Change(layer, features)
        before, after = (
            change.error(one.numbers(codes)) for one, codes in ((given, nearest), (problem, found))
        )
        worse = _is_worse(problem, after, before)
        codes = np.where(worse[..., np.newaxis], nearest, found)
        problem = problem.with_scale(np.where(worse[..., np.newaxis], given.scale, problem.scale))
        return {
            "codes": layer.as_weight(codes).astype(np.int32),
            "scale": problem.encoding(quantizer.encoding).scale.ravel()[
                tied_scales(layer, quantizer.encoding)
            ],
            "shift": visit.shift(visit.uses[0], problem.numbers(codes)),
            "before": before,
            "after": np.where(worse, before, after),
            "power": change.power,
        }

    def _solved(self, problem: Problem, may_scale: bool) -> tuple[Problem, np.ndarray]:
        annealing = Annealing(self.iterations, self.regularization, self.beta, self.warm_start)
        method = method_of(self.method, annealing)
        if not (self.scales and may_scale):
            return problem, method(problem)
        problem = choose_scales(problem)
        return refit_scales(problem, method(problem))


class _Change:
    """What the results of a layer change by if its weight has other numbers."""

    def __init__(self, layer: Layer, features: Features) -> None:
        matrix = layer.matrix.astype(np.float64)
        size = matrix.shape[-1]
        self._cross = matrix @ features.gram[:, :size, size:]
        self._gram = features.gram[:, size:, size:]
        self.power = _products(matrix @ features.gram[:, :size, :size], matrix)
        """The mean square of each output of the float model; float64, shape ``(groups, outputs)``."""

    def error(self, numbers: np.ndarray) -> np.ndarray:
        """The mean square of what each output changes by; in the shape of ``power``.

        Args:
            numbers: those of the weight; float64, shape ``(groups, outputs, features)``.
        """
        return self.power + _products(numbers @ self._gram - 2.0 * self._cross, numbers)


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("goi,goi->go", a, b)


def _is_worse(problem: Problem, after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The outputs whose error did not fall: all or none if they share scales."""
    if problem.shares_outputs:
        return np.full(after.shape, after.sum() >= before.sum())
    return np.asarray(after >= before)
