"""Collecting the statistics that a pipeline calibrates on, apart from the calibration itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onnx import ModelProto

from qc.ir.errors import UsageError
from qc.passes import Pipeline, PipelineFile, Progress
from qc.passes.quantize.calibrate import Calibrate
from qc.passes.target import Target
from qc.runtime import ModelStatistics, OrtExecutor, Recorder, ShardedExecutor

from .compiler import compile
from .named_pipelines import resolve_pipeline


def observe(
    model: ModelProto | str | Path,
    pipeline: str | Path | Pipeline | PipelineFile = "w8a8",
    *,
    data: object,
    target: str | Path | Target | None = None,
    executor: OrtExecutor | ShardedExecutor | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> ModelStatistics:
    """Runs a pipeline up to its calibration and gives back the statistics that are collected there.

    Histograms are always among them, so that any method can calibrate on them later:
    ``qc.compile(model, pipeline, statistics=...)`` with the same model, target and passes before calibration.
    Statistics of shards of the data, see :meth:`qc.runtime.Data.shard`, merge to those of the whole.

    Args:
        executor: how the model is run; it should identify feeds, so that none can be merged in twice.

    The other arguments, and what is raised, are as for :func:`qc.compile`.

    Raises:
        UsageError: the pipeline has no calibration, or one that looks at tensors themselves.
    """
    file = resolve_pipeline(pipeline)
    recorder = Recorder(executor or OrtExecutor(identify_feeds=True))
    compile(
        model,
        replace(file, pipeline=_until_calibration(file)),
        data=data,
        target=target,
        allow_unquantized=True,
        progress=progress,
        seed=seed,
        executor=recorder,
    )
    if recorder.statistics is None:
        raise UsageError(
            f"pipeline '{file.name}': the calibration asks for no statistics; it has nothing to calibrate, "
            "or searches with arithmetic=aimet, which looks at the tensors themselves"
        )
    return recorder.statistics


def _until_calibration(file: PipelineFile) -> Pipeline:
    steps = file.pipeline.steps
    for index, step in enumerate(steps):
        if any(isinstance(inner, Calibrate) for inner in Pipeline((step,)).passes()):
            return Pipeline(steps[: index + 1])
    raise UsageError(
        f"pipeline '{file.name}' has no pass 'calibrate', for which statistics could be collected"
    )
