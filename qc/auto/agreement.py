"""Which metric tells that a model agrees with the float model, by what its outputs hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from qc.runtime import InputInfo, Metric, parse_metric
from qc.runtime.metrics.metric import Sample, Tally
from qc.runtime.metrics.rows import are_probabilities, class_rows, softmax
from qc.runtime.metrics.sums import is_floating

# Scores are told from features by how sure their softmax is on average; trained classifiers are far surer.
_LEAST_CONFIDENCE = 0.3
_BEYOND_CHANCE = 1.5
# A feature that is the largest in nearly every row is no class, nor is what is found in no other row.
_MOST_COMMON = 0.9
_FEW_ROWS = 5
# Texts along time consist of blanks to a large part, and have a few positions at least.
_LEAST_BLANKS = 0.2
_LEAST_POSITIONS = 4
_LEAST_SYMBOLS = 5  # four bases of DNA, and a blank; channels of a forecast may be fewer
# Masks are 0 or 1 at most places; what is between in most is a picture, whose brightness is no probability.
_NEAR_CERTAIN = 0.1
_IMAGE = 4  # the rank of pictures
_ROUNDING = 1e-3  # by which probabilities may lie beyond 0 and 1

Outputs = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """What an output holds, and the metric for it."""

    metric: str
    words: str
    decides: bool = True


CLASSES = Kind("expected-accuracy", "scores of classes")
TOKENS = Kind("likelihood", "scores of tokens or classes at every position")
YES_OR_NO = Kind("expected-accuracy", "a probability")
MASKS = Kind("expected-iou", "masks or maps of probabilities")
FAINT = Kind("cosine", "probabilities of which none is above one half")
CHOICES = Kind("equal", "whole numbers")
VECTORS = Kind("cosine", "a vector for each sample", decides=False)
OTHER = Kind("cosine", "numbers of no kind that is known", decides=False)


class Agreement(NamedTuple):
    """How to tell that a model agrees with the float model.

    Attributes:
        metric: 1 for the float model itself.
        reason: why it is that one, in words.
    """

    metric: Metric
    reason: str


def agreement(samples: Sequence[Outputs], inputs: Sequence[InputInfo] = ()) -> Agreement:
    """The metric of the outputs, each by its kind; of several outputs, the worst counts.

    Outputs that only hand a state to the next run, which have the shape of an input, do not count beside
    others, nor do whole numbers beside floats.

    Args:
        samples: what the float model gives for some feeds.
        inputs: those of the model.
    """
    may_have_blanks = not any(map(_holds_tokens, inputs))
    kinds = {name: _kind([sample[name] for sample in samples], may_have_blanks) for name in samples[0]}
    known = {name: kind for name, kind in kinds.items() if kind is not None}
    floats = {name: kind for name, kind in known.items() if kind is not CHOICES} or known
    shapes = [info.shape for info in inputs if info.shape is not None]
    results = {name: kind for name, kind in floats.items() if not _is_state(samples[0][name], shapes)}
    if any(kind.decides for kind in results.values()):
        floats = results
    if MASKS in floats.values():  # some scales of a detector may find nothing in the first samples
        floats = {name: MASKS if kind is FAINT else kind for name, kind in floats.items()}
    if not floats:
        return Agreement(parse_metric("cosine"), "no output is a tensor of numbers")
    masks = [name for name, kind in floats.items() if kind is MASKS]
    if set(floats) == set(kinds) and len({kind.metric for kind in floats.values()}) == 1 and len(masks) < 2:
        metric = parse_metric(next(iter(floats.values())).metric)
    else:
        metrics = [together(MASKS.metric, masks)] if masks else []
        others = (f"{kind.metric}({name})" for name, kind in floats.items() if kind is not MASKS)
        metric = worst_of([*metrics, *map(parse_metric, others)])
    return Agreement(metric, ", ".join(f"'{name}' holds {kind.words}" for name, kind in _few(floats)))


def worst_of(metrics: Sequence[Metric]) -> Metric:
    """The lowest of metrics of which more is better."""
    if len(metrics) == 1:
        return metrics[0]
    name = f"worst of {', '.join(metric.name for metric in metrics)}"
    return Metric(name, partial(_Worst, tuple(metrics)), form=metrics[0].form)


def together(text: str, names: Sequence[str]) -> Metric:
    """A metric of several outputs as if they were one, such as masks at several scales."""
    one = parse_metric(f"{text}({names[0]})")
    return (
        one
        if len(names) == 1
        else replace(
            one, name=f"{text}({', '.join(names)})", start=partial(_Together, text, tuple(names)), output=None
        )
    )


class _Together:
    """One metric of several outputs while it is summed up."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self._names, self._tally = names, parse_metric(text).start()

    def add(self, sample: Sample) -> None:
        for name in self._names:
            one, reference = ({"all": arrays[name]} for arrays in (sample.outputs, sample.reference))
            self._tally.add(replace(sample, outputs=one, reference=reference))

    def value(self) -> float:
        return self._tally.value()


class _Worst:
    """Several metrics while they are summed up."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._tallies: list[Tally[float]] = [metric.start() for metric in metrics]

    def add(self, sample: Sample) -> None:
        for tally in self._tallies:
            tally.add(sample)

    def value(self) -> float:
        values = [tally.value() for tally in self._tallies]
        return min(values, key=lambda value: value if value == value else -np.inf)


def _holds_tokens(info: InputInfo) -> bool:
    """Whether an input takes the numbers of tokens along a text, as models of language do.

    Their results at each position are no symbols along time: what is often the best there is no blank.
    """
    is_row = info.shape is not None and len(info.shape) == 2 and info.shape[1] != 1
    return is_row and info.elem_type in (TensorProto.INT32, TensorProto.INT64)


def _kind(arrays: Sequence[Any], may_have_blanks: bool) -> Kind | None:
    """What an output holds; None if it is no tensor of numbers, or always empty."""
    if not all(isinstance(array, np.ndarray) and array.dtype.kind not in "OUS" for array in arrays):
        return None
    found = [array for array in arrays if array.size]
    if not found:
        return None
    first = found[0]
    if first.dtype == np.bool_:
        return MASKS
    if not is_floating(first.dtype):
        return CHOICES
    rank = first.ndim
    if rank >= 2 and _are_classes(found, may_have_blanks):
        blank = _blank(found) if rank == 3 and may_have_blanks else None
        if blank is not None:
            return Kind(f"ctc-{blank}", f"scores of symbols along time, with blanks as class {blank}")
        return TOKENS if rank == 3 else CLASSES
    numbers = np.concatenate([array.reshape(-1).astype(np.float64) for array in found])
    if numbers.min() >= -_ROUNDING and numbers.max() <= 1 + _ROUNDING:
        certain = np.abs(numbers - 0.5) >= 0.5 - _NEAR_CERTAIN
        if rank == _IMAGE and 2 * np.count_nonzero(certain) < numbers.size:
            return OTHER
        if numbers.min() <= 0.5 < numbers.max():  # numbers that are all on one side decide nothing
            return YES_OR_NO if all(array.size == len(array) for array in found) else MASKS
        if rank > 2 and numbers.max() <= 0.5:
            return FAINT
    return VECTORS if rank == 2 and first.shape[1] > 1 else OTHER


def _are_classes(arrays: Sequence[np.ndarray], may_be_forecast: bool) -> bool:
    rows = _rows(arrays)
    classes = rows.shape[1]
    if classes < 2 or not np.isfinite(rows).all():
        return False
    if are_probabilities(rows):
        return True
    best = np.bincount(np.argmax(rows, axis=1), minlength=classes)
    common = int(np.argmax(best))
    is_forecast = may_be_forecast and arrays[0].ndim == 3 and classes < _LEAST_SYMBOLS
    may_be_blank = common in (0, classes - 1) and not is_forecast
    if len(rows) >= _FEW_ROWS and best[common] >= _MOST_COMMON * len(rows) and not may_be_blank:
        return False
    confidence = float(softmax(rows).max(axis=1).mean())
    return confidence >= max(_LEAST_CONFIDENCE, min(_BEYOND_CHANCE / classes, 0.75))


def _blank(arrays: Sequence[np.ndarray]) -> int | None:
    """The class of blanks, the first or the last, if that is often the best; None if there are none."""
    if min(array.shape[1] for array in arrays) < _LEAST_POSITIONS:
        return None
    rows = _rows(arrays)
    best = np.argmax(rows, axis=1)
    last = rows.shape[1] - 1
    share, blank = max((float(np.mean(best == one)), one) for one in (0, last))
    return blank if last + 1 >= _LEAST_SYMBOLS and _LEAST_BLANKS <= share < 1 else None


def _rows(arrays: Sequence[np.ndarray]) -> np.ndarray:
    found = [rows for array in arrays if (rows := class_rows(array)) is not None]
    widths = {rows.shape[1] for rows in found}
    return np.concatenate(found) if len(widths) == 1 else np.empty((0, 0))


def _is_state(array: np.ndarray, shapes: Sequence[Sequence[Any]]) -> bool:
    """Whether an array has the form of an input: its rank, and its sizes where they are known."""
    for shape in shapes:
        fixed = [(axis, size) for axis, size in enumerate(shape) if isinstance(size, int)]
        if array.ndim == len(shape) > 1 and fixed and all(array.shape[axis] == size for axis, size in fixed):
            return True
    return False


def _few(kinds: Mapping[str, Kind]) -> list[tuple[str, Kind]]:
    """One output of each kind."""
    return list({kind: (name, kind) for name, kind in reversed(list(kinds.items()))}.values())[::-1]
