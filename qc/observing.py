"""Collecting the statistics that a pipeline calibrates on, apart from the calibration itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from onnx import ModelProto

from qc.ir.errors import UsageError
from qc.passes import Pipeline, PipelineFile, Progress
from qc.passes.framework.target import Target
from qc.passes.quantize.calibration.calibration import CalibrationPass
from qc.runtime import ModelStatistics, OrtExecutor, Recorder, ShardedExecutor
from qc.runtime.executors.sharing import SharingExecutor

from .compiled import Compiled
from .named_pipelines import resolve_pipeline
from .search import Compilation
from .several_targets import share


def observe(
    model: ModelProto | str | Path,
    pipeline: str | Path | Pipeline | PipelineFile = "w8a8",
    *,
    data: object,
    target: str | Path | Target | None = None,
    also_for: Iterable[str | Path | Target] = (),
    executor: OrtExecutor | ShardedExecutor | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> ModelStatistics:
    """Runs a pipeline up to its calibration and gives back the statistics that are collected there.

    Histograms are always among them, so that any method can calibrate on them later:
    ``qc.compile(model, pipeline, statistics=...)`` with the same model, target and passes before calibration.
    Statistics of shards of the data, see :meth:`qc.runtime.Data.shard`, merge to those of the whole.

    Args:
        also_for: further targets that the statistics are to serve, which may need other tensors.
        executor: how the model is run; it should identify feeds, so that none can be merged in twice.

    The other arguments, and what is raised, are as for :func:`qc.compile`.

    Raises:
        UsageError: the pipeline has no calibration, or one that looks at tensors themselves; or the passes
            before it make other models for other targets.
    """
    file = resolve_pipeline(pipeline)
    recorder = Recorder(executor or OrtExecutor(identify_feeds=True))
    sharing = SharingExecutor(recorder)
    first = Compilation(
        model,
        replace(file, pipeline=_until_calibration(file)),
        data=data,
        target=target,
        seed=seed,
        executor=sharing,
    )
    everything = [first, *(replace(first, target=other) for other in also_for)]

    def compiled(one: Compilation) -> Compiled:
        if sharing.planned_models > 1:  # to be told before the data is read, which can take hours
            raise UsageError(
                f"pipeline '{file.name}': its passes before the statistics make another model for another "
                "target; observe for one target at a time"
            )
        return one.compile(progress=progress)

    share(everything, sharing, compiled)
    if recorder.statistics is None:
        raise UsageError(
            f"pipeline '{file.name}': the calibration asks for no statistics; it has nothing to calibrate"
        )
    return recorder.statistics


def _until_calibration(file: PipelineFile) -> Pipeline:
    steps = file.pipeline.steps
    for index, step in enumerate(steps):
        found = [inner for inner in Pipeline((step,)).passes() if isinstance(inner, CalibrationPass)]
        sequential = next((one for one in found if one.is_sequential), None)
        if sequential is not None:
            raise UsageError(
                f"pipeline '{file.name}': {sequential} looks at the "
                "tensors themselves, one sample after the other; there are no statistics to collect for it"
            )
        if found:
            return Pipeline(steps[: index + 1])
    raise UsageError(
        f"pipeline '{file.name}' has no pass 'calibrate', for which statistics could be collected"
    )
