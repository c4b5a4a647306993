"""Metrics of a whole evaluation: built in, or functions and classes of the user's.

A metric is named by a text:

``sqnr``, ``cosine``, ``max-error``
    The score of the worst output, or of one, as in ``sqnr(logits)``; see :class:`qc.runtime.OutputScore`.
``top-K``, such as ``top-5``
    Agreement: of the rows of an output along its last axis, the share whose largest element in the float
    model is among the K largest of the candidate. Of equal elements the first counts as larger; NaN is the
    smallest. For the worst floating-point output with an axis, or for one, as in ``top-5(logits)``.
``module:name`` or ``file.py:name``
    A function ``f(outputs)``, ``f(outputs, feed)`` or ``f(outputs, feed, label)``, called for every feed; the
    metric is the mean of the numbers that it returns. Or a class that is made anew, without arguments, for
    every model: ``update`` is called for every feed with one of these three lists of arguments, ``compute()``
    at the end returns the number. ``outputs`` and ``feed`` are dictionaries of arrays by name, ``label`` is
    the element of the labels that belongs to the feed.
"""

from __future__ import annotations

import inspect
import math
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from qc.ir.errors import QcError, UsageError, nearest
from qc.ir.executor import Feed

from ..data.python import named_function
from .scores import Sums, is_floating

_BUILT_IN = re.compile(r"([\w-]+?)(?:\((.+)\))?")
_TOP = re.compile(r"top-(\d+)")
_SCORES = ("sqnr", "cosine", "max-error")
_PARAMETERS = ("outputs", "feed", "label")


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


class Tally(Protocol):
    """One metric of one model, while it is summed up."""

    def add(self, sample: Sample) -> None:
        """Takes in what the model gave for one more feed."""

    def value(self) -> float:
        """The metric over all feeds so far; at least one."""


@dataclass(frozen=True)
class Metric:
    """A metric by its name; :attr:`start` begins to sum it up for one model."""

    name: str
    start: Callable[[], Tally]


def parse_metric(text: str, outputs: Sequence[str], has_labels: bool = False) -> Metric:
    """Makes a metric from its text; what the forms are is in the text of this module.

    Args:
        outputs: the outputs of the models.
        has_labels: whether there are labels for the feeds.

    Raises:
        UsageError: there is no such metric, output or function, or the function takes other arguments.
    """
    name, output = _built_in(text)
    if output is not None and output not in outputs:
        raise UsageError(
            f"the metric '{text}' names the output '{output}', which the model does not have"
            f"{nearest(output, list(outputs))}"
        )
    if name in _SCORES:
        return Metric(text, lambda: _Score(text, name, output))
    top = _TOP.fullmatch(name)
    if top is not None:
        if int(top[1]) < 1:
            raise UsageError(f"the metric '{text}' needs a number of at least 1, as in 'top-5'")
        return Metric(text, lambda: _Top(text, int(top[1]), output))
    if ":" not in text:
        known = [*_SCORES, "top-5"]
        raise UsageError(
            f"unknown metric '{text}'{nearest(text, known)}; known: {', '.join(known)} (or another number), "
            "module:function or file.py:function"
        )
    return _user_metric(text, has_labels)


def _built_in(text: str) -> tuple[str, str | None]:
    match = _BUILT_IN.fullmatch(text)
    return (match[1], match[2]) if match else (text, None)


@dataclass
class _Score:
    """A score of one output, or of the worst."""

    text: str
    name: str
    output: str | None

    def __post_init__(self) -> None:
        self._sums: dict[str, Sums] = {}

    def add(self, sample: Sample) -> None:
        for name, array in sample.outputs.items():
            if self.output in (None, name):
                place = f"output '{name}' on feed {sample.index}"
                self._sums.setdefault(name, Sums()).add_value(sample.reference[name], array, place)

    def value(self) -> float:
        scores = [sums.score(name) for name, sums in self._sums.items() if sums.floating]
        if not scores:
            raise UsageError(f"the metric '{self.text}' is for floating-point outputs, and there is none")
        if self.name == "max-error":
            return max(score.max_abs_error or 0.0 for score in scores)
        field = {"sqnr": "sqnr_db", "cosine": "cosine"}[self.name]
        return _worst([getattr(score, field) for score in scores])


class _Top:
    """How often the largest element of the float model is among the largest ones of the candidate."""

    def __init__(self, text: str, most: int, output: str | None) -> None:
        self._text, self._most, self._output = text, most, output
        self._rows: dict[str, int] = {}
        self._agreed: dict[str, int] = {}

    def add(self, sample: Sample) -> None:
        for name, expected in sample.reference.items():
            if self._output in (None, name) and _has_classes(expected):
                self._add(name, expected, sample.outputs[name])

    def _add(self, name: str, expected: np.ndarray, given: np.ndarray) -> None:
        classes = expected.shape[-1]
        if self._most > classes:
            raise UsageError(
                f"the metric '{self._text}' needs more than the {classes} elements that the last axis of "
                f"output '{name}' has"
            )
        if not expected.size:
            return
        x, y = (_ordered(array).reshape(-1, classes) for array in (expected, given))
        best = np.argmax(x, axis=1)[:, np.newaxis]
        chosen = np.take_along_axis(y, best, axis=1)
        before = np.arange(classes) < best
        rank = np.sum((y > chosen) | ((y == chosen) & before), axis=1)
        self._rows[name] = self._rows.get(name, 0) + len(rank)
        self._agreed[name] = self._agreed.get(name, 0) + int(np.count_nonzero(rank < self._most))

    def value(self) -> float:
        if not any(self._rows.values()):
            raise UsageError(
                f"the metric '{self._text}' is for floating-point outputs with an axis, and there is none"
            )
        return _worst([self._agreed[name] / rows for name, rows in self._rows.items() if rows])


def _has_classes(array: Any) -> bool:
    return (
        isinstance(array, np.ndarray) and array.ndim > 0 and array.shape[-1] > 0 and is_floating(array.dtype)
    )


def _ordered(array: np.ndarray) -> np.ndarray:
    x = array.astype(np.float64)
    return np.where(np.isnan(x), -np.inf, x)


def _worst(numbers: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, numbers)) else min(numbers)


def _user_metric(text: str, has_labels: bool) -> Metric:
    made = named_function(text, "the metric", UsageError)
    if not inspect.isclass(made):
        parameters = _count_parameters(text, made, has_labels)
        return Metric(text, lambda: _UserFunction(text, made, parameters))
    for method in ("update", "compute"):
        if not callable(getattr(made, method, None)):
            raise UsageError(f"the metric class '{text}' has no method '{method}'")
    return Metric(text, lambda: _UserClass(text, made, has_labels))


def _count_parameters(text: str, function: Callable[..., Any], has_labels: bool) -> int:
    """How many of outputs, feed and label a function takes; parameters with a default are left alone."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a function of C without a signature
        return 1
    needed = [one for one in parameters if one.default is one.empty]
    if any(one.kind is one.VAR_POSITIONAL for one in needed):
        return len(_PARAMETERS) if has_labels else len(_PARAMETERS) - 1
    positional = [one for one in needed if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if not 1 <= len(positional) <= len(_PARAMETERS) or any(one.kind is one.KEYWORD_ONLY for one in needed):
        raise UsageError(
            f"the metric '{text}' takes {inspect.signature(function)}; "
            "let it take (outputs), (outputs, feed) or (outputs, feed, label)"
        )
    if len(positional) == len(_PARAMETERS) and not has_labels:
        raise UsageError(f"the metric '{text}' takes a label, and there are none; give them with --labels")
    return len(positional)


class _UserFunction:
    """The mean of what a function returns."""

    def __init__(self, text: str, function: Callable[..., Any], parameters: int) -> None:
        self._text, self._function, self._parameters = text, function, parameters
        self._numbers: list[float] = []

    def add(self, sample: Sample) -> None:
        place = f"on feed {sample.index}"
        result = _call(self._text, place, self._function, *_arguments(sample, self._parameters))
        self._numbers.append(_number(self._text, place, result))

    def value(self) -> float:
        return sum(self._numbers) / len(self._numbers)


class _UserClass:
    """What an object of a class says at the end."""

    def __init__(self, text: str, made: Callable[[], Any], has_labels: bool) -> None:
        self._text = text
        self._object = _call(text, "when it was made", made)
        self._parameters = _count_parameters(text, self._object.update, has_labels)

    def add(self, sample: Sample) -> None:
        arguments = _arguments(sample, self._parameters)
        _call(self._text, f"on feed {sample.index}", self._object.update, *arguments)

    def value(self) -> float:
        place = "in compute"
        return _number(self._text, place, _call(self._text, place, self._object.compute))


def _arguments(sample: Sample, parameters: int) -> tuple[Any, ...]:
    return (dict(sample.outputs), dict(sample.feed), sample.label)[:parameters]


def _call(text: str, place: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except QcError:
        raise
    except Exception as error:  # a function of the user's may raise anything
        detail = " ".join(str(error).split())
        raise UsageError(
            f"the metric '{text}' failed {place} with {type(error).__name__}{': ' if detail else ''}{detail}"
            f"{_line(error)}"
        ) from error


def _line(error: Exception) -> str:
    """The last line of the user's own file that was reached; the first frame is that of the call."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _number(text: str, place: str, result: Any) -> float:
    array = np.asarray(result)
    if array.size != 1 or array.dtype.kind not in "biuf":
        shown = f"an array of shape {array.shape}" if isinstance(result, np.ndarray) else repr(result)[:60]
        raise UsageError(f"the metric '{text}' returned {shown} {place}; let it return a number")
    return float(array.reshape(()))
