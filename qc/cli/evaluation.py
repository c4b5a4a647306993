"""``qc eval MODEL.onnx``: how far a quantized model is from the float one, and how fast."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
from onnx import ModelProto

import qc
from qc.ir.errors import UsageError
from qc.ir.files import atomic_write
from qc.ir.lift import load_model
from qc.passes import PassContext, PipelineFile
from qc.progress import RichProgress
from qc.report import accuracy_table, count, evaluation_document, latency_table
from qc.runtime import Data, Evaluation, evaluate, load_data

from .files import FileType, WordType, check_outputs, data_files, model_files, writing
from .options import Job, JobCommand, job_options
from .output import standard_error, standard_output

DEFAULT_THREADS = 1


@dataclass(frozen=True)
class Questions:
    """What is asked about the models, besides the job itself."""

    quantized: Path | None
    calibration: str | None
    latency_seconds: float
    json_file: Path | None


@click.command("eval", cls=JobCommand, short_help="Compare a model with its quantized form on data.")
@job_options
@click.option(
    "--quantized",
    metavar="FILE",
    type=FileType(),
    help="Compare with this model instead of compiling MODEL.onnx.",
)
@click.option(
    "--calibration", metavar="SRC", type=WordType(), help="Data to calibrate on, if that is not --data."
)
@click.option(
    "--latency-seconds",
    metavar="S",
    type=click.FloatRange(min=0),
    default=3.0,
    show_default=True,
    help="Time to spend on timing; 0 for none.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=FileType(),
    help="Write the numbers as JSON, too.",
)
def eval_command(**given: Any) -> None:
    """Compares MODEL.onnx, run in float, with what qc makes of it, and times them side by side.

    "simulation" computes in float and rounds every quantized tensor to its grid; "integer" is the result for
    the target, run by ONNX Runtime. Runs are pinned to one thread unless --threads says otherwise.
    """
    job = Job(**{field.name: given[field.name] for field in fields(Job)})
    questions = Questions(**{field.name: given[field.name] for field in fields(Questions)})
    _check_questions(job, questions)
    pipeline = job.chosen_pipeline() if questions.quantized is None else None
    data = _checked_data(job, questions, pipeline)
    if data is None:
        raise UsageError("there is no data to compare on; give it with --data, or --random-data to try out")
    with RichProgress(standard_error()) as progress:
        context = PassContext(progress=progress)
        candidates, base_dir = _candidates(job, questions, pipeline, data, progress)
        result = evaluate(
            job.model,
            candidates,
            context.track(data, "comparing", data.length),
            base_dir=base_dir,
            threads=job.threads or DEFAULT_THREADS,
            latency_seconds=questions.latency_seconds,
        )
    if questions.json_file is not None:
        with writing(questions.json_file), atomic_write(questions.json_file) as file:
            file.write(f"{json.dumps(evaluation_document(result), indent=2, allow_nan=False)}\n".encode())
    _show(job, result)


def _check_questions(job: Job, questions: Questions) -> None:
    for_compiling = {
        "--passes": job.passes,
        "--pipeline": job.pipeline,
        "--target": job.target,
        "--calibration": questions.calibration,
    }
    for option, value in for_compiling.items():
        if questions.quantized is not None and value is not None:
            raise UsageError(f"{option} is for compiling, which --quantized leaves out; give one of them")


def _checked_data(job: Job, questions: Questions, pipeline: PipelineFile | None) -> Data | None:
    """The data, after refusing, before any work, a file that cannot be written or must not be."""
    proto = job.read()
    inputs = [
        *job.inputs(proto, pipeline, "the data to compare on"),
        *data_files(questions.calibration, "the calibration data"),
    ]
    if questions.quantized is not None:
        quantized = load_model(questions.quantized)
        inputs += model_files(questions.quantized, quantized, "the quantized model")
    check_outputs([questions.json_file], inputs)
    return job.feeds(proto)


def _candidates(
    job: Job,
    questions: Questions,
    pipeline: PipelineFile | None,
    data: Data,
    progress: RichProgress,
) -> tuple[Mapping[str, ModelProto | Path], Path | None]:
    """The models to compare with, by name, and the folder that their external data is relative to.

    Without a pipeline there is a model that is quantized already.
    """
    if pipeline is None:
        assert questions.quantized is not None
        return {"quantized": questions.quantized}, None
    calibration = load_data(questions.calibration, data.inputs) if questions.calibration is not None else data
    compiled = qc.compile(
        job.model,
        pipeline,
        data=calibration,
        target=job.target,
        threads=job.threads,
        progress=progress,
        seed=job.seed,
    )
    candidates = {"simulation": compiled.simulation}
    if "qdq" in compiled.artifacts:
        candidates["integer"] = compiled.model
    return candidates, compiled.ir.base_dir


def _show(job: Job, result: Evaluation) -> None:
    console = standard_output()
    console.show(f"{job.label}: float against quantized on {count(result.feeds, 'sample')}", "")
    console.show(accuracy_table(result))
    if result.rounds:
        heading = f"median of {count(result.rounds, 'round')}, {count(result.threads, 'thread')}"
        console.show("", latency_table(result), "", heading)
