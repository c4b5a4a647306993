"""The beginning of every command that compiles: its model, pipeline, files and data are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from qc.compiler import Compilation
from qc.compiler.compiled import Compiled
from qc.ir.errors import UsageError, nearest
from qc.ir.onnx.load import load_model
from qc.ir.onnx.protos import holds_quantizers
from qc.named_pipelines import pipeline_names, resolve_pipeline
from qc.passes import Pass, Pipeline, PipelineFile, Stage, with_options
from qc.passes.framework.overrides import with_option
from qc.passes.framework.pipeline import Step
from qc.passes.quantize.configure_quantizers import ConfigureQuantizers
from qc.passes.quantize.precision.rules import load_rules, rules_of
from qc.progress import RichProgress
from qc.runtime import Data, InputInfo, Metric, OpenModel, load_data, load_labels, random_data
from qc.runtime.data.inputs import free_dimensions
from qc.runtime.evaluation.judge import Labels, check_labels, judge

from .files import InputFile, check_outputs, data_files, model_files, toml_files
from .options import DEFAULT_PIPELINE, Job, Settings
from .output import model_bytes, print_warning, standard_error


@dataclass(frozen=True)
class StartedJob:
    """A job that can begin.

    Attributes:
        compilation: what to compile, on the data or on that of ``--calibration``.
        data: the data that is given, if any is.
        compiles: whether the model is to be compiled.
        model_bytes: the size of the model, with its external data.
        is_quantized: whether the model holds quantizers already.
    """

    job: Job
    compilation: Compilation
    data: Data | None
    compiles: bool
    model_bytes: int
    is_quantized: bool

    def compile(self, **more: Any) -> Compiled:
        """Compiles, with a bar that shows how far it is; ``more`` are fields of the compilation."""
        with RichProgress(standard_error()) as progress:
            return replace(self.compilation, progress=progress, **more).compile()

    def try_metrics(self, metrics: Iterable[Metric], labels: Labels | None) -> None:
        """Shows the user's functions the first sample in float: what fails does so before any work.

        Raises:
            UsageError: a function does not take what the model gives, or the label.
        """
        own = [metric for metric in metrics if ":" in metric.name]
        if not own or self.data is None or self.data.is_read_once:
            return
        compilation = self.compilation
        settings: dict[str, Any] = {"provider": compilation.device, "threads": 1}
        model = OpenModel(compilation.reference(), base_dir=compilation.base_dir, **settings)
        first = None if labels is None else labels[:1]
        judge(model, [(model, [metric.start() for metric in own])], islice(self.data, 1), first)

    def decide(self) -> Compiled:
        """Compiles without the passes that lower and, if there is no data, without those that need it.

        Quantizers have no numbers then.
        """
        file = self.compilation.chosen_pipeline()
        steps = _deciding(file.pipeline.steps, has_data=self.data is not None)
        return self.compile(
            pipeline=replace(file, pipeline=Pipeline(steps)), precision=(), allow_unquantized=True
        )


def start(
    job: Job,
    outputs: Sequence[Path | None] = (),
    others: Sequence[InputFile] = (),
    *,
    calibration: str | None = None,
    compiles: bool = True,
    on: str | None = None,
    role: str = "the data",
    purpose: str | None = None,
) -> StartedJob:
    """Looks at everything, so that what is wrong is told before any work.

    Args:
        outputs: files that will be written.
        others: files that are read besides those of the job.
        calibration: data to calibrate on, if that is not the data of the job.
        compiles: whether the model is compiled; else the options that say how count for nothing.
        on: the device that will run it, which chooses the target where none is given.
        role: what the data of the job is, in words.
        purpose: what data is for, in words; None if there need not be any.

    Raises:
        UsageError: options that contradict each other, or files that cannot or must not be written.
        ModelError, DataError: the model or the data cannot be read.
    """
    pipeline = chosen_pipeline(job) if compiles else None
    compilation = Compilation(job.model, precision=_rules(job) if compiles else (), **job.chosen)
    if pipeline is not None:
        compilation = replace(compilation, pipeline=pipeline).for_device(on)
        compilation.check_target()
    proto = load_model(job.model)
    target = job.chosen["target"] or (pipeline.target if pipeline is not None else None)
    files = [
        *model_files(job.model, proto, "the input model"),
        *data_files(job.data, role),
        *data_files(calibration, "the calibration data"),
        *toml_files(job.pipeline, "the pipeline"),
        *([InputFile(Path(job.precision), "the precision file")] if job.precision is not None else []),
        *toml_files(target, "the target"),
        *others,
    ]
    check_outputs(outputs, files)
    inputs = compilation.fed_inputs()
    data = _feeds(job, inputs)
    if purpose is not None and data is None:
        raise UsageError(f"there is no data {purpose}; give it with --data, or --random-data to try out")
    calibrating = load_data(job.preparing.of(calibration), inputs) if calibration is not None else data
    compilation = replace(compilation, data=calibrating)
    size = model_bytes(Path(job.model), proto)
    return StartedJob(job, compilation, data, compiles, size, holds_quantizers(proto))


def chosen_labels(file: Path | None, data: Data | None, most: int | None = None) -> np.ndarray | None:
    """The labels of a file if one is given, else those that the data has, of the first ``most`` samples.

    Raises:
        DataError: the file cannot be read, or has not one for each sample, where their number is known.
    """
    if file is None:
        labels = data.labels if data is not None else None
        return labels if labels is None else labels[:most]
    labels = load_labels(file)[:most]
    if data is not None and data.length is not None:
        check_labels(labels, min(data.length, most or data.length))
    return labels


def compile_options(job: Settings) -> dict[str, object]:
    """The options that say how to compile, with what was given for them; None where nothing was."""
    return {
        "--passes": job.passes,
        "--pipeline": job.pipeline,
        "--opt": job.options or None,
        "--append": job.append,
        "--config": job.config,
        "--set": job.rules or None,
        "--precision": job.precision,
        "--target": job.chosen["target"],
    }


def is_to_compile(job: Job) -> bool:
    """Whether there is anything to compile with; else a model is shown as it is."""
    given = (*compile_options(job).values(), job.data, job.random_data)
    return any(one is not None for one in given)


def refuse_compile_options(
    job: Settings, others: Mapping[str, object], why: str = "which --quantized leaves out; give one of them"
) -> None:
    """Raises UsageError for options that say how to compile where nothing is compiled, and ``why``."""
    for option, value in {**compile_options(job), **others}.items():
        if value is not None:
            raise UsageError(f"{option} is for compiling, {why}")


def chosen_pipeline(job: Settings) -> PipelineFile:
    """The pipeline; raises UsageError if there is no such pipeline, pass or option."""
    file = _named_pipeline(job)
    if job.config is not None:
        file = replace(file, pipeline=_configured(file, job.config))
    for text in job.options:
        if "=" not in text:
            form = "an option of a pass is written PASS.OPTION=VALUE, such as calibrate.method=percentile"
            raise UsageError(f"--opt {text}: {form}; 'qc help PASS' lists the options of a pass")
        file = replace(file, pipeline=with_options(file.pipeline, text))
    if job.append is not None:
        steps = resolve_pipeline(job.append).pipeline.steps
        file = replace(file, pipeline=Pipeline([*file.pipeline.steps, *steps]))
    return file


def _configured(file: PipelineFile, config: str) -> Pipeline:
    """The pipeline with another configuration of AIMET."""
    if not any(isinstance(step, ConfigureQuantizers) for step in file.pipeline.passes()):
        raise UsageError(
            f"--config is for pipelines with configure-quantizers, such as quantsim; '{file.name}' has none"
        )
    return Pipeline(with_option(file.pipeline.steps, "configure-quantizers.config", config))


def _named_pipeline(job: Settings) -> PipelineFile:
    """What --passes or --pipeline says."""
    if job.passes is not None and job.pipeline is not None:
        raise UsageError("give --passes or --pipeline, not both")
    known = pipeline_names()
    if job.passes is not None:
        if job.passes.endswith(".toml"):
            raise UsageError(f"'{job.passes}' is a pipeline, not a pass; give it as --pipeline {job.passes}")
        return replace(resolve_pipeline(job.passes), name="--passes")
    name = job.pipeline or DEFAULT_PIPELINE
    if not name.endswith(".toml") and name.partition("{")[0] not in known:
        raise UsageError(
            f"unknown pipeline '{name}'{nearest(name, known)}; known: {', '.join(known)}, or a file "
            "(passes are given with --passes)"
        )
    return resolve_pipeline(name)


def check_sizes(sizes: Sequence[tuple[str, int]], inputs: Sequence[InputInfo]) -> None:
    """Raises UsageError if ``--size`` names what is no free dimension."""
    free = free_dimensions(inputs)
    listed = ", ".join(dict.fromkeys(free.values())) or "none"
    for name, _ in sizes:
        if name not in free and name not in free.values():
            raise UsageError(
                f"--size names '{name}', which no input has{nearest(name, list(free.values()))}; "
                f"free dimensions: {listed}"
            )


def candidates(compiled: Compiled) -> dict[str, ModelProto]:
    """The models that stand for a result: the simulation and, if there is a QDQ model, ``integer``."""
    found = {"simulation": compiled.simulation}
    if "qdq" in compiled.artifacts:
        found["integer"] = compiled.model
    return found


def _rules(job: Settings) -> list:
    rules = load_rules(job.precision) if job.precision is not None else []
    return [*rules, *rules_of(job.rules, "--set")]


def _feeds(job: Job, inputs: Sequence[InputInfo]) -> Data | None:
    """The data for the model, if any is given; warns of random data."""
    if job.data is not None and job.random_data is not None:
        raise UsageError("give --data or --random-data, not both")
    if job.sizes and job.random_data is None:
        raise UsageError("--size is for --random-data, which is not given")
    fixed = {text.rpartition("=")[0] for text in job.chosen["fix_shapes"]}
    for name in (name for name, _ in job.sizes if name in fixed):
        raise UsageError(f"'{name}' has the length of --fix-shape; leave --size {name} out")
    if job.data is not None:
        return load_data(job.preparing.of(job.data), inputs)
    if job.preparing.given:
        raise UsageError(f"--{next(iter(job.preparing.given))} prepares data; give it with --data")
    if job.random_data is None:
        return None
    check_sizes(job.sizes, inputs)
    data = random_data(inputs, job.random_data, job.chosen["seed"], dict(job.sizes))
    print_warning("--random-data makes meaningless ranges: the result is good for trying out and timing only")
    return data


def _deciding(steps: Sequence[Step], has_data: bool) -> list[Step]:
    """The steps without those that lower, and without those that need data if there is none.

    What needs an executor runs without data only on the float graph: it folds constants.
    """
    kept: list[Step] = []
    for step in steps:
        if not isinstance(step, Pass):
            inner = _deciding(step.steps, has_data)
            kept += [replace(step, steps=inner)] if inner else []
            continue
        on_data = {"data"} if step.stage is Stage.FLOAT else {"data", "executor"}
        if step.stage is not Stage.LOWER and (has_data or step.needs.isdisjoint(on_data)):
            kept.append(step)
    return kept
