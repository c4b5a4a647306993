"""Oracles: what tells a good result of a compilation from a bad one.

``sqnr < 30``, ``cosine(logits) < 0.99``, ``max-error > 0.1``, ``top-1 < 0.9``, ``metrics.py:accuracy < 0.8``
    A condition that is true when the result is bad, about any metric of :mod:`qc.runtime.metrics.parse`. The
    candidate is compared with the float model on data; it is the simulation where there are quantizers, with
    the codes of the target's device where its arithmetic is known, else the rewritten float model.
``fails``
    The compilation itself goes wrong through a defect: a pass raises what it should not, or leaves a broken
    model.
anything else
    A command for the shell. The path of the compiled model is put for ``{}``, or appended. Exit code 0 means
    good, 125 that it cannot tell, 126 and 127 that there is no such command, all others bad.

One word, a comparison and a number always are a condition, as are several words that are no command, and all
that begins with the name of a metric or with a number. A compilation that goes wrong is bad for every oracle.
"""

from __future__ import annotations

import math
import operator
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

from onnx import ModelProto

from qc.compiler import Compilation
from qc.compiler.compiled import Compiled
from qc.ir.base.files import temporary_folder
from qc.ir.errors import ModelError, UsageError, nearest
from qc.ir.onnx.save import save_model
from qc.runtime import Data, Metric, evaluate, parse_metric
from qc.runtime.evaluation.judge import Labels
from qc.runtime.metrics.parse import is_metric_name, metric_names

from .commands import Command
from .watch import is_defect, sentence

FAILS = "fails"
CANNOT_TELL = 125
EVALUATION_THREADS = 1

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAME = r"[\w-]+(?:\s+[\w-]+)*\s*(?:\(.*\))?|[^\s<>=!]+:\w+"
_CONDITION = re.compile(rf"({_NAME})\s*(<=?|>=?|==?|!=)\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|inf)\s*(?:dB)?", re.IGNORECASE)


class Outcome(Enum):
    """What an oracle can say."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "cannot tell"


@dataclass(frozen=True)
class OracleVerdict:
    """What an oracle says of a result.

    Attributes:
        outcome: good, bad, or neither.
        words: on what grounds, such as ``41.2 dB`` or ``exit code 1``.
        value: the number that was compared, if there was one.
    """

    outcome: Outcome
    words: str
    value: float | None = None

    @property
    def is_bad(self) -> bool:
        """Whether it is bad, and not only doubtful."""
        return self.outcome is Outcome.BAD

    def __str__(self) -> str:
        return f"{self.outcome.value}, {self.words}"


class Oracle:
    """Tells good results from bad ones.

    Attributes:
        needs_data: whether candidates are compared on data.
    """

    needs_data: ClassVar[bool] = False

    def check(self, model: ModelProto) -> None:
        """Raises UsageError if the oracle speaks of something that the float model does not have."""

    def judge(self, compiled: Compiled, compilation: Compilation, data: Data | None) -> OracleVerdict:
        """Judges a result.

        Args:
            compiled: the result.
            compilation: where it comes from; its model is the float model.
            data: what to compare on.

        Raises:
            ModelError: the candidate, or the float model, cannot be run.
            QcError: the oracle cannot do its work.
        """
        raise NotImplementedError

    def suggestion(self, verdict: OracleVerdict) -> str:
        """A condition by which what a verdict is good on is bad; empty where none is known."""
        return ""

    def judge_failure(self, error: Exception) -> OracleVerdict:
        """Judges a compilation that raised an error; raises it again if it says nothing about the result."""
        if is_defect(error) or isinstance(error, ModelError):
            return OracleVerdict(Outcome.BAD, sentence(error))
        raise error


@dataclass(frozen=True)
class Fails(Oracle):
    """Bad is a compilation that goes wrong through a defect."""

    def judge(self, compiled: Compiled, compilation: Compilation, data: Data | None) -> OracleVerdict:
        return OracleVerdict(Outcome.GOOD, "it compiles")

    def judge_failure(self, error: Exception) -> OracleVerdict:
        if not is_defect(error):
            raise error
        return OracleVerdict(Outcome.BAD, sentence(error))

    def __str__(self) -> str:
        return FAILS


@dataclass(frozen=True)
class CommandOracle(Oracle):
    """Asks a command about the compiled model."""

    command: Command

    def judge(self, compiled: Compiled, compilation: Compilation, data: Data | None) -> OracleVerdict:
        with temporary_folder() as folder:
            path = folder / "candidate.onnx"
            save_model(compiled.model, path, compiled.ir.base_dir)
            code = self.command.run(path)
        if code is None:
            return OracleVerdict(Outcome.BAD, "it ran out of time")
        known = {0: Outcome.GOOD, CANNOT_TELL: Outcome.SKIP}
        return OracleVerdict(known.get(code, Outcome.BAD), f"exit code {code}")

    def __str__(self) -> str:
        return self.command.text


@dataclass(frozen=True)
class MetricOracle(Oracle):
    """Compares the candidate with the float model on data; bad if the condition is true.

    Attributes:
        name: the metric, as it was asked for.
        sign: how its number is compared with ``threshold``.
        metric: the metric, of which less is better if the condition asks for more.
        labels: what the metric gets beside the feeds of the data.
    """

    name: str
    sign: str
    threshold: float
    metric: Metric = field(compare=False)
    labels: Labels | None = field(default=None, compare=False)

    needs_data: ClassVar[bool] = True

    def check(self, model: ModelProto) -> None:
        self.metric.check(model)

    def judge(self, compiled: Compiled, compilation: Compilation, data: Data | None) -> OracleVerdict:
        if data is None:
            raise UsageError(f"the oracle '{self}' compares on data: give it with --data, or data= in Python")
        evaluation = evaluate(
            compilation.reference(),
            {"candidate": compiled.device_simulation if has_simulation(compiled) else compiled.model},
            data,
            base_dir=compiled.ir.base_dir,
            threads=EVALUATION_THREADS,
            latency_seconds=0,
            metrics=[self.metric],
            labels=self.labels,
            provider=compilation.device,
        )
        return self.verdict(evaluation.metrics[0].candidates[0])

    def verdict(self, value: float) -> OracleVerdict:
        """What a number means. One that is none, as the cosine of a vector of zeros, is never good."""
        bad = math.isnan(value) or _COMPARISONS[self.sign](value, self.threshold)
        return OracleVerdict(Outcome.BAD if bad else Outcome.GOOD, self.metric.show(value), value)

    def suggestion(self, verdict: OracleVerdict) -> str:
        threshold = _beyond(verdict.value, self.sign.startswith("<")) if verdict.value is not None else None
        return "" if threshold is None else f"{self.name} {self.sign} {threshold:g}"

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.threshold:g}"


def _beyond(value: float, above: bool) -> float | None:
    """A number of few digits above a value, or below, None if there is none; cosines stay below 1."""
    if not value or not math.isfinite(value):
        return None
    for digits in range(2, 7):
        unit = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - digits)
        steps = math.floor(value / unit + 0.5) + 1 if above else math.ceil(value / unit - 0.5) - 1
        found = float(f"{steps * unit:.{digits}g}")
        if found and (found > value) is above and not value < 1 <= found:
            return found
    return None


def has_simulation(compiled: Compiled) -> bool:
    """Whether there are quantizers, and all have numbers."""
    quant = compiled.ir.quant
    if compiled.ir.journal.stopped:
        quant.drop_open()
    return len(quant) > 0 and all(quantizer.encoding is not None for quantizer in quant.quantizers())


def parse_oracle(text: str, timeout: float | None = None, labels: Labels | None = None) -> Oracle:
    """Makes an oracle from its text; what the forms are is in the text of this module.

    Args:
        timeout: seconds that a command may take.
        labels: one for each feed of the data, for metrics of the user's.

    Raises:
        UsageError: the text is empty, or is meant as a condition and is none.
    """
    oracle = _parse(text.strip(), timeout, labels)
    if labels is not None and not (isinstance(oracle, MetricOracle) and ":" in oracle.name):
        raise UsageError(
            f"labels are for a condition on a function, and '{oracle}' is none; it needs no labels"
        )
    return oracle


def _parse(text: str, timeout: float | None, labels: Labels | None) -> Oracle:
    if not text:
        raise UsageError("the oracle is empty; give a condition such as 'sqnr < 30', 'fails', or a command")
    if text == FAILS:
        return Fails()
    condition = _CONDITION.fullmatch(text)
    first = re.split(r"[\s(<>=!]", text, maxsplit=1)[0]
    if is_metric_name(first) or (condition and _is_meant(first, condition[1], condition[3])):
        if condition and not _NUMBER.fullmatch(first):
            return _metric_oracle(text, condition[1], condition[2], condition[3], labels)
        raise UsageError(f"'{text}' is no whole condition; write it as in 'sqnr < 30' or 'sqnr(output) < 30'")
    hint = nearest(text, [FAILS, *metric_names()]) if text.isidentifier() and not shutil.which(text) else ""
    if hint:
        raise UsageError(f"'{text}' is neither a condition nor a command{hint}")
    return CommandOracle(Command(text, timeout))


def _is_meant(first: str, name: str, number: str) -> bool:
    """Whether what could be a command is meant as a condition."""
    if ":" in name or _NUMBER.fullmatch(first):
        return True
    return _NUMBER.fullmatch(number) is not None and (name == first or not shutil.which(first))


def _metric_oracle(text: str, name: str, sign: str, number: str, labels: Labels | None) -> MetricOracle:
    if sign not in _COMPARISONS:
        raise UsageError(f"'{text}': compare with one of {', '.join(_COMPARISONS)}, not {sign}")
    found = _NUMBER.fullmatch(number)
    if found is None:
        raise UsageError(f"'{text}': '{number}' is not a number")
    name = re.sub(r"\s+\(", "(", name.strip())
    try:
        metric = parse_metric(name, labels is not None)
    except UsageError as error:
        hint = "" if ":" in name else f" (a command is given with its path, such as ./{name})"
        raise UsageError(f"'{text}': {error}{hint}") from error
    metric = replace(metric, higher_is_better=sign.startswith("<"))
    return MetricOracle(name, sign, float(found[1]), metric, labels)
