"""Find how to quantize a model so that it keeps its accuracy."""

from __future__ import annotations

import json
import math
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from qc.auto import Failure, Found, Judge, RecipeSearch, Trial, recipe_text
from qc.auto.mixed_precision import Survey, front_page
from qc.auto.pace import may_be_slower
from qc.compiler import MOST_WORKERS, Compilation
from qc.compiler.compiled import Compiled
from qc.ir.base.files import atomic_write
from qc.ir.errors import DemandError, UsageError
from qc.ir.onnx.load import load_model
from qc.options import REQUIRED, Given, argument, option, some_of
from qc.progress import RichProgress
from qc.rendering.table import Column, Table, text
from qc.rendering.words import count, printable, share_of
from qc.runtime import Spread, load_data
from qc.saturation import SaturationCounter

from ..command import Command
from ..devices import chosen_device, on_option
from ..files import (
    check_model_output,
    check_outputs,
    data_files,
    judging_files,
    model_files,
    toml_files,
    writing,
)
from ..options import device_options_option, labels_option, quiet_option
from ..output import print_note, print_warning, print_written, standard_error, standard_output
from ..preparing import Preparing

_POINTS = 8
_LOOKED_AT = 256  # samples, for inputs beyond their grids
_RECIPE_WIDTH = 16
_FEW_QUANTIZED = 0.5  # of the multiplications: a result with less is mostly float


@dataclass(frozen=True, kw_only=True)
class Auto(Command):
    """Tries recipes for MODEL.onnx until one loses no more than --max-drop, and writes model and recipe.

    Each recipe is compiled and judged as it will run. If none of the ladder is good enough, precisions are
    mixed: what harms most gets more bits, as little of it as will do. Beside the result, MODEL.auto.onnx,
    MODEL.auto.recipe.toml holds the passes and rules, and what was tried: 'qc MODEL.onnx --pipeline
    MODEL.auto.recipe.toml' with the same data gives the same model.

    Without --metric a model is good if it agrees with the float model: in classes, texts, masks or vectors,
    by what its outputs hold, which is told first.

    Examples:
        qc auto model.onnx --data train.npz --eval-data test.npz --max-drop 1%
        qc auto model.onnx --data photos --preset imagenet --labels labels.npy --metric judge.py:accuracy
    """

    elsewhere: ClassVar = {
        "--random-data": "random numbers tell nothing of accuracy; give samples with --data"
    }
    if_quantized = "'qc auto FLOAT.onnx' looks for a recipe for the float model that it was made of"

    model: str = argument("MODEL.onnx")
    data: str = option(REQUIRED, "Data to calibrate on, as for qc itself.", metavar="SRC")
    eval_data: str | None = option(None, "Data to judge by, if that is not --data.", metavar="SRC")
    preparing: Preparing
    labels: Path | None = labels_option()
    metric: str | None = option(
        None, "What counts, as for qc eval.  [default: agreement with the float model]", metavar="TEXT"
    )
    on: str | None = on_option("Judge results on this device")
    device_options: tuple[tuple[str, str], ...] = device_options_option()
    max_drop: str = option(
        "1%",
        "How much may be lost: a share of the float model's score, or a number in its unit.",
        metavar="X%|X",
    )
    weights: Annotated[int, Ge(2), Le(8)] | None = option(
        None,
        "Bits of weights, which 95 % of them keep.  [default: 8, or as few as will do for size or bits]",
        metavar="N",
    )
    recipes: str | None = option(
        None, "A .toml file with [[recipe]] tables to try instead of qc's.", metavar="FILE"
    )
    objective: Literal["latency", "size", "bits"] | None = option(
        None, "What is best among recipes that are good enough.  [default: what is found first]"
    )
    candidates: str | None = option(
        None,
        "Precisions to mix, such as w4a8,w8a8,float.  [default: a recipe's own and those of more bits]",
        metavar="LIST",
    )
    bits: Annotated[float, Ge(2), Le(32)] | None = option(
        None, "Mix precisions so that a weight has at most so many bits on average.", metavar="B"
    )
    front: Path | None = option(
        None,
        "Measure the front of mixed precision, and write it as a page (.html) or as JSON (.json).",
        metavar="FILE",
    )
    points: Annotated[int, Ge(2), Le(64)] | None = option(
        None, f"Choices of the front to measure.  [default: {_POINTS}]", metavar="N"
    )
    minutes: Annotated[float, Gt(0)] = option(10.0, "After these the best so far is the result.", metavar="M")
    jobs: Annotated[int, Ge(1), Le(MOST_WORKERS)] = option(
        1, "How many recipes to try at once, in processes of their own.", metavar="N"
    )
    cache: Path | None = option(
        None,
        "Keep what was collected and tried in a folder, to go on after a kill.",
        metavar="DIR",
        envvar="QC_CACHE",
    )
    output: Path | None = option(
        None,
        "Where to write the result.  [default: MODEL.auto.onnx in the current folder]",
        "-o",
        metavar="FILE",
    )
    keep_best: bool = option(False, "Write the best result even if it loses more than --max-drop.")
    log: Path | None = option(
        None, "Write what was tried as JSON, one trial on a line, as each of them ends.", metavar="FILE"
    )
    chosen: Given = some_of(Compilation, "target", "fix_shapes", "fix_inputs", "threads", "device", "seed")
    quiet: bool = quiet_option()

    def run(self) -> None:
        output = self.output or Path(f"{Path(self.model).stem}.auto.onnx")
        recipe_file = output.with_suffix(".recipe.toml")
        self._check([output, recipe_file, self.log, self.front])
        check_model_output(self.output)
        chosen_device(self.on, self.device_options, self.chosen["target"])
        with ExitStack() as stack:
            telling = _Telling(self, stack)
            search = self._search(telling)
            telling.judge = search.judge
            if not self.quiet:
                telling.begin(search)
            found = search.run()
        target = self.chosen["target"] or found.compiled.target.name
        is_written = found.is_accepted or self.keep_best
        if is_written:
            with writing(recipe_file), atomic_write(recipe_file) as file:
                file.write(recipe_text(found, search.judge, target).encode())
                with writing(output):
                    found.compiled.save(output)
        front = self.front if found.survey is not None else None
        if front is not None and found.survey is not None:
            write_front(front, Path(self.model).name, found.survey)
        if not self.quiet:
            _show_found(found, search.judge)
            print_written([*((output, recipe_file) if is_written else ()), front, self.log])
            self._tell(found, search.judge)
        if not found.is_accepted:
            raise DemandError(_refusal(found, search.judge, is_written))
        if self.front is not None and found.survey is None:
            reason = found.ended or found.failures[-1].reason
            raise DemandError(
                f"'{printable(str(self.front))}' is not written, as nothing was measured: {reason}"
            )

    def _tell(self, found: Found, judge: Judge) -> None:
        """Notes and warnings on the result."""
        for note in (*found.compiled.notes, *self._saturated(found.compiled)):
            print_note(note)
        for warning in found.compiled.warnings:
            print_warning(warning)
        self._tell_of_mixing(found)
        _tell_of_doubt(found, judge)

    def _tell_of_mixing(self, found: Found) -> None:
        """Says that nothing was mixed, where that was asked for and was not needed."""
        if found.is_mixed or found.survey is not None or not found.is_accepted:
            return
        given = {
            "--bits tells how many it has at most": self.bits,
            "--candidates is for mixing": self.candidates,
        }
        told = [words for words, value in given.items() if value is not None]
        if told:
            print_note(
                f"precisions were not mixed, as '{printable(found.best.recipe.name)}' is good enough with "
                f"{found.best.weight_bits:.2f} bits of a weight; {', '.join(told)}"
            )

    def _saturated(self, compiled: Compiled) -> list[str]:
        """A sentence for each input of the data to judge by that lies beyond its grid."""
        if self.eval_data is None:
            return []
        data = load_data(self.preparing.of(self.eval_data), compiled.inputs)
        saturation = SaturationCounter(compiled.ir)
        for feed in islice(Spread(data), _LOOKED_AT):
            saturation.add(feed)
        return saturation.notes()

    def _check(self, outputs: list[Path | None]) -> None:
        """Looks at files, so that what is wrong is told before any work."""
        if self.labels is not None and ":" not in (self.metric or ""):
            raise UsageError("--labels is for a function as --metric, and none is given")
        if self.recipes is not None and self.weights is not None:
            raise UsageError("--weights is for qc's own recipes; give --recipes or --weights, not both")
        if self.bits is not None and self.weights is not None:
            raise UsageError("bits of weights are given twice; give --weights or --bits, not both")
        if self.front is not None and self.front.suffix not in (".html", ".json"):
            raise UsageError(f"--front {self.front}: a front is written as .html or as .json")
        if self.points is not None and self.front is None:
            raise UsageError("--points is for --front, which is not given")
        inputs = [
            *model_files(self.model, load_model(self.model), "the input model"),
            *data_files(self.data, "the calibration data"),
            *data_files(self.eval_data, "the data to judge by"),
            *judging_files([self.metric] if self.metric is not None else [], self.labels),
            *toml_files(self.chosen["target"], "the target"),
            *toml_files(self.recipes, "the file of recipes"),
        ]
        check_outputs(outputs, inputs)

    def _search(self, telling: _Telling) -> RecipeSearch:
        names = "labels", "metric", "max_drop", "weights", "recipes", "objective"
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in (*names, "minutes", "jobs", "cache", "candidates", "bits", "on")
        }
        search = RecipeSearch(
            self.model,
            data=self.preparing.of(self.data),
            eval_data=self.preparing.of(self.eval_data) if self.eval_data is not None else None,
            **given,
            device_options=dict(self.device_options),
            **self.chosen,
            points=(self.points or _POINTS) if self.front is not None else 0,
            progress=telling.progress,
            on_trial=telling.trial,
            on_failure=telling.failure,
        )
        search.check()
        return search


class _Telling:
    """Says what happens while it happens."""

    def __init__(self, command: Auto, stack: ExitStack) -> None:
        self._quiet, self._log = command.quiet, None
        self._end = time.monotonic() + 60 * command.minutes
        self._console = standard_error()
        self.progress = stack.enter_context(RichProgress(self._console))
        self.judge: Judge | None = None
        if command.log is not None:
            stack.enter_context(writing(command.log))
            self._log = stack.enter_context(command.log.open("w", encoding="utf-8"))

    def begin(self, search: RecipeSearch) -> None:
        """What is judged by, and what is tried."""
        judge = search.judge
        if judge.reason:
            print_note(f"judged by {judge.metric.name}, beside the float model, as {judge.reason}")
        if search.eval_data is None:
            print_note("judged on the samples that ranges are found on; --eval-data takes others")
        target = search.question.compilation.chosen_target()
        if search.objective == "latency" and target.costs is None:
            print_note(
                f"target '{target.name}' has no costs of kernels: if precisions are mixed, bit operations "
                "stand for time"
            )
        names = "; ".join(recipe.name for recipe in search.ladder)
        self._show(f"to try: {printable(names)}")

    def trial(self, trial: Trial) -> None:
        """A trial that is done."""
        verdict, judge = trial.verdict, self.judge
        assert judge is not None
        error = f" ± {verdict.error:.2g}" if math.isfinite(verdict.error) else ""
        deed = "accepted" if verdict.is_accepted else f"refused, {verdict.limit:.2g} may be lost"
        self._show(
            f"{printable(trial.recipe.name)}: {judge.metric.name} {judge.metric.show(verdict.score)}{error}, "
            f"float {judge.metric.show(verdict.reference)}: {deed} ({trial.seconds:.0f} s, {self._left()})"
        )
        self._write(trial.record())

    def failure(self, failure: Failure) -> None:
        """A recipe that fails."""
        self._show(f"{printable(failure.recipe.name)}: failed: {printable(failure.reason)} ({self._left()})")
        self._write({"name": failure.recipe.name, "error": failure.reason})

    def _left(self) -> str:
        seconds = max(0, round(self._end - time.monotonic()))
        return f"{seconds // 60}:{seconds % 60:02} left"

    def _show(self, line: str) -> None:
        if not self._quiet:
            self._console.show(line, wrap=False)

    def _write(self, record: dict[str, object]) -> None:
        if self._log is not None:
            self._log.write(f"{json.dumps(record, ensure_ascii=False)}\n")
            self._log.flush()


def _show_found(found: Found, judge: Judge) -> None:
    scored = f"scores by {judge.metric.name}; ± is the sampling error of what is lost, at 95 %"
    standard_output().show(scored, "", trial_table(found, judge), "")
    if found.latency is not None:
        low, high = found.latency.ratio_quartiles
        standard_output().show(
            f"takes {found.latency.ratio:.2f} times as long as float on this machine, "
            f"{low:.2f} to {high:.2f} in half of the rounds{_mostly_float(found.best)}"
        )
    if found.survey is not None:
        standard_output().show(found.survey.table(), "")


def _mostly_float(trial: Trial) -> str:
    """A warning if little of a model is left that runs in integers."""
    share = trial.quantized_share
    few = share < _FEW_QUANTIZED
    return f"; only {share_of(share, 'multiplications')} are quantized" if few else ""


def trial_table(found: Found, judge: Judge) -> Table:
    """What was tried, with the best marked, which is the result."""
    score = judge.metric.show
    columns = (
        text("", len("accepted")),
        Column("score", score),
        Column("float", score),
        Column("±", ".2g"),
        Column("quantized", ".1%"),
        Column("bits", ".2f"),
        Column("tried in", lambda seconds: f"{seconds:.1f} s"),
        text("recipe", _RECIPE_WIDTH),  # at the end, where long ones break nothing else
    )
    table = Table(columns)
    for trial in found.trials:
        verdict = trial.verdict
        mark = "best" if trial is found.best else "accepted" if verdict.is_accepted else ""
        error = verdict.error if math.isfinite(verdict.error) else None
        scores = verdict.score, verdict.reference, error
        numbers = trial.quantized_share, trial.weight_bits, trial.seconds
        table.add(mark, *scores, *numbers, trial.recipe.name)
    return table


def write_front(path: Path, model: str, survey: Survey) -> None:
    """Writes a front as a page or as JSON."""
    if path.suffix == ".html":
        content = front_page(f"Mixed precision of {model}", survey)
    else:
        content = json.dumps(survey.document(), indent=1, ensure_ascii=False) + "\n"
    with writing(path), atomic_write(path) as file:
        file.write(content.encode())


def _tell_of_doubt(found: Found, judge: Judge) -> None:
    """Says if the time is too noisy, or the samples are too few, to be sure of the verdict."""
    if found.is_accepted and found.latency is not None and may_be_slower(found.latency):
        print_warning(
            f"the result takes {found.latency.ratio:.2f} times as long as float, within the noise of timing "
            "here; on an idle machine the search would tell for sure"
        )
    verdict = found.best.verdict
    if verdict.is_certain:
        return
    known = f" ± {verdict.error:.2g}" if math.isfinite(verdict.error) else ""
    print_warning(
        f"{count(verdict.samples, 'sample')} cannot tell for sure whether '{judge.metric.name}' stays within "
        f"{judge.max_drop} of float: {verdict.drop:.2g}{known} is lost, and {verdict.limit:.2g} may be; more "
        "samples in --eval-data would tell"
    )


def _refusal(found: Found, judge: Judge, is_written: bool) -> str:
    """What was reached, and what prevented more."""
    verdict, show = found.best.verdict, judge.metric.show
    advice = "" if is_written else "; --keep-best writes it all the same"
    if verdict.is_accepted:
        return (
            f"'{found.best.recipe.name}' keeps '{judge.metric.name}' within {judge.max_drop} of "
            f"{show(verdict.reference)}, but not all else that is asked for: {found.ended}{advice}"
        )
    ended = f"; {found.ended}" if found.ended else ""
    return (
        f"no recipe keeps '{judge.metric.name}' within {judge.max_drop} of {show(verdict.reference)}: "
        f"'{found.best.recipe.name}', the best, has {show(verdict.score)}{ended}{advice}"
    )
