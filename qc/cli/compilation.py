"""``qc MODEL.onnx``: quantizes a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from qc.compiler import Compiled
from qc.ir.errors import UsageError
from qc.ir.files import atomic_write
from qc.passes import PipelineFile
from qc.progress import RichProgress
from qc.report import (
    Fact,
    coverage_document,
    coverage_summary,
    facts_grid,
    file_size,
    printable,
    unquantized_table,
)
from qc.runtime import Data
from qc.search import Compilation

from .files import FileType, check_outputs, writing
from .instrumentation import Instrumentation, instrumentation_options
from .options import Job, JobCommand, job_options
from .output import ReportConsole, model_bytes, print_note, print_warning, standard_error
from .reproducing import reproducer_folder, reproducer_options, reproducing
from .version import version_option


@dataclass(frozen=True)
class Wishes:
    """What is wanted of the result, besides the job itself."""

    output: Path | None
    coverage: Path | None
    verbose: bool
    allow_unquantized: bool
    fail_if_unquantized: bool
    reproducer: Path | None
    no_reproducer: bool


@click.command("compile", cls=JobCommand, short_help="Quantize a model; the command when none is named.")
@job_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FileType(),
    help="Where to write the result.  [default: MODEL.q.onnx in the current folder]",
)
@click.option("-v", "--verbose", is_flag=True, help="List every tensor that stays float, and why.")
@click.option("--coverage", metavar="FILE", type=FileType(), help="Write the whole coverage as JSON.")
@click.option("--fail-if-unquantized", is_flag=True, help="Fail if any float tensor stays unquantized.")
@click.option("--allow-unquantized", is_flag=True, help="Accept a result in which nothing is quantized.")
@reproducer_options
@instrumentation_options
@version_option
def compile_command(**given: Any) -> None:
    """Quantizes MODEL.onnx. Files are written only when everything went well."""
    job = Job(**{field.name: given[field.name] for field in fields(Job)})
    wishes = Wishes(**{field.name: given[field.name] for field in fields(Wishes)})
    watch = Instrumentation(**{field.name: given[field.name] for field in fields(Instrumentation)})
    output = wishes.output or Path(f"{Path(job.model).stem}.q.onnx")
    pipeline = job.chosen_pipeline()
    console = standard_error()
    instruments = watch.instruments(pipeline.pipeline, console)
    data = _checked_data(job, pipeline, [output, wishes.coverage, watch.remarks_out])
    folder = reproducer_folder(job.model, wishes.reproducer, wishes.no_reproducer)
    compilation = Compilation(
        job.model,
        pipeline,
        data=data,
        target=job.target,
        allow_unquantized=wishes.allow_unquantized,
        fail_if_unquantized=wishes.fail_if_unquantized,
        verify_each=watch.verify_each,
        check_analyses=watch.check_analyses,
        threads=job.threads,
        action_limit=watch.bisect_limit,
        seed=job.seed,
    )
    with reproducing(compilation, folder):
        with RichProgress(console) as progress:
            compiled = compilation.compile(None, instruments, progress)
        documents = watch.documents(compiled)
        if wishes.coverage is not None:
            text = json.dumps(coverage_document(compiled.coverage), indent=2, ensure_ascii=False)
            documents[wishes.coverage] = f"{text}\n"
        written = _write(compiled, output, documents)
    watch.show(console, compiled)
    if not job.quiet:
        _report(console, job, wishes, pipeline, compiled, written)


def _checked_data(job: Job, pipeline: PipelineFile, outputs: Sequence[Path | None]) -> Data | None:
    """The data, after refusing, before any work, files that cannot be written or must not be."""
    proto = job.read()
    check_outputs(outputs, job.inputs(proto, pipeline, "the calibration data"))
    distinct: set[Path] = set()
    for path in outputs:
        if path is not None and path.resolve() in distinct:
            raise UsageError(f"'{path}' cannot be two results at once; rename one of them")
        if path is not None:
            distinct.add(path.resolve())
    data = job.feeds(proto)
    needs = {need for step in pipeline.pipeline.passes() for need in step.needs}
    if data is not None and needs.isdisjoint({"data", "executor"}):
        print_warning("no pass of the pipeline reads data: what was given is not used")
    return data


def _write(compiled: Compiled, output: Path, documents: dict[Path, str]) -> list[Path]:
    """Writes the result and the documents about it: all of them or none."""
    with ExitStack() as stack:
        for path, text in documents.items():
            stack.enter_context(writing(path))
            stack.enter_context(atomic_write(path)).write(text.encode())
        with writing(output):
            written = compiled.save(output)
    return [*written, *documents]


def _report(
    console: ReportConsole,
    job: Job,
    wishes: Wishes,
    pipeline: PipelineFile,
    compiled: Compiled,
    written: list[Path],
) -> None:
    """The summary of the work, on one screen but for what is asked for in addition."""
    if wishes.verbose:
        console.show(Text("tensors that stay float", style="bold"))
        console.show(unquantized_table(compiled.coverage), "", wrap=False)
    facts: list[Fact] = [
        ("model", f"{job.label}, {file_size(model_bytes(Path(job.model), compiled.ir.origin))}"),
        ("pipeline", f"{pipeline.name} for {compiled.target.name}, {compiled.report.seconds:.1f} s"),
        *coverage_summary(compiled.coverage),
    ]
    if compiled.coverage.unquantized and not wishes.verbose:
        facts.append(("", Text("-v lists every float tensor with its reason", style="dim")))
    console.show(facts_grid(facts))
    for path in written:
        line = Text.assemble(
            ("wrote", "bold"), f"      {printable(str(path))}, {file_size(path.stat().st_size)}"
        )
        console.show(line, wrap=False)
    for note in compiled.notes:
        print_note(note)
