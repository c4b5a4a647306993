"""Quantizing a model, and telling what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from qc.compiler import Compilation, compile_together
from qc.compiler.compiled import Compiled
from qc.coverage import CoverageError
from qc.ir.base.files import atomic_write
from qc.ir.errors import ModelError, UsageError
from qc.ir.onnx.load import read_file
from qc.ir.onnx.protos import holds_quantizers
from qc.passes import Pipeline, Stage
from qc.passes.framework.context import Artifact
from qc.passes.framework.target import Target, load_target
from qc.processor import words_of
from qc.progress import RichProgress
from qc.rendering.coverage import coverage_document, coverage_summary, unquantized_table
from qc.rendering.terminal import Fact, facts_grid
from qc.rendering.words import file_size, printable
from qc.runtime.devices.device import require_installed
from qc.runtime.devices.known import EMITTING
from qc.verdict.measure import Verdict, measure_verdict
from qc.verdict.words import verdict_facts, verdict_notes, verdict_warnings

from . import instrumentation
from .collecting import check_collecting, executor
from .files import InputFile, check_model_output, toml_files, writing
from .jobs import StartedJob, chosen_pipeline, start
from .options import Collecting, Instrumentation, Job, Keeping, Wishes
from .output import print_note, print_warning, standard_error
from .reproducing import reproducer_folder, reproducing

VERDICT_SECONDS = 5.0


def quantize(
    job: Job, wishes: Wishes, collecting: Collecting, keeping: Keeping, watch: Instrumentation
) -> None:
    """Quantizes a model, writes what is wanted and tells about it.

    Raises:
        QcError: what :func:`qc.compile` raises, and for files that cannot be written.
    """
    _refuse_opposites(job, wishes, collecting)
    output = wishes.output or Path(f"{Path(job.model).stem}.q.onnx")
    console = standard_error()
    others = _others(job, wishes, output)
    outputs = [output, wishes.coverage, watch.remarks_out, *others]
    task = start(job, outputs, _inputs(wishes), role="the calibration data")
    check_model_output(wishes.output)
    pipeline = task.compilation.chosen_pipeline()
    _refuse_float(output, task.is_quantized, pipeline.pipeline)
    if not job.quiet:
        check_collecting(collecting, pipeline)
    if task.data is not None and not task.compilation.reads_data:
        print_warning("no pass of the pipeline reads data: what was given is not used")
    folder = reproducer_folder(job.model, keeping)
    compilation = replace(
        task.compilation,
        executor=executor(task.compilation, collecting),
        instruments=instrumentation.instruments(watch, pipeline.pipeline, console),
        **wishes.chosen,
        **watch.checks,
        **watch.limit,
    )
    emit = _emitting(wishes, compilation.chosen_target())
    with reproducing(compilation, folder):
        with RichProgress(console) as progress:
            compiled, *further = _compile(replace(compilation, progress=progress), others.values())
        emit(compiled)
        documents = _documents(wishes, watch, compiled)
    instrumentation.show(watch, console, compiled)
    results = {output: compiled, **dict(zip(others, further, strict=True))}
    try:
        verdict = Verdict() if wishes.no_verdict else _verdict(task, compiled)
    except BaseException:  # such as an interrupt; the results are complete
        _tell_of(_write(results, documents))
        raise
    _require_running(verdict)
    with reproducing(compilation, folder):
        written = _write(results, documents)
    if not job.quiet:
        _report(task, wishes, pipeline.name, compiled, written, verdict)
        for other in further:
            _report_other(other)
    for warning in [*compiled.warnings, *verdict_warnings(verdict)]:
        print_warning(warning)


def _refuse_opposites(job: Job, wishes: Wishes, collecting: Collecting) -> None:
    """Raises UsageError for options of which only one can be given."""
    if wishes.chosen["statistics"] is not None and collecting.jobs is not None:
        raise UsageError("--jobs is for collecting statistics, which --statistics has; give one of them")
    if job.quiet and wishes.verbose:
        raise UsageError("give --quiet or --verbose, not both")


def _refuse_float(output: Path, is_quantized: bool, pipeline: Pipeline) -> None:
    """Raises UsageError if a float model would take the place of a quantized one that was made before."""
    if is_quantized or any(step.stage is Stage.LOWER for step in pipeline.passes()):
        return
    with suppress(ModelError):
        if output.exists() and holds_quantizers(read_file(output)):
            raise UsageError(
                f"'{output}' holds a quantized model, and a pipeline without a lowering pass makes a float "
                "one: add 'insert-qdq', or write to another file with -o"
            )


def _inputs(wishes: Wishes) -> list[InputFile]:
    """The files that are read for the wishes."""
    statistics = wishes.chosen["statistics"]
    found = [] if statistics is None else [InputFile(statistics, "the file of the statistics")]
    return [*found, *(file for name in wishes.also_for for file in toml_files(name, "a target"))]


def _others(job: Job, wishes: Wishes, output: Path) -> dict[Path, Target]:
    """The further targets by the file that is written for each, beside the main one."""
    main = Compilation(job.model, chosen_pipeline(job), target=job.chosen["target"]).chosen_target()
    found: dict[Path, Target] = {}
    for target in map(load_target, wishes.also_for):
        if Path(target.name).name != target.name:
            raise UsageError(f"the name of target '{target.name}' cannot be in the name of a file")
        path = output.with_name(f"{output.stem}.{target.name}.onnx")
        if target.name == main.name or path in found:
            raise UsageError(f"two targets are named '{target.name}'; --also-for takes others")
        found[path] = target
    return found


def _emitting(wishes: Wishes, target: Target) -> Callable[[Compiled], None]:
    """What lets the compiler of a device make what --emit wants, and adds that to a result."""
    kind = wishes.emit
    if kind is None:
        if wishes.device_options:
            raise UsageError("--device-option is for what --emit makes; say what, such as --emit qnn-context")
        return lambda compiled: None
    device = EMITTING[kind]
    if target.provider != device.provider:
        raise UsageError(f"--emit {kind} is of the target {device.name}, and this one is {target.name}")
    require_installed(device)
    opened = device(dict(wishes.device_options))

    def emit(compiled: Compiled) -> None:
        made = opened.emit(kind, compiled.model, base_dir=compiled.ir.base_dir)
        compiled.artifacts[kind] = Artifact(kind, made, device.emitted[kind])

    return emit


def _compile(compilation: Compilation, others: Iterable[Target]) -> list[Compiled]:
    """The result for the main target, which is watched, and those for the others."""

    def compiled(one: Compilation) -> Compiled:
        try:
            return one.compile()
        except CoverageError as error:
            if not error.coverage.formats:
                error.add_note("--allow-unquantized accepts such a result")
            raise

    everything = [compilation, *(replace(compilation, target=other, instruments=()) for other in others)]
    if len(everything) == 1 or compilation.statistics is not None:  # no statistics to share
        return [compiled(one) for one in everything]
    return list(compile_together(everything, compiled).values())


def _documents(wishes: Wishes, watch: Instrumentation, compiled: Compiled) -> dict[Path, str]:
    """The texts about the first result by the files they are written to."""
    documents = instrumentation.documents(watch, compiled)
    if wishes.coverage is not None:
        text = json.dumps(coverage_document(compiled.coverage), indent=2, ensure_ascii=False)
        documents[wishes.coverage] = f"{text}\n"
    return documents


def _require_running(verdict: Verdict) -> None:
    """Raises ModelError if ONNX Runtime does not run the result, which is for it."""
    if verdict.is_refused:
        raise ModelError(
            "the result does not run, though the float model does, and was not written: "
            f"{verdict.not_compared}; --no-verdict writes it all the same"
        )


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


def _verdict(task: StartedJob, compiled: Compiled) -> Verdict:
    """What the result keeps and costs beside the float model; who wants it quiet is not told of costs."""
    with RichProgress(standard_error()) as progress:
        working = progress.start("comparing with the float model", None)
        is_meaningful = task.job.random_data is None
        found = measure_verdict(
            compiled,
            task.data,
            is_meaningful=is_meaningful,
            seconds=VERDICT_SECONDS,
            with_costs=not task.job.quiet,
        )
        working.finish()
    return found


def _report(
    task: StartedJob, wishes: Wishes, pipeline: str, compiled: Compiled, written: list[Path], verdict: Verdict
) -> None:
    """The summary of the work, on one screen but for what is asked for in addition."""
    console = standard_error()
    if wishes.verbose:
        console.show(Text("tensors that stay float", style="bold"))
        console.show(unquantized_table(compiled.coverage), "", wrap=False)
    facts: list[Fact] = [
        ("model", f"{task.job.label}, {file_size(task.model_bytes)}"),
        ("pipeline", f"{pipeline} for {words_of(compiled.target)}, {compiled.report.seconds:.1f} s"),
        *coverage_summary(compiled.coverage),
    ]
    if compiled.coverage.unquantized and not wishes.verbose:
        facts.append(("", Text("-v lists every float tensor with its reason", style="dim")))
    console.show(facts_grid([*facts, *verdict_facts(verdict)]))
    _tell_of(written)
    for note in [*compiled.notes, *verdict_notes(verdict)]:
        print_note(note)


def _report_other(compiled: Compiled) -> None:
    """The summary of a result for a further target."""
    facts: list[Fact] = [("also for", compiled.target.name), *coverage_summary(compiled.coverage)]
    standard_error().show(facts_grid(facts))
    for note in compiled.notes:
        print_note(note)


def _tell_of(written: Iterable[Path]) -> None:
    """A line for each file."""
    for path in written:
        line = Text.assemble(
            ("wrote", "bold"), f"      {printable(str(path))}, {file_size(path.stat().st_size)}"
        )
        standard_error().show(line, wrap=False)
