"""Whether a quantized model is good enough: its score beside that of the float model, with its error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from qc.ir.errors import DataError, QcError, UsageError
from qc.ir.executor import Feed
from qc.runtime import Data, Metric, Runnable, Spread
from qc.runtime.devices.device import Device
from qc.runtime.evaluation.judge import Judged, Labels, check_labels, judge
from qc.runtime.metrics.metric import NothingToCompare, Sample, Tally
from qc.runtime.sessions.runnable import OpenModel

from .agreement import agreement

# Samples are dealt to so many groups; how much the drops of the groups differ tells the sampling error.
_GROUPS = 10
# The 97.5 % quantile of Student's t with one degree of freedom less than there are groups with a sample.
_QUANTILES = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
# Shares of the samples after which a hopeless model is refused, where these are so many at least.
_SHARES = (0.125, 0.25, 0.5)
_LEAST_SAMPLES = 32
# Samples on which outputs are looked at.
_FIRST_SAMPLES = 8
# Outputs of the float model that are kept, in bytes, so that it runs once for all models that are judged.
_KEPT = 1 << 28


@dataclass(frozen=True)
class MaxDrop:
    """How much of a score may be lost: a share of that of the float model, or a number in its unit."""

    amount: float
    is_share: bool = True

    @classmethod
    def parse(cls, given: str | float) -> MaxDrop:
        """``1%`` is a share, ``0.5`` and the number itself a number; raises UsageError for anything else."""
        match = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(%?)", str(given).strip())
        if match is None:
            raise UsageError(f"a drop is a share such as 1% or a number such as 0.5, not '{given}'")
        amount = float(match[1])
        return cls(amount / 100 if match[2] else amount, bool(match[2]))

    def of(self, score: float) -> float:
        """The drop that is allowed below a score, in its unit."""
        return self.amount * abs(score) if self.is_share else self.amount

    def __str__(self) -> str:
        return f"{100 * self.amount:g}%" if self.is_share else f"{self.amount:g}"


@dataclass(frozen=True)
class Judgement:
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
        """Whether no more is lost than is allowed, on the samples there are.

        That is the best guess at what is lost on others. Where the sampling error leaves it in doubt, see
        :attr:`is_certain`, more samples would tell.
        """
        return self.drop <= self.limit

    @property
    def is_certain(self) -> bool:
        """Whether the sampling error leaves no doubt about that."""
        return self.error == 0 or abs(self.drop - self.limit) > self.error

    @property
    def is_hopeless(self) -> bool:
        """Whether more samples could not change that the model is refused."""
        return self.drop - 2 * self.error > self.limit

    @property
    def error_text(self) -> str:
        """`` ± 0.012``, behind a number; empty where the samples are too few to tell."""
        return f" ± {self.error:.2g}" if math.isfinite(self.error) else ""

    @property
    def outcome(self) -> str:
        """``accepted``, or that it is refused and what may be lost."""
        return "accepted" if self.is_accepted else f"refused, {self.limit:.2g} may be lost"


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

    def value(self) -> _Scores:
        """So far."""
        parts = [self._part(number) for number in range(min(self.count, _GROUPS))]
        return _Scores(self.count, self.whole.value(), parts)

    def _part(self, number: int) -> float:
        """Of one group; NaN if outputs are empty in all of its samples."""
        try:
            return self.parts[number].value()
        except NothingToCompare:
            return math.nan
        except UsageError as error:
            raise UsageError(
                f"{error}; that is on a tenth of the samples from all over the data, by which the sampling "
                "error is told: let it be a number there, too"
            ) from error


@dataclass(frozen=True)
class _Scores:
    """A metric over all samples, and over those of each group that has any."""

    count: int
    whole: float
    parts: Sequence[float]


class _Kept:
    """A model that gives what it gave before, as often as its feeds come again from the first on."""

    def __init__(self, model: Runnable) -> None:
        self._model = model
        self._known: list[dict[str, Any]] = []
        self._bytes = self._next = 0
        self.outputs = model.outputs

    def rewind(self) -> None:
        """The next feed is the first."""
        self._next = 0

    def run(self, feed: Feed) -> dict[str, Any]:
        """What the model gives."""
        self._next += 1
        if self._next <= len(self._known):
            return self._known[self._next - 1]
        found = self._model.run(feed)
        size = sum(getattr(array, "nbytes", _KEPT) for array in found.values())
        if self._next == len(self._known) + 1 and self._bytes + size <= _KEPT:
            self._known.append(found)
            self._bytes += size
        return found


class Judge:
    """Compares models with the float model by one metric on the same samples.

    Attributes:
        data: the samples, in an order of which every beginning is from all over them.
        labels: one for each in that order, or None.
        max_drop: how much may be lost.
        metric: what counts.
        reason: why it is that one, if it was chosen by the kind of the outputs.
        device: what runs the models that are judged; None for ONNX Runtime.
    """

    def __init__(
        self,
        reference: ModelProto | str | Path,
        data: Data,
        max_drop: MaxDrop,
        metric: Metric | None = None,
        labels: Labels | None = None,
        device: Device | None = None,
        **settings: Any,
    ) -> None:
        """Opens the float model and looks at its first outputs.

        Args:
            reference: the float model.
            data: the samples.
            max_drop: how much may be lost.
            metric: what counts; None for agreement with the float model, see :mod:`qc.auto.agreement`.
            labels: one for each sample, for a metric that is a function.
            device: what runs the models that are judged; None for ONNX Runtime, which runs the float model.
            settings: as for :func:`qc.runtime.open_session`.

        Raises:
            DataError: there is no sample.
            UsageError: the metric fails, or gives one number whatever a model gives.
            ModelError: the model does not run.
        """
        self.device, self._settings = device, settings
        self.reference: Runnable = OpenModel(reference, **settings)
        self.data, self.max_drop = Spread(data), max_drop
        self.labels = None if labels is None else self.data.order(labels)
        feeds = list(islice(self.data, _FIRST_SAMPLES))
        if not feeds:
            raise DataError("there is no sample to judge by; give data with at least one")
        if self.samples is not None:
            check_labels(labels, self.samples)
        self._kept = _Kept(self.reference)
        outputs = [self._kept.run(feed) for feed in feeds]
        self.reason = ""
        if metric is None:
            metric, self.reason = agreement(outputs, data.inputs)
        self.metric = metric
        self._expected = _Grouped(metric)
        self._scores: dict[int | None, _Scores] = {}  # of the float model, by where it was looked at
        if labels is None or len(labels) >= len(feeds):  # else there are too few, which is told later
            self._check_metric(feeds, outputs)

    def __call__(self, model: ModelProto, on_sample: Callable[[], None] = lambda: None) -> Judgement:
        """The verdict on a model, after a part of the samples if that is enough to refuse it.

        Raises:
            UsageError: the metric failed, or is NaN or infinite for the float model.
            DataError: there is another number of labels than of samples.
            ModelError: the model does not run.
        """
        candidate, found = self._opened(model), _Grouped(self.metric)
        self._kept.rewind()
        feeds = iter(self.data)
        verdict = None
        for stop in self._stops():
            expected = self._judge_until(stop, candidate, found, feeds, on_sample)
            verdict = self._verdict(expected, found.value())
            if verdict.is_hopeless:
                break
        assert verdict is not None
        return verdict

    def _opened(self, model: ModelProto) -> Runnable:
        """A model as it will run."""
        if self.device is None:
            return OpenModel(model, **self._settings)
        threads, base_dir = self._settings.get("threads") or 1, self._settings.get("base_dir")
        return self.device.open(model, base_dir=base_dir, threads=threads)

    @property
    def samples(self) -> int | None:
        """How many there are, if that is known."""
        return self.data.length

    def _judge_until(
        self,
        stop: int | None,
        candidate: Runnable,
        found: _Grouped,
        feeds: Iterator[Feed],
        on_sample: Callable[[], None],
    ) -> _Scores:
        """Adds what a model gives for the next feeds; the scores of the float model on all so far."""
        judged: list[Judged] = [(candidate, [found])]
        if stop not in self._scores:
            judged.insert(0, (self._kept, [self._expected]))
        labels = self.labels[found.count : stop] if self.labels is not None else None
        part = islice(feeds, None if stop is None else stop - found.count)
        try:
            judge(self._kept, judged, part, labels, on_sample)
        except BaseException:  # the float model may have been judged on some feeds of the part
            self._expected, self._scores = _Grouped(self.metric), {}
            raise
        return self._scores.setdefault(stop, self._expected.value())

    def _stops(self) -> Iterator[int | None]:
        """After how many samples to look; None for all."""
        for share in _SHARES:
            if (count := int(share * (self.samples or 0))) >= _LEAST_SAMPLES:
                yield count
        yield None

    def _verdict(self, reference: _Scores, model: _Scores) -> Judgement:
        expected, score = reference.whole, model.whole
        _refuse_infinite(self.metric, expected, model.count)
        sign = 1 if self.metric.higher_is_better else -1
        error = math.nan
        with np.errstate(invalid="ignore"):
            drops = sign * (np.array(reference.parts) - np.array(model.parts))
            drops = drops[~np.isnan(drops)]
            if (groups := len(drops)) in _QUANTILES:
                error = float(_QUANTILES[groups] * np.std(drops, ddof=1) / math.sqrt(groups))
        drop = math.inf if math.isnan(score) else sign * (expected - score)
        return Judgement(score, expected, drop, error, self.max_drop.of(expected), model.count)

    def _check_metric(self, feeds: Sequence[Feed], outputs: Sequence[dict[str, Any]]) -> None:
        """Refuses a metric that is no number for the float model, or takes other outputs for as good."""
        expected = self._measured(feeds, outputs, outputs)
        _refuse_infinite(self.metric, expected, len(feeds))
        if self.metric.compares and expected == 0 and self.max_drop.is_share and self.max_drop.amount:
            raise UsageError(
                f"the metric '{self.metric.name}' is 0 for the float model, and {self.max_drop} of that is "
                "nothing: give the drop as a number in its unit, such as 0.5"
            )
        if self.metric.higher_is_better and 0 < expected <= self.max_drop.of(expected):
            raise UsageError(
                f"a drop of {self.max_drop} allows anything, as the float model has {expected:.4g}: give a "
                "share, such as 1%, or a smaller number"
            )
        others = [*outputs[1:], outputs[0]]
        zeros = [{name: _zeros(array) for name, array in output.items()} for output in outputs]
        if all(map(_are_equal, outputs, others)) and all(map(_are_equal, outputs, zeros)):
            return
        try:
            found = {self._measured(feeds, outputs, given) for given in (others, zeros)}
        except QcError:  # which is not for such outputs
            return
        if found == {expected}:
            raise UsageError(
                f"the metric '{self.metric.name}' is {self.metric.show(expected)} for the float model, and "
                "the same for outputs of other samples and for zeros; it cannot judge"
            )

    def _measured(
        self, feeds: Sequence[Feed], expected: Sequence[dict[str, Any]], outputs: Sequence[dict[str, Any]]
    ) -> float:
        """The metric for outputs of the first feeds."""
        tally = self.metric.start()
        for index, feed in enumerate(feeds):
            label = self.labels[index] if self.labels is not None else None
            tally.add(Sample(index, outputs[index], expected[index], feed, label))
        return tally.value()


def _refuse_infinite(metric: Metric, expected: float, samples: int) -> None:
    """Raises UsageError if the score of the float model is no number to compare with."""
    if not math.isfinite(expected):
        found = "NaN" if math.isnan(expected) else "infinite"
        raise UsageError(
            f"the metric '{metric.name}' is {found} for the float model on the first {samples} samples; it "
            "cannot judge"
        )


def _zeros(array: Any) -> Any:
    return np.zeros_like(array) if isinstance(array, np.ndarray) and array.dtype.kind != "O" else array


def _are_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)
