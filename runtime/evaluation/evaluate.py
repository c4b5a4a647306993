"""How far candidates are from a reference model on given data, and how fast they are beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.lift import load_model

from ..data.inputs import model_inputs
from ..data.load import Data, DataSource, load_data
from ..sessions.open import check_interface, open_session, run_session
from ..sessions.providers import choose_provider
from ..speed.latency import LATENCY_SECONDS, Latency, time_in_turns
from .metrics import Metric, Sample, Tally, parse_metric
from .scores import OutputScore, Sums


@dataclass(frozen=True)
class CandidateScore:
    """The scores of one candidate, outputs in the order of the reference; no latency if it was not asked."""

    name: str
    outputs: tuple[OutputScore, ...]
    latency: Latency | None

    @property
    def worst_sqnr_db(self) -> float:
        """The lowest SQNR of any floating-point output; inf if there is none."""
        return min((o.sqnr_db for o in self.outputs if o.sqnr_db is not None), default=math.inf)


@dataclass(frozen=True)
class MetricScore:
    """One metric of the reference and of the candidates, in their order."""

    name: str
    reference: float
    candidates: tuple[float, ...]


@dataclass(frozen=True)
class Evaluation:
    """The result of :func:`evaluate`.

    Attributes:
        feeds: how many feeds the outputs were compared on.
        rounds: how many times each model was timed; 0 if latency was not asked for.
        device: where the models ran, ``"cpu"`` or ``"cuda"``.
        threads: threads per op during all runs.
        reference: the latency of the reference; None if it was not asked for.
        candidates: in the order they were given.
        metrics: in the order they were asked for.
    """

    feeds: int
    rounds: int
    device: str
    threads: int
    reference: Latency | None
    candidates: tuple[CandidateScore, ...]
    metrics: tuple[MetricScore, ...] = ()


def evaluate(
    reference: ModelProto | str | Path,
    candidates: Mapping[str, ModelProto | str | Path],
    data: DataSource,
    *,
    base_dir: Path | None = None,
    optimize: bool = True,
    threads: int = 1,
    latency_seconds: float = LATENCY_SECONDS,
    max_rounds: int = 50,
    metrics: Sequence[str | Metric] = (),
    labels: Sequence[Any] | np.ndarray | None = None,
    provider: str = "cpu",
) -> Evaluation:
    """Compares candidates with a reference, output by output, and times them side by side.

    Outputs are compared on all feeds, one feed at a time, so that memory does not grow with their number.

    Args:
        reference: the model that is right, normally the float model.
        candidates: models with the same inputs and outputs, by a name for the report.
        data: anything that :func:`qc.runtime.load_data` takes.
        base_dir: the folder that external data of models given as ``ModelProto`` is relative to.
        optimize: whether ONNX Runtime may rewrite the graphs.
        threads: threads within an op, the same for all models.
        latency_seconds: time to spend on timing (at least 5 rounds are run); 0 leaves timing out.
        max_rounds: rounds after which timing ends, even if there is time left.
        metrics: further metrics, of the reference too; :mod:`qc.runtime.evaluation.metrics` has their forms.
        labels: what the metrics get beside the feeds: one element for each feed.
        provider: where the models run, the same for all; see :func:`open_session`.

    Raises:
        UsageError: there is no candidate, no provider of that name, or a metric that does not exist, does not
            fit or fails.
        QcError: CUDA cannot be used here.
        ModelError: a model does not load or run, or an output is missing or has another shape.
        DataError: the data is empty or does not fit the reference, or the labels do not fit the data.
    """
    if not candidates:
        raise UsageError("there is nothing to evaluate: give at least one candidate")
    reference_dir = base_dir
    if not isinstance(reference, ModelProto):
        reference, reference_dir = load_model(reference), Path(reference).parent
    names = [output.name for output in reference.graph.output]
    asked = [
        one if isinstance(one, Metric) else parse_metric(one, names, labels is not None) for one in metrics
    ]
    device = choose_provider(provider)
    settings: dict[str, Any] = {"optimize": optimize, "threads": threads, "provider": device}
    first = open_session(reference, base_dir=reference_dir, **settings)
    sessions = {
        name: open_session(model, base_dir=base_dir, **settings) for name, model in candidates.items()
    }
    for name, session in sessions.items():
        check_interface(first, session, name)
    comparison = _Comparison(first, sessions, asked)
    for index, (feed, label) in enumerate(_labelled(load_data(data, model_inputs(reference)), labels)):
        comparison.add(index, feed, label)
    timing = time_in_turns([first, *sessions.values()], comparison.first_feed, latency_seconds, max_rounds)
    scores = (
        CandidateScore(name, comparison.scores(name), latency)
        for name, latency in zip(sessions, timing.latencies[1:], strict=True)
    )
    return Evaluation(
        comparison.feeds,
        timing.rounds,
        device,
        threads,
        timing.latencies[0],
        tuple(scores),
        comparison.metric_scores(),
    )


class _Comparison:
    """Runs the reference and the candidates on one feed after the other, and sums up what is compared."""

    def __init__(
        self,
        reference: ort.InferenceSession,
        candidates: Mapping[str, ort.InferenceSession],
        metrics: Sequence[Metric],
    ) -> None:
        self._reference = reference
        self._candidates = candidates
        self._outputs = [output.name for output in reference.get_outputs()]
        self._sums = {name: {output: Sums() for output in self._outputs} for name in candidates}
        self._metrics = metrics
        # Of each metric one of the reference, then those of the candidates.
        self._tallies: list[list[Tally]] = [
            [metric.start() for _ in range(1 + len(candidates))] for metric in metrics
        ]
        self.feeds = 0
        self.first_feed: Feed = {}

    def add(self, index: int, feed: Feed, label: Any) -> None:
        """Runs all models on one feed."""
        self.feeds += 1
        self.first_feed = self.first_feed or feed
        expected = self._run(self._reference, feed)
        results = {name: self._run(session, feed) for name, session in self._candidates.items()}
        for name, outputs in results.items():
            for output, array in outputs.items():
                place = f"output '{output}' of '{name}' on feed {index}"
                self._sums[name][output].add_value(expected[output], array, place)
        for tallies in self._tallies:
            for tally, outputs in zip(tallies, [expected, *results.values()], strict=True):
                tally.add(Sample(index, outputs, expected, feed, label))

    def _run(self, session: ort.InferenceSession, feed: Feed) -> dict[str, Any]:
        return dict(zip(self._outputs, run_session(session, feed, self._outputs), strict=True))

    def scores(self, name: str) -> tuple[OutputScore, ...]:
        """The scores of one candidate."""
        return tuple(sums.score(output) for output, sums in self._sums[name].items())

    def metric_scores(self) -> tuple[MetricScore, ...]:
        """The metrics of all models."""
        return tuple(
            MetricScore(metric.name, tallies[0].value(), tuple(tally.value() for tally in tallies[1:]))
            for metric, tallies in zip(self._metrics, self._tallies, strict=True)
        )


def _labelled(data: Data, labels: Sequence[Any] | np.ndarray | None) -> Iterator[tuple[Feed, Any]]:
    """The feeds with their labels, None where there are none.

    Raises:
        DataError: there are more labels than feeds, or fewer.
    """
    count = 0
    for index, feed in enumerate(data):
        if labels is not None and index >= len(labels):
            given = f"{len(labels)} label{'' if len(labels) == 1 else 's'}"
            raise DataError(f"there are {given} for at least {index + 1} feeds; give one for each feed")
        yield feed, labels[index] if labels is not None else None
        count += 1
    if labels is not None and count != len(labels):
        raise DataError(f"there are {len(labels)} labels for {count} feeds; give one for each feed")
