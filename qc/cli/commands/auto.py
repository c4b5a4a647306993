"""Find how to quantize a model so that it keeps its accuracy."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Gt

from qc.auto.climb import Climb, Found, Trial
from qc.auto.judging import Judge, MaxDrop
from qc.auto.recipe_file import recipe_text, trial_record
from qc.auto.recipes import Recipe, ladder, load_ladder
from qc.compiler import Compilation
from qc.ir.base.files import atomic_write
from qc.ir.errors import DemandError, UsageError
from qc.ir.onnx.load import load_model
from qc.options import REQUIRED, Given, argument, option, some_of
from qc.progress import RichProgress
from qc.report.table import Column, Table, text
from qc.report.words import file_size, printable
from qc.runtime import load_data, load_labels, model_inputs, parse_metric

from ..command import Command
from ..files import check_outputs, data_files, judging_files, model_files, toml_files, writing
from ..options import labels_option, quiet_option
from ..output import print_note, standard_error, standard_output


@dataclass(frozen=True, kw_only=True)
class Auto(Command):
    """Tries recipes for MODEL.onnx until one loses no more than --max-drop, and writes model and recipe.

    Each recipe is compiled and judged as it will run. If none of the ladder is good enough, the ops that harm
    most get more bits, as few of them as will do. Beside the model, MODEL.recipe.toml holds the passes and
    rules, and what was tried: 'qc MODEL.onnx --pipeline MODEL.recipe.toml' with the same data gives the same
    model.

    Without --metric a model is good if it agrees with the float model: in the class with the highest score,
    or by the cosine of the worst output.
    """

    model: str = argument("MODEL.onnx")
    data: str = option(REQUIRED, "Data to calibrate on, as for qc itself.", metavar="SRC")
    eval_data: str | None = option(None, "Data to judge by, if that is not --data.", metavar="SRC")
    labels: Path | None = labels_option()
    metric: str | None = option(
        None, "What counts, as for qc eval.  [default: agreement with the float model]", metavar="TEXT"
    )
    max_drop: str = option(
        "1%",
        "How much may be lost: a share of the float model's score, or a number in its unit.",
        metavar="X%|X",
    )
    weights: Literal["8", "4"] = option("8", "Bits of weights.")
    recipes: str | None = option(
        None, "A .toml file with [[recipe]] tables to try instead of qc's.", metavar="FILE"
    )
    minutes: Annotated[float, Gt(0)] = option(10.0, "No trial begins after these.", metavar="M")
    output: Path | None = option(
        None,
        "Where to write the result.  [default: MODEL.q.onnx in the current folder]",
        "-o",
        metavar="FILE",
    )
    keep_best: bool = option(False, "Write the best result even if it loses more than --max-drop.")
    log: Path | None = option(None, "Write what was tried as JSON, one trial on a line.", metavar="FILE")
    chosen: Given = some_of(Compilation, "target", "threads", "device", "seed")
    quiet: bool = quiet_option()

    def run(self) -> None:
        output = self.output or Path(f"{Path(self.model).stem}.q.onnx")
        recipe_file = output.with_suffix(".recipe.toml")
        recipes = load_ladder(self.recipes) if self.recipes is not None else ladder(int(self.weights))
        compilation, judge = self._start([output, recipe_file, self.log])
        found = self._climb(compilation, judge, recipes)
        target = self.chosen["target"] or found.compiled.target.name
        is_written = found.best.verdict.is_accepted or self.keep_best
        with ExitStack() as stack:
            if self.log is not None:
                lines = [json.dumps(trial_record(trial), ensure_ascii=False) for trial in found.trials]
                _stage(stack, self.log, "".join(f"{line}\n" for line in lines))
            if is_written:
                _stage(stack, recipe_file, recipe_text(found, judge, target))
                with writing(output):
                    found.compiled.save(output)
        if not self.quiet:
            standard_output().show(trial_table(found, judge))
            for path in (output, recipe_file) if is_written else ():
                line = f"wrote {printable(str(path))}, {file_size(path.stat().st_size)}"
                standard_error().show(line, wrap=False)
            for note in found.compiled.notes:
                print_note(note)
        if not found.best.verdict.is_accepted:
            raise DemandError(_refusal(found, judge, is_written))

    def _start(self, outputs: list[Path | None]) -> tuple[Compilation, Judge]:
        """Looks at everything, so that what is wrong is told before any work."""
        if self.labels is not None and ":" not in (self.metric or ""):
            raise UsageError("--labels is for a function as --metric, and none is given")
        proto = load_model(self.model)
        inputs = [
            *model_files(self.model, proto, "the input model"),
            *data_files(self.data, "the calibration data"),
            *data_files(self.eval_data, "the data to judge by"),
            *judging_files([self.metric] if self.metric is not None else [], self.labels),
            *toml_files(self.chosen["target"], "the target"),
            *toml_files(self.recipes, "the file of recipes"),
        ]
        check_outputs(outputs, inputs)
        labels = load_labels(self.labels) if self.labels is not None else None
        metric = parse_metric(self.metric, labels is not None) if self.metric is not None else None
        if metric is not None:
            metric.check(proto)
        known = model_inputs(proto)
        calibration = load_data(self.data, known)
        compilation = Compilation(self.model, data=calibration, **self.chosen)
        judge = Judge(
            compilation.reference(),
            load_data(self.eval_data, known) if self.eval_data is not None else calibration,
            MaxDrop.parse(self.max_drop),
            metric,
            labels,
            base_dir=compilation.base_dir,
            threads=compilation.threads,
        )
        if metric is None and not self.quiet:
            print_note(f"judged by {judge.metric.name} with the float model, as no --metric is given")
        return compilation, judge

    def _climb(self, compilation: Compilation, judge: Judge, recipes: list[Recipe]) -> Found:
        console = standard_error()

        def tell(trial: Trial) -> None:
            if not self.quiet:
                console.show(printable(_line(trial, judge)), wrap=False)

        with RichProgress(console) as progress:
            return Climb(compilation, judge, self.minutes, tell, progress).run(recipes)


def trial_table(found: Found, judge: Judge) -> Table:
    """What was tried, with the result marked."""
    score = judge.metric.show
    columns = (
        text(""),
        text("recipe"),
        Column(judge.metric.name, score),
        Column("float", score),
        Column("95 % within", lambda error: f"± {error:.3g}"),
        Column("samples", "d"),
        Column("in integers", ".1%"),
        Column("seconds", ".1f"),
    )
    table = Table(columns)
    for trial in found.trials:
        verdict = trial.verdict
        mark = "*" if trial is found.best else "accepted" if verdict.is_accepted else ""
        error = verdict.error if math.isfinite(verdict.error) else None
        row = verdict.score, verdict.reference, error, verdict.samples, trial.integer_share, trial.seconds
        table.add(mark, trial.recipe.name, *row)
    return table


def _line(trial: Trial, judge: Judge) -> str:
    verdict = trial.verdict
    score = f"{judge.metric.name} {judge.metric.show(verdict.score)}"
    deed = "accepted" if verdict.is_accepted else "refused"
    return f"{trial.recipe.name}: {score}, float {judge.metric.show(verdict.reference)}: {deed}"


def _refusal(found: Found, judge: Judge, is_written: bool) -> str:
    """What was reached, and what prevented more."""
    verdict, show = found.best.verdict, judge.metric.show
    advice = "" if is_written else "; --keep-best writes it all the same"
    return (
        f"no recipe keeps '{judge.metric.name}' within {judge.max_drop} of {show(verdict.reference)}: "
        f"'{found.best.recipe.name}', the best, has {show(verdict.score)}; {found.ended}{advice}"
    )


def _stage(stack: ExitStack, path: Path, content: str) -> None:
    """Writes a file that appears when all goes well."""
    stack.enter_context(writing(path))
    stack.enter_context(atomic_write(path)).write(content.encode())
