"""``qc MODEL.onnx``: quantizes a model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from qc.compilation import Compilation, compile_together
from qc.compiled import Compiled
from qc.coverage import CoverageError
from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.passes import PipelineFile
from qc.passes.framework.target import Target, load_target
from qc.progress import RichProgress
from qc.report.coverage import coverage_document, coverage_summary, unquantized_table
from qc.report.terminal import Fact, facts_grid
from qc.report.words import file_size, printable
from qc.runtime import Data

from .collecting import Collecting, collecting_options
from .files import FileType, InputFile, WordType, check_outputs, toml_files, writing
from .instrumentation import Instrumentation, instrumentation_options
from .options import Job, JobCommand, chosen, job_options
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
    also_for: tuple[str, ...]
    statistics: Path | None


@click.command("compile", cls=JobCommand, short_help="Quantize a model; the command when none is named.")
@job_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FileType(),
    help="Where to write the result.  [default: MODEL.q.onnx in the current folder]",
)
@click.option(
    "--also-for",
    metavar="NAME|FILE",
    type=WordType(),
    multiple=True,
    help="Compile for this target, too, with the same calibration; may be repeated.",
)
@click.option("-v", "--verbose", is_flag=True, help="List every tensor that stays float, and why.")
@click.option("--coverage", metavar="FILE", type=FileType(), help="Write the whole coverage as JSON.")
@click.option("--fail-if-unquantized", is_flag=True, help="Fail if any float tensor stays unquantized.")
@click.option("--allow-unquantized", is_flag=True, help="Accept a result in which nothing is quantized.")
@click.option(
    "--statistics", metavar="FILE", type=FileType(), help="Calibrate on what qc observe wrote, without data."
)
@collecting_options
@reproducer_options
@instrumentation_options
@version_option
def compile_command(**given: Any) -> None:
    """Quantizes MODEL.onnx. Files are written only when everything went well."""
    job = chosen(Job, given)
    wishes = chosen(Wishes, given)
    watch = chosen(Instrumentation, given)
    collecting = chosen(Collecting, given)
    if wishes.statistics is not None and collecting.jobs is not None:
        raise UsageError("--jobs is for collecting statistics, which --statistics has; give one of them")
    output = wishes.output or Path(f"{Path(job.model).stem}.q.onnx")
    pipeline = job.chosen_pipeline()
    if not job.quiet:
        collecting.check(pipeline)
    console = standard_error()
    instruments = watch.instruments(pipeline.pipeline, console)
    others = _others(job, pipeline, wishes, output)
    data = _checked_data(job, pipeline, wishes, [output, wishes.coverage, watch.remarks_out, *others])
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
        device=job.device,
        action_limit=watch.bisect_limit,
        seed=job.seed,
        executor=collecting.executor(job),
        instruments=instruments,
        statistics=wishes.statistics,
    )
    with reproducing(compilation, folder):
        with RichProgress(console) as progress:
            compiled, *further = _compile(replace(compilation, progress=progress), others.values())
        documents = watch.documents(compiled)
        if wishes.coverage is not None:
            text = json.dumps(coverage_document(compiled.coverage), indent=2, ensure_ascii=False)
            documents[wishes.coverage] = f"{text}\n"
        written = _write({output: compiled, **dict(zip(others, further, strict=True))}, documents)
    watch.show(console, compiled)
    if not job.quiet:
        _report(console, job, wishes, pipeline, compiled, written)
        for other in further:
            console.show(facts_grid([("also for", other.target.name), *coverage_summary(other.coverage)]))
            for note in other.notes:
                print_note(note)


def _others(job: Job, pipeline: PipelineFile, wishes: Wishes, output: Path) -> dict[Path, Target]:
    """The further targets by the file that is written for each, beside the main one."""
    main = Compilation(job.model, pipeline, target=job.target).chosen_target()
    found: dict[Path, Target] = {}
    for target in map(load_target, wishes.also_for):
        if Path(target.name).name != target.name:
            raise UsageError(f"the name of target '{target.name}' cannot be in the name of a file")
        path = output.with_name(f"{output.stem}.{target.name}.onnx")
        if target.name == main.name or path in found:
            raise UsageError(f"two targets are named '{target.name}'; --also-for takes others")
        found[path] = target
    return found


def _compile(compilation: Compilation, others: Iterable[Target]) -> list[Compiled]:
    """The result for the main target, which is watched, and those for the others."""

    def compiled(one: Compilation) -> Compiled:
        try:
            return one.compile()
        except CoverageError as error:
            if not error.coverage.quantized:
                error.add_note("--allow-unquantized accepts such a result")
            raise

    everything = [compilation, *(replace(compilation, target=other, instruments=()) for other in others)]
    if len(everything) == 1 or compilation.statistics is not None:  # no statistics to share
        return [compiled(one) for one in everything]
    return list(compile_together(everything, compiled).values())


def _checked_data(
    job: Job, pipeline: PipelineFile, wishes: Wishes, outputs: Sequence[Path | None]
) -> Data | None:
    """The data, after refusing, before any work, files that cannot be written or must not be."""
    proto = job.read()
    inputs = job.inputs(proto, pipeline, "the calibration data")
    for name in wishes.also_for:
        inputs += toml_files(name, "a target")
    if wishes.statistics is not None:
        inputs.append(InputFile(wishes.statistics, "the file of the statistics"))
    check_outputs(outputs, inputs)
    data = job.feeds(proto)
    needs = {need for step in pipeline.pipeline.passes() for need in step.needs}
    if data is not None and needs.isdisjoint({"data", "executor"}):
        print_warning("no pass of the pipeline reads data: what was given is not used")
    return data


def _write(results: dict[Path, Compiled], documents: dict[Path, str]) -> list[Path]:
    """Writes the results and the documents about the first: the documents only if the results could be."""
    written: list[Path] = []
    with ExitStack() as stack:
        for path, text in documents.items():
            stack.enter_context(writing(path))
            stack.enter_context(atomic_write(path)).write(text.encode())
        for output, compiled in results.items():
            with writing(output):
                written += compiled.save(output)
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
