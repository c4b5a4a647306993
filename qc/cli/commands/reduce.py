"""Shrink a model to a few ops that still show something."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt

from qc.ir.errors import DataError, QcError, UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.load import model_folder
from qc.ir.onnx.save import save_model
from qc.options import REQUIRED, option
from qc.rendering.words import count, file_size, printable
from qc.runtime import Data, model_inputs, random_data
from qc.runtime.evaluation.judge import labelled
from qc.search import Interest, Reduction, parse_interest
from qc.search.interest import CommandInterest
from qc.search.reduce import count_ops, shapes_of

from ..command import Command
from ..files import check_model_output, judging_files, writing
from ..jobs import StartedJob, chosen_labels, compile_options, start
from ..options import Job, labels_option
from ..output import standard_error

MOST_FEEDS = 16


@dataclass(frozen=True, kw_only=True)
class Reduce(Command):
    """Shrinks MODEL.onnx to a few ops that are still interesting.

    Interesting is a model for which a command ends with exit code 0 (it gets the path for {}, or at its end),
    or which is bad by an oracle: 'fails', or a condition such as 'sqnr < 30'. An oracle compiles every model:
    inputs that are kept get the data, and new ones get what the op in their place gave. When interrupted, it
    writes the smallest model so far.

    Examples:
        qc reduce model.onnx --data calibration.npz --interesting 'sqnr < 20'
    """

    job: Job
    interesting: str = option(
        REQUIRED,
        "What is to be kept: a command that ends with 0, or what 'qc bisect --oracle' takes.",
        metavar="TEXT",
        parse=str,
    )
    output: Path | None = option(
        None,
        "Where to write the result.  [default: MODEL.reduced.onnx in the current folder]",
        "-o",
        metavar="FILE",
    )
    labels: Path | None = labels_option()
    max_tests: int | None = option(None, "Look at N models at most.", metavar="N")
    timeout: Annotated[float, Gt(0)] = option(
        60.0,
        "Time for each run of the command; one that takes longer finds nothing.",
        metavar="SECONDS",
    )

    def run(self) -> None:
        place = self.output or Path(f"{Path(self.job.model).stem}.reduced.onnx")
        task = start(self.job, [place], judging_files([self.interesting], self.labels))
        check_model_output(self.output)
        labels = chosen_labels(self.labels, task.data)
        samples = _samples(task.data, labels)
        interest = self._interest(task, [label for _, label in samples] if labels is not None else None)
        chain = _Chain(self.job.quiet)
        reduction = Reduction(
            task.compilation.proto(),
            interest,
            base_dir=task.compilation.base_dir,
            feeds=[feed for feed, _ in samples] or _no_data(task, interest.reads_data),
            max_tests=self.max_tests,
            on_smaller=chain.add,
        )
        try:
            reduction.run()
        except QcError:
            chain.close()
            raise
        except KeyboardInterrupt:
            self._finish(reduction, chain, place)
            raise
        self._finish(reduction, chain, place)

    def _interest(self, task: StartedJob, labels: list[Any] | None) -> Interest:
        """What is to be kept; raises UsageError for options of compiling, which a command does by itself."""
        compilation = replace(task.compilation, data=None)
        interest = parse_interest(self.interesting, compilation, self.timeout, labels)
        for name, value in compile_options(self.job).items():
            if isinstance(interest, CommandInterest) and value is not None:
                raise UsageError(f"{name} is for an oracle that compiles; give it within the command")
        return interest

    def _finish(self, reduction: Reduction, chain: _Chain, place: Path) -> None:
        """Writes the smallest model."""
        chain.close()
        with writing(place):
            written = save_model(reduction.model, place, model_folder(self.job.model))
        if not self.job.quiet:
            size = file_size(sum(file.stat().st_size for file in written))
            tests = count(reduction.tests, "test")
            ops = count(count_ops(reduction.model), "op")
            line = f"wrote {printable(str(place))}, {ops}, {size}, {tests}"
            standard_error().show(line, wrap=False)


def _samples(data: Data | None, labels: np.ndarray | None) -> list[tuple[Feed, Any]]:
    """The first feeds of one shape, with their labels; a reduction keeps to one shape."""
    first = list(islice(labelled(data, labels), MOST_FEEDS)) if data is not None else []
    return [(feed, label) for feed, label in first if shapes_of(feed) == shapes_of(first[0][0])]


def _no_data(task: StartedJob, needed: bool) -> list[Feed]:
    """A random feed if one can be made, which tells the shapes.

    Raises:
        UsageError: data is needed.
    """
    if needed:
        raise UsageError("the oracle or a pass needs data; give it with --data, or --random-data to try out")
    try:
        return list(random_data(model_inputs(task.compilation.proto()), 1, task.compilation.seed))
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
