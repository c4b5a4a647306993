"""Oracles: what tells a good result of a compilation from a bad one.

``sqnr < 30``, ``cosine(logits) < 0.99``, ``max_error > 0.1``
    A condition that is true when the result is bad. The candidate is compared with the float model on data:
    the output that is named, else the worst one. The candidate is the simulation where there are quantizers,
    else the rewritten float model.
``fails``
    The compilation itself goes wrong through a defect: a pass raises what it should not, or leaves a broken
    model.
anything else
    A command for the shell. The path of the compiled model is put for ``{}``, or appended. Exit code 0 means
    good, 125 that it cannot tell, 126 and 127 that there is no such command, all others bad.

One word, a comparison and a number always are a condition, and so is all that begins with the name of a
metric. A compilation that goes wrong is bad for every oracle.
"""

from __future__ import annotations

import math
import operator
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar, Literal

from onnx import ModelProto, TensorProto

from qc.compilation import Compilation
from qc.compiled import Compiled
from qc.ir.errors import ModelError, UsageError, nearest
from qc.ir.graph import FLOAT_TYPES
from qc.ir.onnx.save import save_model
from qc.runtime import CandidateScore, Data, OutputScore, evaluate

from .commands import Command
from .watch import is_defect, sentence

FAILS = "fails"
CANNOT_TELL = 125
_EVALUATION_THREADS = 1

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONDITION = re.compile(r"([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*(<=?|>=?|==?|!=)\s*(.*)", re.DOTALL)
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|inf)\s*(?:dB)?", re.IGNORECASE)

# Types of outputs that can be compared; one that the model does not tell may turn out to be one of them.
_COMPARED_TYPES = {*FLOAT_TYPES, TensorProto.DOUBLE, TensorProto.UNDEFINED}

Field = Literal["sqnr_db", "cosine", "max_abs_error"]


class Outcome(Enum):
    """What an oracle can say."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "cannot tell"


@dataclass(frozen=True)
class Verdict:
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

    def judge(self, compiled: Compiled, compilation: Compilation, data: Data | None) -> Verdict:
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

    def judge_failure(self, error: Exception) -> Verdict:
        """Judges a compilation that raised an error; raises it again if it says nothing about the result."""
        if is_defect(error) or isinstance(error, ModelError):
            return Verdict(Outcome.BAD, sentence(error))
        raise error


@dataclass(frozen=True)
class Fails(Oracle):
    """Bad is a compilation that goes wrong through a defect."""

    def judge(self, compiled: Compiled, compilation: Compilation, data: Data | None) -> Verdict:
        """Good: it did not go wrong."""
        return Verdict(Outcome.GOOD, "it compiles")

    def judge_failure(self, error: Exception) -> Verdict:
        """Bad if the error is a defect; raises it again if it is the user's."""
        if not is_defect(error):
            raise error
        return Verdict(Outcome.BAD, sentence(error))

    def __str__(self) -> str:
        return FAILS


@dataclass(frozen=True)
class CommandOracle(Oracle):
    """Asks a command about the compiled model."""

    command: Command

    def judge(self, compiled: Compiled, compilation: Compilation, data: Data | None) -> Verdict:
        """Writes the main result into a temporary folder and runs the command on it."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "candidate.onnx"
            save_model(compiled.model, path, compiled.ir.base_dir)
            code = self.command.run(path)
        if code is None:
            return Verdict(Outcome.BAD, "it ran out of time")
        known = {0: Outcome.GOOD, CANNOT_TELL: Outcome.SKIP}
        return Verdict(known.get(code, Outcome.BAD), f"exit code {code}")

    def __str__(self) -> str:
        return self.command.text


@dataclass(frozen=True)
class Metric:
    """A way to compare an output with that of the float model.

    Attributes:
        field: the field of :class:`qc.runtime.OutputScore`.
        worst: picks the worst of several.
        form: how a number is shown.
    """

    field: Field
    worst: Callable[..., float]
    form: str

    def of(self, score: OutputScore) -> float | None:
        """The number for one output; None for one that is not floating point."""
        value: float | None = getattr(score, self.field)
        return value

    def show(self, value: float) -> str:
        """The number in words."""
        return "equal" if value == math.inf and self.worst is min else self.form.format(value)

    def gain(self, before: float, after: float) -> float:
        """How much better ``after`` is; a number that is not one is the worst of all."""
        if math.isnan(after) or before == after:
            return 0.0
        if math.isnan(before):
            return math.inf
        return after - before if self.worst is min else before - after


METRICS = {
    "sqnr": Metric("sqnr_db", min, "{:.1f} dB"),
    "cosine": Metric("cosine", min, "{:.6f}"),
    "max_error": Metric("max_abs_error", max, "{:.3g}"),
}


@dataclass(frozen=True)
class MetricOracle(Oracle):
    """Compares the candidate with the float model on data; bad if the condition is true.

    Attributes:
        name: of the metric.
        output: the graph output that counts; None for the worst.
        sign: how the number is compared with ``threshold``.
    """

    name: str
    output: str | None
    sign: str
    threshold: float

    needs_data: ClassVar[bool] = True

    @property
    def metric(self) -> Metric:
        """The metric itself."""
        return METRICS[self.name]

    def check(self, model: ModelProto) -> None:
        """Raises UsageError if the model has no such output, or none with floats."""
        outputs = {info.name: info.type.tensor_type.elem_type for info in model.graph.output}
        floats = [name for name, kind in outputs.items() if kind in _COMPARED_TYPES]
        listed = ", ".join(f"'{name}'" for name in floats) or "none"
        if self.output is not None and self.output not in outputs:
            raise UsageError(
                f"the oracle '{self}' names the output '{self.output}', which the model does not have"
                f"{nearest(self.output, list(outputs))}; outputs with floats: {listed}"
            )
        if not floats or (self.output is not None and self.output not in floats):
            where = f"the output '{self.output}' has" if self.output is not None else "the outputs have"
            raise UsageError(
                f"the oracle '{self}' compares floats, and {where} none; outputs with floats: {listed}"
            )

    def judge(self, compiled: Compiled, compilation: Compilation, data: Data | None) -> Verdict:
        """Runs the float model and the candidate on all feeds."""
        if data is None:
            raise UsageError(f"the oracle '{self}' compares on data: give it with --data, or data= in Python")
        evaluation = evaluate(
            compilation.model,
            {"candidate": candidate_model(compiled)},
            data,
            base_dir=compiled.ir.base_dir,
            threads=_EVALUATION_THREADS,
            latency_seconds=0,
            provider=compilation.device,
        )
        value = self._value(evaluation.candidates[0])
        # A number that is not one, as the cosine of a vector of zeros, is never good.
        bad = math.isnan(value) or _COMPARISONS[self.sign](value, self.threshold)
        return Verdict(Outcome.BAD if bad else Outcome.GOOD, self.metric.show(value), value)

    def _value(self, score: CandidateScore) -> float:
        chosen = [output for output in score.outputs if self.output in (None, output.output)]
        values = [value for output in chosen if (value := self.metric.of(output)) is not None]
        if not values:
            raise UsageError(f"the oracle '{self}' compares floats, and the model gives none")
        return math.nan if any(map(math.isnan, values)) else self.metric.worst(values)

    def __str__(self) -> str:
        of = f"({self.output})" if self.output is not None else ""
        return f"{self.name}{of} {self.sign} {self.threshold:g}"


def candidate_model(compiled: Compiled) -> ModelProto:
    """The simulation, as far as there are quantizers and all have numbers, else the main result."""
    quant = compiled.ir.quant
    if compiled.ir.journal.stopped:
        quant.drop_open()
    if len(quant) and all(quantizer.encoding is not None for quantizer in quant.quantizers()):
        return compiled.simulation
    return compiled.model


def parse_oracle(text: str, timeout: float | None = None) -> Oracle:
    """Makes an oracle from its text; what the forms are is in the text of this module.

    Args:
        timeout: seconds that a command may take.

    Raises:
        UsageError: the text is empty, or is meant as a condition and is none.
    """
    text = text.strip()
    if not text:
        raise UsageError("the oracle is empty; give a condition such as 'sqnr < 30', 'fails', or a command")
    if text == FAILS:
        return Fails()
    condition = _CONDITION.fullmatch(text)
    if condition and (condition[1] in METRICS or _NUMBER.fullmatch(condition[4])):
        return _metric_oracle(text, *condition.groups())
    if re.split(r"[\s(]", text, maxsplit=1)[0] in METRICS:
        raise UsageError(f"'{text}' is no whole condition; write it as in 'sqnr < 30' or 'sqnr(output) < 30'")
    hint = nearest(text, [FAILS, *METRICS]) if text.isidentifier() and not shutil.which(text) else ""
    if hint:
        raise UsageError(f"'{text}' is neither a condition nor a command{hint}")
    return CommandOracle(Command(text, timeout))


def _metric_oracle(text: str, name: str, output: str | None, sign: str, number: str) -> MetricOracle:
    if name not in METRICS:
        raise UsageError(
            f"'{text}': there is no metric '{name}'{nearest(name, list(METRICS))}; "
            f"metrics: {', '.join(METRICS)} (a command is given with its path, such as ./{name})"
        )
    if sign not in _COMPARISONS:
        raise UsageError(f"'{text}': compare with one of {', '.join(_COMPARISONS)}, not {sign}")
    found = _NUMBER.fullmatch(number)
    if found is None:
        raise UsageError(f"'{text}': '{number}' is not a number")
    if output is not None and not output.strip():
        raise UsageError(f"'{text}': name an output in the parentheses, or leave them out for the worst one")
    return MetricOracle(name, output.strip() if output is not None else None, sign, float(found[1]))
