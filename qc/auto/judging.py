"""Whether a quantized model is good enough: its score beside that of the float model, with its error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from qc.ir.errors import DataError, UsageError
from qc.runtime import Data, Metric, parse_metric
from qc.runtime.evaluation.judge import Judged, Labels, judge
from qc.runtime.metrics.metric import Sample, Tally
from qc.runtime.sessions.runnable import OpenModel

# Samples are dealt to so many groups; how much the drops of the groups differ tells the sampling error.
_GROUPS = 10
# The 97.5 % quantile of Student's t with one degree of freedom less than there are groups with a sample.
_QUANTILES = {5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
# Samples, at least, on which a model may be refused before it has seen all of them.
_LEAST_SAMPLES = 64
_FIRST_SHARE = 4


@dataclass(frozen=True)
class MaxDrop:
    """How much of a score may be lost: a share of that of the float model, or a number in its unit."""

    amount: float
    is_share: bool = True

    @classmethod
    def parse(cls, text: str) -> MaxDrop:
        """``1%`` is a share, ``0.5`` a number; raises UsageError for anything else."""
        match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)", text.strip())
        if match is None:
            raise UsageError(f"a drop is a share such as 1% or a number such as 0.5, not '{text}'")
        amount = float(match[1])
        return cls(amount / 100 if match[2] else amount, bool(match[2]))

    def of(self, score: float) -> float:
        """The drop that is allowed below a score, in its unit."""
        return self.amount * abs(score) if self.is_share else self.amount

    def __str__(self) -> str:
        return f"{100 * self.amount:g}%" if self.is_share else f"{self.amount:g}"


@dataclass(frozen=True)
class Verdict:
    """How a model does beside the float model.

    Attributes:
        score: of the model.
        reference: of the float model on the same samples.
        drop: how much worse the model is, in the unit of the metric; below 0 if it is better.
        error: half the width of the interval that holds the drop with a probability of 95 %; NaN where the
            samples are too few to tell.
        limit: the largest drop that is accepted.
        samples: how many were looked at; fewer than there are if those were enough to refuse the model.
    """

    score: float
    reference: float
    drop: float
    error: float
    limit: float
    samples: int

    @property
    def is_accepted(self) -> bool:
        """Whether no more is lost than is allowed."""
        return self.drop <= self.limit

    @property
    def is_certain(self) -> bool:
        """Whether the sampling error leaves no doubt about that."""
        return abs(self.drop - self.limit) > self.error

    @property
    def is_hopeless(self) -> bool:
        """Whether more samples could not change that the model is refused."""
        return self.drop - 2 * self.error > self.limit


@dataclass
class _Grouped:
    """One metric over all samples, and over those of each group."""

    metric: Metric
    whole: Tally[float] = field(init=False)
    parts: list[Tally[float]] = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.whole = self.metric.start()
        self.parts = [self.metric.start() for _ in range(_GROUPS)]

    def add(self, sample: Sample) -> None:
        self.whole.add(sample)
        self.parts[self.count % _GROUPS].add(sample)
        self.count += 1

    def value(self) -> float:
        return self.whole.value()

    def part_values(self) -> np.ndarray:
        """The metric of each group that has a sample."""
        return np.array([part.value() for part in self.parts[: self.count]])


class Judge:
    """Compares models with the float model by one metric on the same samples.

    Attributes:
        reference: the float model.
        data: the samples.
        max_drop: how much may be lost.
        metric: what counts.
        labels: one for each sample, for the metric.
    """

    def __init__(
        self,
        reference: ModelProto | str | Path,
        data: Data,
        max_drop: MaxDrop,
        metric: Metric | None = None,
        labels: Labels | None = None,
        *,
        base_dir: Path | None = None,
        threads: int | None = None,
    ) -> None:
        """Opens the float model and runs one sample.

        Args:
            metric: what counts; default: agreement with the float model, see :func:`agreement`.
            labels: one for each sample, for the metric.

        Raises:
            DataError: there is no sample.
            ModelError: the float model does not run.
        """
        self._settings: dict[str, Any] = {"base_dir": base_dir, "threads": threads}
        self.reference = OpenModel(reference, **self._settings)
        self.data, self.labels, self.max_drop = data, labels, max_drop
        first = next(iter(data), None)
        if first is None:
            raise DataError("there is no sample to judge by; give data with at least one")
        self.metric = metric or agreement(self.reference.run(first))

    def __call__(self, model: ModelProto, on_sample: Callable[[], None] = lambda: None) -> Verdict:
        """The verdict on a model, after a part of the samples if that is enough to refuse it.

        Raises:
            UsageError: the metric failed, or is NaN or infinite for the float model.
            DataError: there is another number of labels than of samples.
            ModelError: the model does not run.
        """
        candidate = OpenModel(model, **self._settings)
        expected, found = _Grouped(self.metric), _Grouped(self.metric)
        judged: list[Judged] = [(self.reference, [expected]), (candidate, [found])]
        feeds, labels, first = iter(self.data), self.labels, (self.samples or 0) // _FIRST_SHARE
        if first >= _LEAST_SAMPLES:
            judge(self.reference, judged, islice(feeds, first), _part(labels, 0, first), on_sample)
            verdict = self._verdict(expected, found)
            if verdict.is_hopeless:
                return verdict
        judge(self.reference, judged, feeds, _part(labels, expected.count, None), on_sample)
        return self._verdict(expected, found)

    @property
    def samples(self) -> int | None:
        """How many there are, if that is known."""
        return self.data.length

    def _verdict(self, reference: _Grouped, model: _Grouped) -> Verdict:
        expected, score = reference.value(), model.value()
        if not math.isfinite(expected):
            found = "NaN" if math.isnan(expected) else "infinite"
            raise UsageError(
                f"the metric '{self.metric.name}' is {found} for the float model; it cannot judge"
            )
        sign = 1 if self.metric.higher_is_better else -1
        error = math.nan
        groups = min(model.count, _GROUPS)
        if groups in _QUANTILES:
            with np.errstate(invalid="ignore"):
                drops = sign * (reference.part_values() - model.part_values())
                error = float(_QUANTILES[groups] * np.std(drops, ddof=1) / math.sqrt(groups))
        drop = math.inf if math.isnan(score) else sign * (expected - score)
        return Verdict(score, expected, drop, error, self.max_drop.of(expected), model.count)


def agreement(outputs: dict[str, Any]) -> Metric:
    """How to tell that a model agrees with the float model, by the form of what that gives.

    Rows of scores for classes agree if the same class has the highest; everything else is compared by the
    cosine with the float output, of which the worst output counts.
    """
    floats = [
        array for array in outputs.values() if isinstance(array, np.ndarray) and array.dtype.kind == "f"
    ]
    are_classes = bool(floats) and all(array.ndim == 2 and array.shape[1] > 1 for array in floats)
    return parse_metric("top-1" if are_classes else "cosine")


def _part(labels: Labels | None, start: int, stop: int | None) -> Labels | None:
    return labels[start:stop] if labels is not None else None
