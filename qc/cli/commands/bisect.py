"""Find the action or quantizer that makes a result bad."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from qc.ir.errors import UsageError
from qc.ir.executor import Feed
from qc.options import option
from qc.progress import RichProgress
from qc.rendering.terminal import facts_grid
from qc.rendering.words import printable
from qc.runtime import Data
from qc.search import Probe, bisect, parse_oracle
from qc.search.oracle import MetricOracle

from ..command import Command
from ..files import judging_files, write_json
from ..findings import finding_document, finding_facts
from ..jobs import StartedJob, chosen_labels, start
from ..options import Job, calibration_option, json_option, labels_option
from ..output import print_note, print_written, standard_error, standard_output


@dataclass(frozen=True, kw_only=True)
class Bisect(Command):
    """Finds the first action after which the result for MODEL.onnx is bad.

    A condition is true when the result is bad: a metric of 'qc eval', such as sqnr, top-1 or a function of
    yours, for the worst output or one that is named as in 'sqnr(logits) < 30'. "fails" looks for
    a defect of qc or of a pass. A command gets the path of the result for {}, or at its end; its exit code 0
    means good, 125 that it cannot tell, others bad.

    A loss that grows with every action has no culprit: what is found is where it crosses the threshold. Then
    'qc sensitivity' ranks all quantizers, and 'qc auto' looks for another recipe.

    Examples:
        qc bisect model.onnx --data calibration.npz --oracle 'sqnr(logits) < 30'
    """

    job: Job
    oracle: str = option(
        "fails",
        "What is bad: a condition such as 'sqnr < 30', 'fails', or a command.",
        metavar="TEXT",
        parse=str,
    )
    labels: Path | None = labels_option()
    calibration: str | None = calibration_option()
    samples: Annotated[int, Ge(1)] | None = option(
        None, "Compare on the first N samples.  [default: on all]", metavar="N"
    )
    json_file: Path | None = json_option()

    def run(self) -> None:
        files = judging_files([self.oracle], self.labels)
        task = start(self.job, [self.json_file], files, calibration=self.calibration)
        judge = parse_oracle(self.oracle, labels=chosen_labels(self.labels, task.data, self.samples))
        judge.check(task.compilation.proto())
        if judge.needs_data and task.data is None:
            raise UsageError(f"the oracle '{judge}' compares on data; give it with --data")
        if isinstance(judge, MetricOracle):
            task.try_metrics([judge.metric], judge.labels)
        console = standard_error()

        def tell(probe: Probe, actions: int) -> None:
            if not self.job.quiet:
                line = f"limit {probe.limit} of {actions}: {probe.verdict}"
                console.show(printable(line), wrap=False)

        with RichProgress(console) as progress:
            finding = bisect(task.compilation, judge, data=self._data(task), progress=progress, on_probe=tell)
        if self.json_file is not None:
            write_json(self.json_file, finding_document(self.job.label, judge, finding))
        standard_output().show(facts_grid(finding_facts(finding)))
        if not self.job.quiet:
            print_written([self.json_file])
        if finding.is_gradual:
            print_note(
                "no quantizer is to blame alone, and the action found is where a gradual loss crosses the "
                "threshold: 'qc sensitivity' ranks all quantizers, 'qc auto' looks for another recipe"
            )

    def _data(self, task: StartedJob) -> Data | list[Feed] | None:
        """The data to compare on."""
        if self.samples is None or task.data is None:
            return task.data
        return list(islice(task.data, self.samples))
