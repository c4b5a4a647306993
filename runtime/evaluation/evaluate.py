"""How far candidates are from a reference model on given data, and how fast they are beside it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from onnx import ModelProto

from qc.ir.base.shown import Shown
from qc.ir.base.underway import underway
from qc.ir.errors import UsageError, a_type
from qc.ir.onnx.load import load_model, model_folder

from ..data.inputs import model_inputs
from ..data.load import DataSource, load_data
from ..metrics.metric import Metric, Sample, Tally
from ..metrics.parse import parse_metric
from ..metrics.sums import OutputScore, Sums
from ..sessions.open import check_interface
from ..sessions.providers import choose_provider
from ..sessions.runnable import OpenModel, Runnable
from ..speed.latency import LATENCY_SECONDS, Latency, time_in_turns
from .judge import Judged, Labels, judge


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
class Evaluation(Shown):
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
    candidates: Mapping[str, ModelProto | str | Path | Runnable],
    data: DataSource,
    *,
    base_dir: Path | None = None,
    optimize: bool = True,
    threads: int = 1,
    latency_seconds: float = LATENCY_SECONDS,
    max_rounds: int = 50,
    metrics: Sequence[str | Metric] = (),
    labels: Labels | None = None,
    provider: str = "cpu",
    untimed: Collection[str] = (),
) -> Evaluation:
    """Compares candidates with a reference, output by output, and times them side by side.

    Outputs are compared on all feeds, one feed at a time, so that memory does not grow with their number. An
    output that has other sizes than the reference's, as its length depends on the data, is left out there.

    Args:
        reference: the model that is right, normally the float model.
        candidates: models with the same inputs and outputs, or what runs as they do, such as a
            :class:`~qc.runtime.evaluation.simulation.Simulation`, by a name for the report.
        data: anything that :func:`qc.runtime.load_data` takes.
        base_dir: the folder that external data of models given as ``ModelProto`` is relative to.
        optimize: whether ONNX Runtime may rewrite the graphs.
        threads: threads within an op, the same for all models.
        latency_seconds: time to spend on timing (at least 5 rounds are run); 0 leaves timing out.
        max_rounds: rounds after which timing ends, even if there is time left.
        metrics: further metrics, of the reference too; :mod:`qc.runtime.metrics.parse` has their forms.
        labels: what the metrics get beside the feeds: one element for each feed; default: those of the data.
        provider: where the models run, the same for all; see :func:`open_session`.
        untimed: the names of candidates whose time says nothing, such as those that an emulator runs.

    Raises:
        UsageError: there is no candidate, no provider of that name, or a metric that does not exist, does not
            fit or fails.
        QcError: CUDA cannot be used here.
        ModelError: a model does not load or run, or an output is missing or has another rank.
        DataError: the data is empty or does not fit the reference, or the labels do not fit the data.
    """
    if not candidates:
        raise UsageError("there is nothing to evaluate: give at least one candidate")
    reference_dir = base_dir
    if not isinstance(reference, ModelProto):
        reference, reference_dir = load_model(reference), model_folder(reference)
    source = load_data(data, model_inputs(reference))
    labels = source.labels if labels is None else labels
    asked = [one if isinstance(one, Metric) else parse_metric(one, labels is not None) for one in metrics]
    for metric in asked:
        metric.check(reference)
    device = choose_provider(provider)
    settings: dict[str, Any] = {"optimize": optimize, "threads": threads, "provider": device}
    with underway("opened the reference"):
        first = OpenModel(reference, base_dir=reference_dir, **settings)
    runnables = _opened(candidates, base_dir, settings)
    for name, one in runnables.items():
        if isinstance(one, OpenModel):
            check_interface(first.session, one.session, name)
    scores = [_Scores(first.outputs, name) for name in runnables]
    tallies = [[metric.start() for metric in asked] for _ in (first, *runnables)]
    judged: list[Judged] = [(first, tallies[0])]
    for one, score, own in zip(runnables.values(), scores, tallies[1:], strict=True):
        judged.append((one, [score, *own]))
    feeds = iter(source)
    feed = next(feeds)
    count = judge(first, judged, chain([feed], feeds), labels)
    timed = {name: one for name, one in runnables.items() if name not in untimed}
    timing = time_in_turns([first, *timed.values()], feed, latency_seconds, max_rounds)
    latencies = dict(zip(timed, timing.latencies[1:], strict=True))
    return Evaluation(
        count,
        timing.rounds,
        device,
        threads,
        timing.latencies[0],
        tuple(
            CandidateScore(name, score.value(), latencies.get(name))
            for name, score in zip(runnables, scores, strict=True)
        ),
        tuple(_metric_score(one.name, [own[i] for own in tallies]) for i, one in enumerate(asked)),
    )


def _opened(
    candidates: Mapping[str, ModelProto | str | Path | Runnable],
    base_dir: Path | None,
    settings: Mapping[str, Any],
) -> dict[str, Runnable]:
    """The candidates by their names, models in sessions."""
    found: dict[str, Runnable] = {}
    for name, candidate in candidates.items():
        if isinstance(candidate, ModelProto | str | Path):
            with underway(f"opened the candidate '{name}'"):
                found[name] = OpenModel(candidate, base_dir=base_dir, **settings)
        elif callable(getattr(candidate, "run", None)):
            found[name] = candidate
        else:
            raise UsageError(f"candidate '{name}' is {a_type(candidate)}, and neither a model nor runs one")
    return found


def _metric_score(name: str, tallies: Sequence[Tally[float]]) -> MetricScore:
    reference, *candidates = (tally.value() for tally in tallies)
    return MetricScore(name, reference, tuple(candidates))


class _Scores:
    """The scores of every output of one candidate, as a tally."""

    def __init__(self, outputs: Sequence[str], candidate: str) -> None:
        self._sums = {output: Sums() for output in outputs}
        self._candidate = candidate

    def add(self, sample: Sample) -> None:
        for output, sums in self._sums.items():
            place = f"output '{output}' of '{self._candidate}' on feed {sample.index}"
            sums.add(sample.reference[output], sample.outputs[output], place)

    def value(self) -> tuple[OutputScore, ...]:
        return tuple(sums.score(output) for output, sums in self._sums.items())
