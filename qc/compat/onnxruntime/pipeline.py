"""The pipelines ``w8a8`` and ``w8a8-dynamic`` as a configuration of ONNX Runtime changes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from onnxruntime.quantization import CalibrationMethod, DynamicQuantConfig, StaticQuantConfig

from qc.named_pipelines import resolve_pipeline
from qc.passes.framework.pipeline import Pipeline, Step
from qc.passes.framework.target import Target
from qc.passes.lower.insert_qdq import InsertQdq
from qc.passes.optimize.round_weights import RoundWeights
from qc.passes.optimize.smooth import Smooth
from qc.passes.quantize.annotate_per_channel import AnnotatePerChannel
from qc.passes.quantize.calibrate import Calibrate
from qc.passes.quantize.insert_quantizers import InsertQuantizers

from .choice import placing_at_chosen
from .dedicated_pairs import DedicatePairs
from .options import ExtraOptions
from .overrides import TensorQuantOverrides
from .ranges import Ranges, TensorRanges

METHODS: dict[CalibrationMethod, Literal["min-max", "percentile", "entropy"]] = {
    CalibrationMethod.MinMax: "min-max",
    CalibrationMethod.Percentile: "percentile",
    CalibrationMethod.Entropy: "entropy",
}


def pipeline_of(config: StaticQuantConfig, options: ExtraOptions, ranges: Ranges | None = None) -> Pipeline:
    """The passes of ``w8a8``, with what a configuration says of them.

    Args:
        ranges: of tensors by name; with these nothing is done that needs data.

    Raises:
        UsageError: names are not given as a list.
    """
    steps: list[Step] = []
    for step in resolve_pipeline("w8a8").pipeline.passes():
        if isinstance(step, InsertQuantizers):
            placing = placing_at_chosen(step, config, options.constant_matmul_only)
            steps.append(placing if options.quantize_bias else replace(placing, bias="float"))
        elif isinstance(step, Smooth):
            steps += [TensorQuantOverrides(options.overrides)] if options.overrides else []
            steps += [Smooth(insert=True) if options.smooth else step] if ranges is None else []
        elif isinstance(step, Calibrate) and ranges is not None:
            steps += [TensorRanges(ranges), step]
        elif isinstance(step, Calibrate):
            method = "moving-average" if options.moving_average else METHODS[config.calibrate_method]
            steps.append(Calibrate(method=method, percentile=options.percentile))
        elif isinstance(step, InsertQdq):
            steps.append(replace(step, weights="float") if options.weights_in_float else step)
            steps += [DedicatePairs()] if options.dedicated_pairs else []
        elif ranges is not None and "data" in step.needs:
            continue
        elif config.per_channel or not isinstance(step, AnnotatePerChannel):
            steps.append(step)
    return Pipeline(steps)


def dynamic_pipeline_of(config: DynamicQuantConfig, target: Target) -> Pipeline:
    """The passes of ``w8a8-dynamic`` that need no data, with what a configuration says of them.

    Raises:
        UsageError: names are not given as a list.
    """
    steps: list[Step] = []
    for step in resolve_pipeline("w8a8-dynamic").pipeline.passes():
        if isinstance(step, InsertQuantizers):
            steps.append(replace(placing_at_chosen(step, config), weight=target.weight.dtype))
        elif not isinstance(step, RoundWeights) and (
            config.per_channel or not isinstance(step, AnnotatePerChannel)
        ):
            steps.append(step)
    return Pipeline(steps)
