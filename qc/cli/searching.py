"""``qc bisect`` finds the action or quantizer at fault, ``qc reduce`` shrinks the model that shows it."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np
from onnx import ModelProto

from qc.compilation import Compilation
from qc.ir.errors import DataError, QcError, UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.save import save_model
from qc.passes import PipelineFile
from qc.progress import RichProgress
from qc.report.terminal import facts_grid
from qc.report.words import count, file_size, printable
from qc.runtime import Data, load_data, load_labels, model_inputs, random_data
from qc.runtime.evaluation.judge import labelled
from qc.search import Interest, Oracle, Probe, Reduction, bisect, parse_interest, parse_oracle
from qc.search.interest import CommandInterest
from qc.search.oracle import MetricOracle
from qc.search.reduce import count_ops, shapes_of

from .files import FileType, InputFile, check_outputs, data_files, write_json, writing
from .findings import finding_document, finding_facts
from .option_types import CountType
from .options import Job, JobCommand, calibration_option, chosen, job_options, json_option, labels_option
from .output import model_bytes, standard_error, standard_output

MOST_FEEDS = 16


@click.command("bisect", cls=JobCommand, short_help="Find the action or quantizer that makes a result bad.")
@job_options
@click.option(
    "--oracle",
    metavar="TEXT",
    default="fails",
    show_default=True,
    help="What is bad: a condition such as 'sqnr < 30', 'fails', or a command.",
)
@labels_option
@calibration_option
@json_option
def bisect_command(
    oracle: str, labels: Path | None, calibration: str | None, json_file: Path | None, **given: Any
) -> None:
    """Finds the first action after which the result for MODEL.onnx is bad.

    A condition is true when the result is bad: a metric of 'qc eval', such as sqnr, top-1 or a function of
    yours, for the worst output or one that is named as in 'sqnr(logits) < 30'. "fails" looks for
    a defect of qc or of a pass. A command gets the path of the result for {}, or at its end; its exit code 0
    means good, 125 that it cannot tell, others bad.
    """
    job = chosen(Job, given)
    judge = parse_oracle(oracle, labels=_labels(labels))
    pipeline = job.chosen_pipeline()
    proto = job.read()
    inputs = [
        *job.inputs(proto, pipeline, "the data"),
        *data_files(calibration, "the calibration data"),
        *_judging_files(judge, labels),
    ]
    check_outputs([json_file], inputs)
    judge.check(proto)
    data = job.feeds(proto)
    if judge.needs_data and data is None:
        raise UsageError(f"the oracle '{judge}' compares on data; give it with --data")
    calibrating = load_data(calibration, model_inputs(proto)) if calibration is not None else data
    console = standard_error()

    def tell(probe: Probe, actions: int) -> None:
        if not job.quiet:
            line = f"limit {probe.limit} of {actions}: {probe.verdict}"
            console.show(printable(line), wrap=False)

    with RichProgress(console) as progress:
        compilation = _compilation(job, pipeline, calibrating)
        finding = bisect(compilation, judge, data=data, progress=progress, on_probe=tell)
    if json_file is not None:
        write_json(json_file, finding_document(job.label, judge, finding))
    standard_output().show(facts_grid(finding_facts(finding)))


def _labels(file: Path | None) -> np.ndarray | None:
    return load_labels(file) if file is not None else None


def _judging_files(judge: Oracle, labels: Path | None) -> list[InputFile]:
    """The files that a metric and its labels are read from."""
    metric = judge.name if isinstance(judge, MetricOracle) and ":" in judge.name else None
    given = str(labels) if labels is not None else None
    return [*data_files(metric, "the metric"), *data_files(given, "the labels")]


def _compilation(job: Job, pipeline: PipelineFile, data: Data | None) -> Compilation:
    return Compilation(
        job.model,
        pipeline,
        data=data,
        target=job.target,
        threads=job.threads,
        device=job.device,
        seed=job.seed,
    )


@click.command("reduce", cls=JobCommand, short_help="Shrink a model to a few ops that still show something.")
@job_options
@click.option(
    "--interesting",
    metavar="TEXT",
    required=True,
    help="What is to be kept: a command that ends with 0, or what 'qc bisect --oracle' takes.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FileType(),
    help="Where to write the result.  [default: MODEL.reduced.onnx in the current folder]",
)
@labels_option
@click.option("--max-tests", metavar="N", type=CountType(), help="Look at N models at most.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Time for each run of the command; one that takes longer finds nothing.",
)
def reduce_command(
    interesting: str,
    output: Path | None,
    labels: Path | None,
    max_tests: int | None,
    timeout: float,
    **given: Any,
) -> None:
    """Shrinks MODEL.onnx to a few ops that are still interesting.

    Interesting is a model for which a command ends with exit code 0 (it gets the path for {}, or at its end),
    or which is bad by an oracle: 'fails', or a condition such as 'sqnr < 30'. An oracle compiles every model:
    inputs that are kept get the data, and new ones get what the op in their place gave. When interrupted, it
    writes the smallest model so far.
    """
    job = chosen(Job, given)
    place = output or Path(f"{Path(job.model).stem}.reduced.onnx")
    pipeline = job.chosen_pipeline()
    proto = job.read()
    check_outputs([place], job.inputs(proto, pipeline, "the data"))
    compilation = _compilation(job, pipeline, None)
    samples = _samples(job.feeds(proto), _labels(labels))
    kept = [label for _, label in samples] if labels is not None else None
    interest = _interest(job, interesting, compilation, timeout, kept)
    chain = _Chain(job.quiet)
    reduction = Reduction(
        proto,
        interest,
        base_dir=compilation.base_dir,
        feeds=[feed for feed, _ in samples] or _no_data(job, proto, interest.reads_data),
        max_tests=max_tests,
        on_smaller=chain.add,
    )
    try:
        reduction.run()
    except KeyboardInterrupt:
        _finish(job, reduction, chain, place)
        raise
    except QcError:
        chain.close()
        raise
    _finish(job, reduction, chain, place)


def _interest(
    job: Job, text: str, compilation: Compilation, timeout: float, labels: list[Any] | None
) -> Interest:
    """What is to be kept; raises UsageError for options of compiling, which a command does by itself."""
    interest = parse_interest(text, compilation, timeout, labels)
    if isinstance(interest, CommandInterest):
        for option, value in (
            ("--passes", job.passes),
            ("--pipeline", job.pipeline),
            ("--target", job.target),
        ):
            if value is not None:
                raise UsageError(f"{option} is for an oracle that compiles; give it within the command")
    return interest


def _samples(data: Data | None, labels: np.ndarray | None) -> list[tuple[Feed, Any]]:
    """The first feeds of one shape, with their labels; a reduction keeps to one shape."""
    first = list(islice(labelled(data, labels), MOST_FEEDS)) if data is not None else []
    return [(feed, label) for feed, label in first if shapes_of(feed) == shapes_of(first[0][0])]


def _no_data(job: Job, proto: ModelProto, needed: bool) -> list[Feed]:
    """A random feed if one can be made, which tells the shapes.

    Raises:
        UsageError: data is needed.
    """
    if needed:
        raise UsageError("the oracle or a pass needs data; give it with --data, or --random-data to try out")
    try:
        return list(random_data(model_inputs(proto), 1, job.seed))
    except DataError:
        return []


class _Chain:
    """Shows ``412 ops -> 206 -> 103`` as it grows, on one line."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._begun = False

    def add(self, ops: int) -> None:
        """Adds a number."""
        if not self._quiet:
            sys.stderr.write(f" -> {ops}" if self._begun else count(ops, "op"))
            sys.stderr.flush()
        self._begun = True

    def close(self) -> None:
        """Ends the line."""
        if self._begun and not self._quiet:
            sys.stderr.write("\n")


def _finish(job: Job, reduction: Reduction, chain: _Chain, place: Path) -> None:
    """Writes the smallest model."""
    chain.close()
    with writing(place):
        save_model(reduction.model, place, Path(job.model).resolve().parent)
    if not job.quiet:
        size = file_size(model_bytes(place, reduction.model))
        tests = count(reduction.tests, "test")
        line = f"wrote {printable(str(place))}, {count(count_ops(reduction.model), 'op')}, {size}, {tests}"
        standard_error().show(line, wrap=False)
