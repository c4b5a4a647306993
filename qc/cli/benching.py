"""``qc bench MODEL...``: what a model costs in float, simulated and in integers."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from onnx import ModelProto

from qc.ir.errors import QcError, UsageError
from qc.ir.onnx.lift import load_model
from qc.ir.onnx.protos import walk_graphs
from qc.ir.onnx.save import save_model
from qc.passes import PassContext, PipelineFile
from qc.progress import RichProgress
from qc.report.evaluation import REFERENCE, bench_document, bench_table, latency_note
from qc.report.words import printable
from qc.runtime import Benchmark, Data, bench, choose_provider, model_inputs, random_data
from qc.runtime.speed.latency import LATENCY_SECONDS

from .candidates import candidates, compile_job, refuse_compile_options
from .evaluation import DEFAULT_THREADS
from .files import FileType, WordType, check_outputs, model_files, write_json
from .inspection import is_quantization
from .option_types import SecondsType
from .options import (
    DEFAULT_RANDOM_SAMPLES,
    Job,
    JobCommand,
    check_sizes,
    chosen,
    json_option,
    settings_options,
)
from .output import print_note, standard_error, standard_output


@dataclass(frozen=True)
class Questions:
    """What is asked about the models, besides the jobs themselves."""

    quantized: tuple[Path, ...]
    seconds: float
    json_file: Path | None


@click.command("bench", cls=JobCommand, short_help="Measure time, memory and size of a model's forms.")
@click.argument("models", metavar="MODEL.onnx...", nargs=-1, required=True, type=WordType())
@settings_options
@click.option(
    "--quantized",
    metavar="FILE",
    multiple=True,
    type=FileType(),
    help="Measure this model beside MODEL.onnx instead of compiling it; may be repeated.",
)
@click.option(
    "--seconds",
    metavar="S",
    type=SecondsType(none=False),
    default=LATENCY_SECONDS,
    show_default=True,
    help="Time to spend on timing each MODEL.onnx.",
)
@json_option
def bench_command(models: tuple[str, ...], **given: Any) -> None:
    """Measures what every MODEL.onnx costs in float, as a simulation and in integers.

    Latency is timed in turns, with threads pinned to processors (one thread unless --threads says otherwise),
    peak memory in a process for each. Without data a model is calibrated and timed on random numbers. A model
    that holds quantizers already is measured as it is.
    """
    jobs = [chosen(Job, {**given, "model": model}) for model in models]
    questions = chosen(Questions, given)
    _check_questions(jobs, questions)
    found: dict[str, Benchmark] = {}
    with RichProgress(standard_error()) as progress:
        for job in jobs:
            try:
                found[job.model] = _measure(job, questions, progress)
            except QcError as error:
                if len(jobs) > 1:
                    error.add_note(f"this was about '{job.model}'")
                raise
    if questions.json_file is not None:
        write_json(questions.json_file, bench_document(found))
    _show(found)


def _check_questions(jobs: Sequence[Job], questions: Questions) -> None:
    """Refuses, before any work, what contradicts itself and files that must not be written."""
    choose_provider(jobs[0].device)
    if questions.quantized:
        refuse_compile_options(jobs[0], {})
        if len(jobs) > 1:
            raise UsageError(f"--quantized is for one MODEL.onnx, and there are {len(jobs)}")
    model, number = Counter(job.model for job in jobs).most_common(1)[0]
    if number > 1:
        raise UsageError(f"'{model}' is given {number} times; give it once")
    inputs = []
    for job in jobs:
        proto = job.read()
        inputs += job.inputs(proto, _pipeline(job, questions, proto), "the data")
    for path in questions.quantized:
        inputs += model_files(path, load_model(path), "the quantized model")
    check_outputs([questions.json_file], inputs)
    if jobs[0].data is None and jobs[0].random_data is None and not jobs[0].quiet:
        print_note("without --data, random numbers are used, which is enough to measure costs")


def _measure(job: Job, questions: Questions, progress: RichProgress) -> Benchmark:
    proto = job.read()
    data = _data(job, proto)
    with tempfile.TemporaryDirectory() as folder:
        files = _files(job, questions, proto, data, Path(folder), progress)
        threads = job.threads or DEFAULT_THREADS
        context = PassContext(progress=progress)
        return bench(
            files,
            data,
            threads=threads,
            seconds=questions.seconds,
            provider=job.device,
            track=lambda names: context.track(names, "measuring memory", len(names)),
        )


def _pipeline(job: Job, questions: Questions, proto: ModelProto) -> PipelineFile | None:
    """The pipeline to compile with; None for what is measured as it is."""
    asked = any(option is not None for option in job.compile_options().values())
    if questions.quantized or (_holds_quantizers(proto) and not asked):
        return None
    return job.chosen_pipeline()


def _holds_quantizers(proto: ModelProto) -> bool:
    return any(
        is_quantization(node.domain, node.op_type)
        for graph in walk_graphs(proto.graph)
        for node in graph.node
    )


def _data(job: Job, proto: ModelProto) -> Data:
    data = job.feeds(proto) if job.data is not None or job.random_data is not None else None
    if data is None:
        check_sizes(job.sizes, model_inputs(proto))
        data = random_data(model_inputs(proto), DEFAULT_RANDOM_SAMPLES, job.seed, dict(job.sizes))
    return data


def _files(
    job: Job, questions: Questions, proto: ModelProto, data: Data, folder: Path, progress: RichProgress
) -> Mapping[str, Path]:
    """The files to measure, by a name for the report; what is compiled is written into ``folder``."""
    source = Path(job.model)
    if questions.quantized:
        return {REFERENCE: source, **{str(path): path for path in questions.quantized}}
    files = {"as it is" if _holds_quantizers(proto) else REFERENCE: source}
    pipeline = _pipeline(job, questions, proto)
    if pipeline is None:
        return files
    compiled = compile_job(job, pipeline, data, progress)
    for name, model in candidates(compiled).items():
        files[name] = folder / f"{name}.onnx"
        save_model(model, files[name], compiled.ir.base_dir)
    return files


def _show(found: Mapping[str, Benchmark]) -> None:
    console = standard_output()
    for index, (model, result) in enumerate(found.items()):
        console.show(*([""] if index else []), printable(Path(model).name), "", bench_table(result), "")
        console.show(latency_note(result))
        if not result.pinned:
            console.show("threads were not pinned, as the operating system does not lend enough processors")
