"""Chooses the codes of weights so that the results of layers change least on data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from qc.ir.errors import DataError
from qc.ir.executor import Feed
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.arithmetic import codes_of, rounded
from qc.ir.quant.formats import IntFormat
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..quantize.calibration.bias import calibrate_biases
from .layers.biases import make_own_biases
from .layers.layer import Layer, named_layers
from .layers.ratio import ratio
from .weights.adaround import Annealing
from .weights.features import Features, SideBySide
from .weights.methods import MethodName, method_of
from .weights.problem import Problem
from .weights.scales import choose_scales, refit_scales

# The widest codes; of wider ones, neighbours differ by nothing that could be seen.
_WIDEST = 8
# Bytes that tensors of all feeds may take; there are as many feeds as fit.
_MEMORY = 1 << 31


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

    Layers are the Conv, Gemm and MatMul of the main graph whose weight is float32, has integer codes of at
    most 8 bits and is read by nothing else. To be run after ``calibrate``; without data all keep the nearest
    codes. The tensors that layers read are held in memory for as many samples as fit in 2 GiB, at most
    ``samples``.
    """

    name = "round-weights"
    stage = Stage.ANNOTATE
    needs = frozenset({"executor"})

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
        layers = [layer for layer in named_layers(model, self.only) if _is_open(model, layer)]
        if not layers:
            return
        # With statistics that were recorded, or where weights alone are quantized, there may be none.
        if context.data is None or getattr(context.data, "length", None) == 0:
            context.notes.append(
                f"weights keep their nearest codes: pass '{self.name}' needs data to choose others by"
            )
            return
        make_own_biases(model, layers, context.target)
        seen = SideBySide(model, layers, self._feeds(model, layers, context), context.required_executor())
        for layer in context.track(layers, "rounding weights", len(layers)):
            self._round(model, layer, seen)
        calibrate_biases(model)

    def _round(self, model: Model, layer: Layer, seen: SideBySide) -> None:
        quantizer = layer.weight.quantizer
        assert quantizer is not None and quantizer.encoding is not None
        features = seen.features(layer)
        has_bias = layer.bias is not None
        judged = features.centred if has_bias else features
        given = Problem.of(layer, quantizer.encoding, judged, self.mismatch)
        nearest = layer.as_matrix(codes_of(layer.weight.array, quantizer)).astype(np.float64)
        problem, found = self._solved(given, may_scale=not quantizer.frozen)
        before, after = (
            _error(layer, one.numbers(codes), judged) for one, codes in ((given, nearest), (problem, found))
        )
        worse = _is_worse(problem, after, before)
        codes = np.where(worse[..., np.newaxis], nearest, found)
        problem = problem.with_scale(np.where(worse[..., np.newaxis], given.scale, problem.scale))
        power = _error(layer, np.zeros_like(codes), judged)
        errors = before, np.where(worse, before, after)
        ratios = [ratio(float(power.sum()), float(error.sum())) for error in errors]
        reason = f"{self.method}: {ratios[1]} at the result of {layer.op.label}, {ratios[0]} with the nearest"
        encoding = problem.encoding(quantizer.encoding)
        if not encoding.equals(quantizer.encoding):
            model.quant.calibrate(quantizer, encoding, "scales that fit the codes")
        model.quant.choose_codes(quantizer, layer.as_weight(codes).astype(np.int32), reason)
        if has_bias:
            _take_back_means(model, layer, features, problem.numbers(codes))
        seen.settle(layer, rounded(layer.weight.array, quantizer))

    def _solved(self, problem: Problem, may_scale: bool) -> tuple[Problem, np.ndarray]:
        annealing = Annealing(self.iterations, self.regularization, self.beta, self.warm_start)
        method = method_of(self.method, annealing)
        if not (self.scales and may_scale):
            return problem, method(problem)
        problem = choose_scales(problem)
        return refit_scales(problem, method(problem))

    def _feeds(self, model: Model, layers: Sequence[Layer], context: PassContext) -> list[Feed]:
        """As many as are asked for, and fit into memory."""
        user = f"pass '{self.name}'"
        data = iter(context.required_data(user))
        feeds = list(islice(data, 1))
        if not feeds:
            raise DataError(f"{user} needs calibration data, and there is none")
        names = list(dict.fromkeys(layer.data.name for layer in layers))
        runs = context.required_executor().run(lower(model), feeds, names, base_dir=model.base_dir)
        sizes = sorted(array.nbytes for run in runs for array in run.values())
        held = 2 * sum(sizes[-3:])  # of the float model and of the quantized one, where the graph is widest
        return feeds + list(islice(data, min(self.samples, max(_MEMORY // max(held, 1), 1)) - 1))


def _is_open(model: Model, layer: Layer) -> bool:
    """Whether the codes of the weight of a layer are for this pass to choose."""
    quantizer = layer.weight.quantizer
    if quantizer is None or quantizer.encoding is None or quantizer.codes is not None:
        return False
    if not isinstance(quantizer.spec.format, IntFormat) or quantizer.spec.format.bits > _WIDEST:
        return False
    if layer.data.const is not None:
        return False
    array = layer.weight.array
    return layer.weight.is_own and array.dtype == np.float32 and array.size > 0


def _error(layer: Layer, numbers: np.ndarray, features: Features) -> np.ndarray:
    """The mean square of what each output of a layer changes by, if its weight has these numbers."""
    both = np.concatenate([layer.matrix.astype(np.float64), -numbers], axis=2)
    return np.einsum("goi,goi->go", both @ features.gram, both)


def _is_worse(problem: Problem, after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The outputs whose error did not fall: all or none if they share scales."""
    if problem.shares_outputs:
        return np.full(after.shape, after.sum() >= before.sum())
    return np.asarray(after >= before)


def _take_back_means(model: Model, layer: Layer, features: Features, numbers: np.ndarray) -> None:
    both = np.concatenate([layer.matrix.astype(np.float64), -numbers], axis=2)
    shift = (both @ features.mean[..., np.newaxis]).ravel()
    rewriter = Rewriter(model)
    with rewriter.action("correct bias", layer.op):
        layer.add_to_bias(rewriter, layer.gain * shift)
