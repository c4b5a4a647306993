"""``qc eval MODEL.onnx``: how far a quantized model is from the float one, and how fast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from onnx import ModelProto

from qc.compiled import Compiled
from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.ir.onnx.lift import load_model
from qc.layers import LayerErrors, evaluation_page, layer_document, layer_errors, layer_plot, layer_table
from qc.passes import PassContext, PipelineFile
from qc.progress import RichProgress
from qc.report.evaluation import (
    accuracy_table,
    evaluation_document,
    latency_note,
    latency_table,
    metric_table,
)
from qc.report.words import count
from qc.runtime import Data, Evaluation, Metric, evaluate, load_data, load_labels, parse_metric
from qc.runtime.speed.latency import LATENCY_SECONDS

from .candidates import candidates, compile_job, refuse_compile_options
from .files import FileType, WordType, check_outputs, data_files, model_files, write_json, writing
from .option_types import CountType, SecondsType
from .options import (
    DEFAULT_LAYERS,
    Job,
    JobCommand,
    calibration_option,
    chosen,
    job_options,
    json_option,
    labels_option,
)
from .output import print_note, standard_error, standard_output

DEFAULT_THREADS = 1


@dataclass(frozen=True)
class Questions:
    """What is asked about the models, besides the job itself."""

    quantized: Path | None
    calibration: str | None
    latency_seconds: float
    metrics: tuple[str, ...]
    labels: Path | None
    layers: int | None
    plot: bool
    html_file: Path | None
    json_file: Path | None

    @property
    def asks_layers(self) -> bool:
        """Whether the errors of single tensors are wanted."""
        return self.layers is not None or self.plot or self.html_file is not None


@click.command("eval", cls=JobCommand, short_help="Compare a model with its quantized form on data.")
@job_options
@click.option(
    "--quantized",
    metavar="FILE",
    type=FileType(),
    help="Compare with this model instead of compiling MODEL.onnx.",
)
@calibration_option
@click.option(
    "--latency-seconds",
    metavar="S",
    type=SecondsType(none=True),
    default=LATENCY_SECONDS,
    show_default=True,
    help="Time to spend on timing; 0 for none.",
)
@click.option(
    "--metric",
    "metrics",
    metavar="TEXT",
    multiple=True,
    type=WordType(),
    help="sqnr, cosine, max-error, top-K, or a function as module:function or file.py:function; repeatable.",
)
@labels_option
@click.option(
    "--layers",
    metavar="[N]",
    type=CountType(),
    help=f"List the N quantized tensors (default {DEFAULT_LAYERS}) that lose most.",
)
@click.option("--plot", is_flag=True, help="Draw the error of every quantized tensor in the terminal.")
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    type=FileType(),
    help="Write a page for the browser with all scores and the error of every quantized tensor.",
)
@json_option
def eval_command(**given: Any) -> None:
    """Compares MODEL.onnx, run in float, with what qc makes of it, and times them side by side.

    "simulation" computes in float and rounds every quantized tensor to its grid; "integer" is the result for
    the target, run by ONNX Runtime. Runs are pinned to one thread unless --threads says otherwise.
    """
    job = chosen(Job, given)
    questions = chosen(Questions, given)
    _check_questions(job, questions)
    pipeline = job.chosen_pipeline() if questions.quantized is None else None
    data = _checked_data(job, questions, pipeline)
    if data is None:
        raise UsageError("there is no data to compare on; give it with --data, or --random-data to try out")
    metrics, labels = _metrics(job, questions)
    with RichProgress(standard_error()) as progress:
        context = PassContext(progress=progress)
        models, base_dir, compiled = _models(job, questions, pipeline, data, progress)
        result = evaluate(
            job.model,
            models,
            context.track(data, "comparing", data.length),
            base_dir=base_dir,
            threads=job.threads or DEFAULT_THREADS,
            latency_seconds=questions.latency_seconds,
            metrics=metrics,
            labels=labels,
            provider=job.device,
        )
        errors = None
        if questions.asks_layers and compiled is not None:
            errors = layer_errors(
                compiled,
                data,
                threads=job.threads,
                device=job.device,
                track=lambda feeds: context.track(feeds, "comparing tensors", data.length),
            )
    _write(job, questions, result, errors)
    _show(job, questions, result, errors)


def _check_questions(job: Job, questions: Questions) -> None:
    if questions.quantized is not None:
        if questions.asks_layers:
            raise UsageError("--layers, --plot and --html are about compiling, which --quantized leaves out")
        refuse_compile_options(job, {"--calibration": questions.calibration})
    if questions.labels is not None and not any(":" in text for text in questions.metrics):
        raise UsageError("--labels is for functions of --metric, and none is given; others need no labels")


def _checked_data(job: Job, questions: Questions, pipeline: PipelineFile | None) -> Data | None:
    """The data, after refusing, before any work, a file that cannot be written or must not be."""
    proto = job.read()
    inputs = [
        *job.inputs(proto, pipeline, "the data to compare on"),
        *data_files(questions.calibration, "the calibration data"),
        *data_files(str(questions.labels) if questions.labels is not None else None, "the labels"),
    ]
    for text in questions.metrics:
        if ":" in text:
            inputs += data_files(text, "the metric")
    if questions.quantized is not None:
        quantized = load_model(questions.quantized)
        inputs += model_files(questions.quantized, quantized, "the quantized model")
    check_outputs([questions.json_file, questions.html_file], inputs)
    return job.feeds(proto)


def _metrics(job: Job, questions: Questions) -> tuple[list[Metric], np.ndarray | None]:
    """The metrics and labels, which are looked at before any work."""
    labels = load_labels(questions.labels) if questions.labels is not None else None
    metrics = [parse_metric(text, labels is not None) for text in questions.metrics]
    for metric in metrics:
        metric.check(job.read())
    return metrics, labels


def _models(
    job: Job, questions: Questions, pipeline: PipelineFile | None, data: Data, progress: RichProgress
) -> tuple[Mapping[str, ModelProto | Path], Path | None, Compiled | None]:
    """The models to compare with, by name, the folder of their external data, and what was compiled."""
    if pipeline is None:
        assert questions.quantized is not None
        return {"quantized": questions.quantized}, None, None
    source = questions.calibration
    calibration = load_data(source, data.inputs) if source is not None else data
    compiled = compile_job(job, pipeline, calibration, progress)
    return candidates(compiled), compiled.ir.base_dir, compiled


def _write(job: Job, questions: Questions, result: Evaluation, errors: LayerErrors | None) -> None:
    """The files that were asked for."""
    if questions.json_file is not None:
        document = evaluation_document(result)
        if errors is not None:
            document["layers"] = layer_document(errors)
        write_json(questions.json_file, document)
    if questions.html_file is not None and errors is not None:
        page = evaluation_page(job.label, _subject(result), result, errors)
        with writing(questions.html_file), atomic_write(questions.html_file) as file:
            file.write(page.encode())


def _subject(result: Evaluation) -> str:
    return f"float against quantized on {count(result.feeds, 'sample')}"


def _show(job: Job, questions: Questions, result: Evaluation, errors: LayerErrors | None) -> None:
    console = standard_output()
    console.show(f"{job.label}: {_subject(result)}", "", accuracy_table(result))
    if result.metrics:
        console.show("", metric_table(result))
    if result.rounds:
        console.show("", latency_table(result), "", latency_note(result))
    if errors is None:
        return
    if questions.layers is not None:
        console.show("", f"{count(len(errors.layers), 'quantized tensor')}, those first that lose most", "")
        console.show(layer_table(errors, questions.layers))
    if questions.plot:
        console.show("", "SQNR in the order of the graph: the longer the bar, the less is lost", "")
        console.show(layer_plot(errors))
    if errors.left_out:
        print_note(f"left out {errors.left_out}")
