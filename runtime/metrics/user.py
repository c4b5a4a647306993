"""Metrics of the user's: functions and classes in a module or a file, ``module:name`` or ``file.py:name``.

A function ``f(outputs)``, ``f(outputs, feed)`` or ``f(outputs, feed, label)`` is called for every feed, and
the metric is the mean of the numbers that it returns. A class is made anew, without arguments, for every
model: ``update`` is called for every feed with one of these lists of arguments, ``compute()`` at the end
returns the number. ``outputs`` and ``feed`` are dictionaries of arrays by name, ``label`` is the element of
the labels that belongs to the feed. An attribute ``higher_is_better = False`` tells that less is better.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from qc.ir.base.python_files import line_of
from qc.ir.errors import QcError, UsageError

from ..data.python import named_function
from .metric import Metric, Sample

_PARAMETERS = ("outputs", "feed", "label")


def user_metric(text: str, has_labels: bool) -> Metric:
    """The metric that a function or class of the user's computes.

    Raises:
        UsageError: there is none of that name, or it takes other arguments than those above.
    """
    made = named_function(text, "the metric", UsageError)
    higher_is_better = bool(getattr(made, "higher_is_better", True))
    if not inspect.isclass(made):
        parameters = _count_parameters(text, made, has_labels)
        return Metric(text, partial(_UserFunction, text, made, parameters), higher_is_better)
    for method in ("update", "compute"):
        if not callable(getattr(made, method, None)):
            raise UsageError(f"the metric class '{text}' has no method '{method}'")
    return Metric(text, partial(_UserClass, text, made, has_labels), higher_is_better)


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
    if len(positional) == 2 and positional[1].name in ("label", "labels"):
        raise UsageError(
            f"the metric '{text}' takes {inspect.signature(function)}, where its second argument would be "
            "the feed; let it take (outputs, feed, label)"
        )
    if len(positional) == len(_PARAMETERS) and not has_labels:
        raise UsageError(
            f"the metric '{text}' takes a label, and there are none: give --labels FILE.npy, or data "
            "that has them, such as a folder of pictures for each class or an .npz with 'labels'"
        )
    return len(positional)


class _UserFunction:
    """The mean of what a function returns."""

    def __init__(self, text: str, function: Callable[..., Any], parameters: int) -> None:
        self._text, self._function, self._parameters = text, function, parameters
        self._numbers: list[float] = []

    def add(self, sample: Sample) -> None:
        place = f"on feed {sample.index}"
        arguments = _arguments(sample, self._parameters)
        result = _call(self._text, place, self._function, *arguments)
        self._numbers.append(_number(self._text, place, result, arguments))

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
            f"{line_of(error)}{_names(error, arguments)}{_label(arguments)}"
        ) from error


def _names(error: Exception, arguments: tuple[Any, ...]) -> str:
    """How tensors are had, where a function seems to take its arguments for something else."""
    is_mistaken = isinstance(error, KeyError | AttributeError | TypeError)
    if not is_mistaken or not arguments:
        return ""
    return f"; the outputs are a dictionary by name, of {', '.join(map(repr, arguments[0]))}"


def _label(arguments: tuple[Any, ...]) -> str:
    """What the label is, where it is an array, which a function may not expect."""
    shape = np.shape(arguments[-1]) if len(arguments) == len(_PARAMETERS) else ()
    return f"; the label is an array of shape {shape}" if shape else ""


def _number(text: str, place: str, result: Any, arguments: tuple[Any, ...] = ()) -> float:
    array = np.asarray(result)
    if array.size != 1 or array.dtype.kind not in "biuf":
        shown = f"an array of shape {array.shape}" if isinstance(result, np.ndarray) else repr(result)[:60]
        raise UsageError(
            f"the metric '{text}' returned {shown} {place}; let it return a number{_label(arguments)}"
        )
    return float(array.reshape(()))
