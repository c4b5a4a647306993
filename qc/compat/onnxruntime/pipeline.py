"""The pipelines ``w8a8`` and ``w8a8-dynamic`` as a configuration of ONNX Runtime changes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Literal

from onnx import ModelProto
from onnxruntime.quantization import CalibrationMethod, DynamicQuantConfig, StaticQuantConfig
from onnxruntime.quantization.quantize import QuantConfig

import qc
from qc.ir.errors import UsageError, nearest
from qc.ir.model import Model
from qc.named_pipelines import resolve_pipeline
from qc.passes.framework.base import Pass
from qc.passes.framework.pipeline import Pipeline, Step
from qc.passes.framework.target import Target
from qc.passes.optimize.round_weights import RoundWeights
from qc.passes.optimize.smooth import Smooth
from qc.passes.quantize.annotate_per_channel import AnnotatePerChannel
from qc.passes.quantize.calibrate import Calibrate
from qc.passes.quantize.insert_quantizers import InsertQuantizers

from .options import ExtraOptions
from .overrides import TensorQuantOverrides

METHODS: dict[CalibrationMethod, Literal["min-max", "percentile", "entropy"]] = {
    CalibrationMethod.MinMax: "min-max",
    CalibrationMethod.Percentile: "percentile",
    CalibrationMethod.Entropy: "entropy",
}


def pipeline_of(
    model: str | Path | ModelProto, config: StaticQuantConfig, options: ExtraOptions, target: Target
) -> Pipeline:
    """The passes of ``w8a8``, with what a configuration says of them.

    Raises:
        UsageError: the model has no node, or no op, that the configuration names.
    """
    steps: list[Step] = []
    passes = resolve_pipeline("w8a8").pipeline.passes()
    for step in passes:
        if isinstance(step, InsertQuantizers):
            steps.append(_placing(step, passes, model, config, target, options.constant_matmul_only))
        elif isinstance(step, Smooth):
            steps += [TensorQuantOverrides(options.overrides)] if options.overrides else []
            steps.append(Smooth(insert=True) if options.smooth else step)
        elif isinstance(step, Calibrate):
            steps.append(Calibrate(method=METHODS[config.calibrate_method], percentile=options.percentile))
        elif config.per_channel or not isinstance(step, AnnotatePerChannel):
            steps.append(step)
    return Pipeline(steps)


def dynamic_pipeline_of(
    model: str | Path | ModelProto, config: DynamicQuantConfig, target: Target
) -> Pipeline:
    """The passes of ``w8a8-dynamic`` that need no data, with what a configuration says of them.

    Raises:
        UsageError: the model has no node, or no op, that the configuration names.
    """
    passes = resolve_pipeline("w8a8-dynamic").pipeline.passes()
    steps: list[Step] = []
    for step in passes:
        if isinstance(step, InsertQuantizers):
            placing = _placing(step, passes, model, config, target, constant_matmul_only=False)
            steps.append(replace(placing, weight=target.weight.dtype))
        elif not isinstance(step, RoundWeights) and (
            config.per_channel or not isinstance(step, AnnotatePerChannel)
        ):
            steps.append(step)
    return Pipeline(steps)


def _placing(
    placing: InsertQuantizers,
    passes: Sequence[Pass],
    model: str | Path | ModelProto,
    config: QuantConfig,
    target: Target,
    constant_matmul_only: bool,
) -> InsertQuantizers:
    """What places quantizers, but at ops that are left out, of the model as it is when it is quantized."""
    names = ("op_types_to_quantize", "nodes_to_quantize", "nodes_to_exclude")
    chosen = {name: getattr(config, name) for name in names}
    for name, given in chosen.items():
        if isinstance(given, str):
            raise UsageError(f"{name} is a list of names, not '{given}'")
    if not any(chosen.values()) and not constant_matmul_only:
        return placing
    before = takewhile(lambda step: not isinstance(step, InsertQuantizers), passes)
    without_data = Pipeline([step for step in before if "data" not in step.needs])
    ir = qc.compile(model, without_data, target=target, allow_unquantized=True).ir
    types = dict.fromkeys(op.op_type for graph in ir.graphs() for op in graph.ops())
    computed = _products_of_data(ir) if constant_matmul_only else ()
    return replace(
        placing,
        skip_ops=_left_out(types, config.op_types_to_quantize, "op_types_to_quantize"),
        skip_nodes=_skipped_nodes(ir, config.nodes_to_quantize, (*config.nodes_to_exclude, *computed)),
    )


def _products_of_data(ir: Model) -> Iterator[str]:
    """The names of the MatMuls of two computed tensors."""
    for graph in ir.graphs():
        for op in graph.ops():
            factor = graph.op_inputs(op)[1] if op.op_type == "MatMul" else None
            if factor is not None and factor.original.const is None:
                if not op.name:
                    raise UsageError(f"MatMulConstBOnly: {op.label} has no name by which to leave it out")
                yield op.name


def _left_out(known: Iterable[str], wanted: Collection[str] | None, option: str) -> tuple[str, ...]:
    """What is known and not wanted; nothing if all is wanted. Raises UsageError for what is not known."""
    known = list(known)
    if not wanted:
        return ()
    if not set(wanted) & set(known):
        name = next(iter(wanted))
        raise UsageError(f"{option}: the model has no '{name}'{nearest(name, known)}")
    return tuple(name for name in known if name not in wanted)


def _skipped_nodes(ir: Model, wanted: Collection[str] | None, excluded: Collection[str]) -> tuple[str, ...]:
    names = [op.name for graph in ir.graphs() for op in graph.ops() if op.name]
    given = list(ir.origin.graph.node)
    for name in excluded:
        if name not in names and name not in {node.name for node in given}:
            raise UsageError(f"nodes_to_exclude: the model has no node '{name}'{nearest(name, names)}")
    left_out = _left_out(names, wanted, "nodes_to_quantize")
    return tuple(dict.fromkeys((*left_out, *(name for name in names if name in excluded))))
