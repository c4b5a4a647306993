"""A metric: one number for how a model does on data, compared with a reference or by itself."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from onnx import ModelProto, TensorProto

from qc.ir.errors import UsageError, nearest
from qc.ir.executor import Feed
from qc.ir.value_type import FLOAT_TYPES

from .sums import check_ranks, differ_in_size

# Types of outputs that can be compared; one that the model does not tell may turn out to be one of them.
_COMPARED_TYPES = {*FLOAT_TYPES, TensorProto.DOUBLE, TensorProto.UNDEFINED}

Value_co = TypeVar("Value_co", covariant=True)


@dataclass(frozen=True)
class Sample:
    """What one model gave for one feed.

    Attributes:
        index: the number of the feed, counted from 0.
        outputs: what the model gave.
        reference: what the float model gave.
        feed: the inputs.
        label: the label of the feed; None without labels.
    """

    index: int
    outputs: Mapping[str, Any]
    reference: Mapping[str, Any]
    feed: Feed
    label: Any


class Tally(Protocol[Value_co]):
    """Something about one model while it is summed up."""

    def add(self, sample: Sample) -> None:
        """Takes in what the model gave for one more feed."""

    def value(self) -> Value_co:
        """What it is over all feeds so far; at least one."""


@dataclass(frozen=True)
class Metric:
    """A metric as it was asked for.

    Attributes:
        name: its text, such as ``top-5(logits)``.
        start: begins to sum it up for one model.
        higher_is_better: its direction.
        form: how a number is shown.
        compares: whether it compares floating-point outputs with those of the reference.
        output: the output that counts; None for the worst, or if it does not compare outputs.
    """

    name: str
    start: Callable[[], Tally[float]]
    higher_is_better: bool = True
    form: str = "{:.6g}"
    compares: bool = False
    output: str | None = None

    def check(self, model: ModelProto) -> None:
        """Raises UsageError if the float model has not the output that is named, or none that it compares."""
        outputs = {info.name: info.type.tensor_type.elem_type for info in model.graph.output}
        if self.output is not None and self.output not in outputs:
            raise UsageError(
                f"the metric '{self.name}' names the output '{self.output}', which the model does not have"
                f"{nearest(self.output, list(outputs))}"
            )
        floats = [name for name, kind in outputs.items() if kind in _COMPARED_TYPES]
        if self.compares and not ({self.output} & {*floats} if self.output is not None else floats):
            where = f"the output '{self.output}' has" if self.output is not None else "the outputs have"
            listed = ", ".join(f"'{name}'" for name in floats) or "none"
            raise UsageError(
                f"the metric '{self.name}' compares floats, and {where} none; outputs with floats: {listed}"
            )

    def show(self, value: float) -> str:
        """A number in words."""
        return "equal" if value == math.inf and self.higher_is_better else self.form.format(value)

    def gain(self, before: float, after: float) -> float:
        """How much better ``after`` is; a number that is not one is the worst of all."""
        if before == after or (math.isnan(before) and math.isnan(after)):
            return 0.0
        if math.isnan(before) or math.isnan(after):
            return math.inf if math.isnan(before) else -math.inf
        return after - before if self.higher_is_better else before - after


class NothingToCompare(UsageError):
    """The outputs hold nothing that a metric compares, as where they are empty."""


class OutputMetric(ABC):
    """A metric of one output against the same output of the reference; of several outputs, the worst counts.

    A class of this kind in a file of this folder, or in a plugin, is a metric that is known by its name. An
    object is made anew for every output of every model.

    Attributes:
        name: what it is called; a name that ends with ``-K`` has a whole number there, which is given to the
            class, as in ``top-5``.
        higher_is_better: its direction.
        form: how a number is shown.
        needs: which outputs it is for, in words.
        takes_floats: whether these are floating point.
    """

    name: ClassVar[str]
    higher_is_better: ClassVar[bool] = True
    form: ClassVar[str] = "{:.6g}"
    needs: ClassVar[str] = "floating-point outputs"
    takes_floats: ClassVar[bool] = True

    @abstractmethod
    def add(self, reference: Any, output: Any, place: str) -> None:
        """Takes in an output for one feed, and that of the reference, which has its sizes.

        ``place`` names it for messages.
        """

    @abstractmethod
    def value(self) -> float | None:
        """The metric over all feeds so far; None if it is not for this output."""


class WorstOutput:
    """A metric of one output, or of the worst of all, as a :class:`Tally`.

    Where sizes depend on the data, those of the reference may be others: there an output counts for nothing.
    """

    def __init__(self, text: str, start: Callable[[], OutputMetric], output: str | None) -> None:
        self._text, self._start, self._output = text, start, output
        self._metrics: dict[str, OutputMetric] = {}
        self._leaves_out = False

    def add(self, sample: Sample) -> None:
        for name, expected in sample.reference.items():
            if self._output in (None, name):
                metric = self._metrics.setdefault(name, self._start())
                found, place = sample.outputs[name], f"output '{name}' on feed {sample.index}"
                check_ranks(expected, found, place)
                if differ_in_size(expected, found):
                    self._leaves_out = True
                else:
                    metric.add(expected, found, place)

    def value(self) -> float:
        metrics = list(self._metrics.values())
        values = [value for metric in metrics if (value := metric.value()) is not None]
        if not values and self._leaves_out:
            return math.nan
        if not values:
            needs = self._start().needs
            raise NothingToCompare(f"the metric '{self._text}' is for {needs}, and there is none to compare")
        if any(map(math.isnan, values)):
            return math.nan
        return min(values) if metrics[0].higher_is_better else max(values)
