"""Takes back in the biases what quantization shifts the means of results by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import onnx
from annotated_types import Ge

from qc.ir.errors import DataError
from qc.ir.executor import Feed, Observation
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.arithmetic import rounded
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..lower.rounding.simulation import simulated
from ..quantize.calibration.bias import calibrate_biases
from .layers.biases import biases, make_own_biases
from .layers.layer import Layer, layers_of
from .layers.observed import observed_in_float


@dataclass(frozen=True)
class CorrectBias(Pass):
    """Takes back in the bias of each layer what quantization shifts the mean of its result by.

    Rounded weights and inputs move the mean of each channel of a result, the more so the fewer products are
    summed and the fewer bits there are. ``analytic`` runs the float model alone, and once: from the means of
    the channels that a layer reads it follows what its rounded weight shifts the means of its result by, if
    layers before were corrected and borders do not matter. What rounded activations shift is not seen.

    ``empirical`` measures the shift on data, in the simulation against the float model, and subtracts it from
    the bias: layer after layer, so that each one is measured behind layers that were corrected. It costs ten
    times as much. Where much noise is left, the means of late layers follow from it, not from a shift, and to
    take them back can do harm. So all corrections are dropped if the outputs of the model are farther from
    float with them than without, by the squared error on the same samples. Both are by M. Nagel et al.,
    Data-Free Quantization Through Weight Equalization and Bias Correction, 2019.

    Layers are the Conv, ConvTranspose, Gemm and MatMul of the main graph whose weight has a grid. One without
    a bias gets one, but for a MatMul without an Add behind it. To be run after ``calibrate``. With
    ``empirical``, the results of the layers on ``samples`` samples are held in memory as long as something
    reads them.
    """

    name = "correct-bias"
    stage = Stage.ANNOTATE
    needs = frozenset({"data", "executor"})
    uses = frozenset({"target"})
    idempotent = False  # a shift that is measured again is small, but not zero

    method: Literal["analytic", "empirical"] = option("analytic", "how the shift is found")
    samples: Annotated[int, Ge(1)] = option(256, "how many of the samples to measure the shift on, at most")

    def run(self, model: Model, context: PassContext) -> None:
        feeds = context.samples(self.samples, f"pass '{self.name}'")
        layers = [
            one for one in layers_of(model) if one.bias is not None and one.weight.quantizer is not None
        ]
        if not layers:
            return
        make_own_biases(model, layers, context.target)
        correct = _correct_by_means if self.method == "analytic" else _correct_by_results
        correct(model, layers, feeds, context)
        calibrate_biases(model)


def _correct_by_results(model: Model, layers: list[Layer], feeds: list[Feed], context: PassContext) -> None:
    """Takes back the differences of the results, each measured behind layers that were corrected."""
    exact = lower(model)
    floats = _float_means(model, exact, layers, feeds, context)
    plain = {layer: bias.array for layer, bias in biases(layers)}
    with simulated(model) as simulation:
        names = {layer: (layer.result.name, bias.constant.name) for layer, bias in biases(layers)}
    segments = context.required_executor().segments(simulation, feeds, base_dir=model.base_dir)
    for layer, bias in context.track(biases(layers), "correcting", len(layers)):
        result, stored = names[layer]
        sums = [_sums(array, layer.output_axis) for array in segments.tensors([result])[result]]
        means = floats[layer], _mean(sums)
        if not np.isfinite(means).all():
            raise DataError(f"pass 'correct-bias': '{layer.result.name}' becomes NaN or infinite on the data")
        _correct(model, layer, means[0] - means[1])
        segments.replace(stored, bias.rounded(bias.array))
    with simulated(model) as corrected:
        errors = _output_errors(model, (exact, simulation, corrected), feeds, context)
    _take_back_harm(model, plain, errors, Rewriter(model))


def _take_back_harm(
    model: Model, plain: Mapping[Layer, np.ndarray], errors: np.ndarray, rewriter: Rewriter
) -> None:
    """Restores the biases if the outputs are farther from float with the corrections than without."""
    before, after = errors
    if after <= before:
        return
    detail = f"the outputs' squared error was {before:.3g} of their size without, {after:.3g} with it"
    for layer, bias in biases(plain):
        with rewriter.action("take back the correction", layer.op, detail):
            bias.set(rewriter, plain[layer])


def _output_errors(
    model: Model, models: Sequence[onnx.ModelProto], feeds: list[Feed], context: PassContext
) -> np.ndarray:
    """The squared error of the outputs of all models but the first, beside the first; float64.

    That of each output is relative to its squared size; their sum counts. Where the first gives NaN or
    infinity, as masked scores have it, no error is counted.
    """
    names = [value.name for value in model.graph.outputs if value is not None and value.is_float]
    if not names:
        return np.zeros(len(models) - 1)
    executor = context.required_executor()
    runs = [executor.run(one, feeds, names, base_dir=model.base_dir) for one in models]
    error, size = np.zeros((len(models) - 1, len(names))), np.zeros(len(names))
    for results in zip(*runs, strict=True):
        first, *others = ([result[name].astype(np.float64) for name in names] for result in results)
        counts = [np.isfinite(array) for array in first]
        wanted = [array[places] for array, places in zip(first, counts, strict=True)]
        size += [np.sum(array**2) for array in wanted]
        for index, arrays in enumerate(others):
            found = (array[places] for array, places in zip(arrays, counts, strict=True))
            error[index] += [np.sum((one - two) ** 2) for one, two in zip(found, wanted, strict=True)]
    return np.asarray((error / np.maximum(size, np.finfo(np.float64).tiny)).sum(axis=1))


def _correct_by_means(model: Model, layers: list[Layer], feeds: list[Feed], context: PassContext) -> None:
    """Takes back what rounded weights make of the means of the data in the float model."""
    asked = {layer: (layer.data, Observation("moments", layer.input_axis)) for layer in layers}
    found = observed_in_float(model, asked.values(), feeds, context.required_executor())
    for layer in layers:
        quantizer = layer.weight.quantizer
        assert quantizer is not None
        error = layer.matrix - layer.as_matrix(rounded(layer.weight.array, quantizer)).astype(np.float64)
        means = layer.by_feature(found[asked[layer]].mean())
        if layer.op.is_type("ConvTranspose"):  # with zeros between its elements
            means = means / np.prod(layer.op.attribute("strides", (1,)))
        _correct(model, layer, layer.gain * (error * means).sum(axis=2).ravel())


def _correct(model: Model, layer: Layer, shift: np.ndarray) -> None:
    rewriter = Rewriter(model)
    with rewriter.action("correct bias", layer.op):
        layer.add_to_bias(rewriter, shift)


def _float_means(
    model: Model, exact: onnx.ModelProto, layers: list[Layer], feeds: list[Feed], context: PassContext
) -> dict[Layer, np.ndarray]:
    """The mean of each channel of the results in the float model; float64.

    The model is run, since statistics that were recorded for calibration do not have them.
    """
    names = list(dict.fromkeys(layer.result.name for layer in layers))
    runs = context.required_executor().run(exact, feeds, names, base_dir=model.base_dir)
    found = [{layer: _sums(run[layer.result.name], layer.output_axis) for layer in layers} for run in runs]
    return {layer: _mean([one[layer] for one in found]) for layer in layers}


def _sums(array: np.ndarray, axis: int) -> tuple[np.ndarray, int]:
    """The sum of each channel, float64, and of how many elements."""
    others = tuple(index for index in range(array.ndim) if index != axis)
    with np.errstate(invalid="ignore"):  # infinities of both signs, which are refused later
        return array.sum(axis=others, dtype=np.float64), array.size // max(array.shape[axis], 1)


def _mean(sums: Sequence[tuple[np.ndarray, int]]) -> np.ndarray:
    """The mean of each channel over several arrays; float64."""
    with np.errstate(invalid="ignore"):
        return np.sum([total for total, _ in sums], axis=0) / max(sum(count for _, count in sums), 1)
