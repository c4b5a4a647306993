"""What ``qc auto`` tells: trials as they end, the result, and what is doubtful of it."""

from __future__ import annotations

import json
import math
import time
from contextlib import ExitStack
from pathlib import Path

from qc.auto import Failure, Found, Judge, RecipeSearch, Trial
from qc.auto.pace import may_be_slower
from qc.progress import RichProgress
from qc.rendering.table import Column, Table, text
from qc.rendering.words import count, printable, share_of

from .files import writing
from .output import print_note, print_warning, standard_error, standard_output

_RECIPE_WIDTH = 16
_FEW_QUANTIZED = 0.5  # of the multiplications: a result with less is mostly float


class TrialReporter:
    """Says what happens in a search while it happens, and writes it down if that is asked for."""

    def __init__(self, stack: ExitStack, minutes: float, log: Path | None, quiet: bool) -> None:
        """Begins now.

        Args:
            stack: closes what is opened here.
            minutes: how long the search may take.
            log: the file for trials, as JSON, one on a line.
            quiet: say nothing, and only write.
        """
        self._quiet, self._log = quiet, None
        self._end = time.monotonic() + 60 * minutes
        self._console = standard_error()
        self.progress = stack.enter_context(RichProgress(self._console))
        self.judge: Judge | None = None
        if log is not None:
            stack.enter_context(writing(log))
            self._log = stack.enter_context(log.open("w", encoding="utf-8"))

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
        score, reference = map(judge.metric.show, (verdict.score, verdict.reference))
        self._show(
            f"{printable(trial.recipe.name)}: {judge.metric.name} {score}{verdict.error_text}, "
            f"float {reference}: {verdict.outcome} ({trial.seconds:.0f} s, {self._left()})"
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


def show_found(found: Found, judge: Judge) -> None:
    """Prints what was tried, and what the result costs."""
    scored = f"scores by {judge.metric.name}; ± is the sampling error of what is lost, at 95 %"
    standard_output().show(scored, "", _trial_table(found, judge), "")
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


def _trial_table(found: Found, judge: Judge) -> Table:
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


def tell_of_doubt(found: Found, judge: Judge) -> None:
    """Says if the time is too noisy, or the samples are too few, to be sure of the verdict."""
    if found.is_accepted and found.latency is not None and may_be_slower(found.latency):
        print_warning(
            f"the result takes {found.latency.ratio:.2f} times as long as float, within the noise of timing "
            "here; on an idle machine the search would tell for sure"
        )
    verdict = found.best.verdict
    if verdict.is_certain:
        return
    print_warning(
        f"{count(verdict.samples, 'sample')} cannot tell for sure whether '{judge.metric.name}' stays within "
        f"{judge.max_drop} of float: {verdict.drop:.2g}{verdict.error_text} is lost, and {verdict.limit:.2g} "
        "may be; more samples in --eval-data would tell"
    )


def refusal(found: Found, judge: Judge, is_written: bool) -> str:
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
