"""How far candidates are from a reference model on given data, and how fast they are beside it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from qc.ir.errors import ModelError, UsageError
from qc.ir.executor import Feed
from qc.ir.lift import load_model

from .data import Data, DataSource, load_data
from .inputs import model_inputs
from .session import open_session, run_session

_MIN_ROUNDS = 5


@dataclass(frozen=True)
class OutputScore:
    """How one output of a candidate compares with the same output of the reference, over all feeds.

    Elements that are NaN, or the same infinity, in both models count as equal and carry no signal. One that
    is finite in only one of them is an infinite error.

    Attributes:
        output: the name of the graph output.
        elements: how many elements were compared.
        equal: the share of elements that are exactly equal, 0 to 1; the only score of outputs that are not
            floating point. 1 for an output that was always empty.
        sqnr_db: signal to quantization noise ratio ``10 log10(sum(x^2) / sum((x - y)^2))`` in dB, where x is
            the reference; inf if equal, -inf if the error is infinite or x is all zero and y is not. None for
            outputs that are not floating point.
        cosine: cosine of the angle between both outputs, seen as one long vector; NaN if one is all zero and
            the other is not, or not finite. None likewise.
        max_abs_error: the largest absolute difference. None likewise.
    """

    output: str
    elements: int
    equal: float
    sqnr_db: float | None = None
    cosine: float | None = None
    max_abs_error: float | None = None


@dataclass(frozen=True)
class Latency:
    """Time per run.

    Attributes:
        seconds: median over the rounds.
        ratio: median over the rounds of this model's time divided by the reference's in the same round.
    """

    seconds: float
    ratio: float


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
class Evaluation:
    """The result of :func:`evaluate`.

    Attributes:
        feeds: how many feeds the outputs were compared on.
        rounds: how many times each model was timed; 0 if latency was not asked for.
        threads: threads per op during all runs.
        reference: the latency of the reference; None if it was not asked for.
        candidates: in the order they were given.
    """

    feeds: int
    rounds: int
    threads: int
    reference: Latency | None
    candidates: tuple[CandidateScore, ...]


def evaluate(
    reference: ModelProto | str | Path,
    candidates: Mapping[str, ModelProto | str | Path],
    data: DataSource,
    *,
    base_dir: Path | None = None,
    optimize: bool = True,
    threads: int = 1,
    latency_seconds: float = 3.0,
    max_rounds: int = 50,
) -> Evaluation:
    """Compares candidates with a reference, output by output, and times them side by side.

    Outputs are compared on all feeds, one feed at a time. For latency, every round runs each model once on
    the same feed, each round beginning with another model, so that a change of clock or load hits all alike.

    Args:
        reference: the model that is right, normally the float model.
        candidates: models with the same inputs and outputs, by a name for the report.
        data: anything that :func:`qc.runtime.load_data` takes.
        base_dir: the folder that external data of models given as ``ModelProto`` is relative to.
        optimize: whether ONNX Runtime may rewrite the graphs.
        threads: threads within an op, the same for all models.
        latency_seconds: time to spend on timing (at least 5 rounds are run); 0 leaves timing out.
        max_rounds: rounds after which timing ends, even if there is time left.

    Raises:
        UsageError: there is no candidate.
        ModelError: a model does not load or run, or an output is missing or has another shape.
        DataError: the data is empty or does not fit the reference.
    """
    if not candidates:
        raise UsageError("there is nothing to evaluate: give at least one candidate")
    reference_dir = base_dir
    if not isinstance(reference, ModelProto):
        reference, reference_dir = load_model(reference), Path(reference).parent
    first = open_session(reference, base_dir=reference_dir, optimize=optimize, threads=threads)
    sessions = {
        name: open_session(model, base_dir=base_dir, optimize=optimize, threads=threads)
        for name, model in candidates.items()
    }
    for name, session in sessions.items():
        _check_interface(first, session, name)
    outputs = [output.name for output in first.get_outputs()]
    feeds, one_feed, sums = _compare(first, sessions, load_data(data, model_inputs(reference)), outputs)
    rounds = _time([first, *sessions.values()], one_feed, latency_seconds, max_rounds)
    latencies = _latencies(rounds, 1 + len(sessions))
    scores = (
        CandidateScore(name, tuple(sums[name][output].score(output) for output in outputs), latency)
        for name, latency in zip(sessions, latencies[1:], strict=True)
    )
    return Evaluation(feeds, len(rounds), threads, latencies[0], tuple(scores))


def _check_interface(reference: ort.InferenceSession, candidate: ort.InferenceSession, name: str) -> None:
    """Refuses a candidate that lacks outputs of the reference, or takes other inputs."""
    given = {output.name for output in candidate.get_outputs()}
    for output in reference.get_outputs():
        if output.name not in given:
            raise ModelError(f"the candidate '{name}' has no output '{output.name}', the reference has")
    expected = [value.name for value in reference.get_inputs()]
    taken = [value.name for value in candidate.get_inputs()]
    for value in (*expected, *taken):
        if value not in expected or value not in taken:
            owner = "only the reference" if value in expected else f"only the candidate '{name}'"
            raise ModelError(f"{owner} has an input '{value}'; compare models with the same inputs")


def _compare(
    reference: ort.InferenceSession,
    candidates: Mapping[str, ort.InferenceSession],
    data: Data,
    outputs: Sequence[str],
) -> tuple[int, Feed, dict[str, dict[str, _Sums]]]:
    """Runs all feeds; the number of feeds, the first of them, and the sums by candidate and output."""
    sums = {name: {output: _Sums() for output in outputs} for name in candidates}
    count, first_feed = 0, None
    for feed in data:
        first_feed = first_feed or feed
        expected = run_session(reference, feed, outputs)
        for name, session in candidates.items():
            results = run_session(session, feed, outputs)
            for output, x, y in zip(outputs, expected, results, strict=True):
                _add_value(sums[name][output], x, y, f"output '{output}' of '{name}' on feed {count}")
        count += 1
    return count, first_feed or {}, sums


def _time(
    sessions: Sequence[ort.InferenceSession], feed: Feed, seconds: float, max_rounds: int
) -> list[list[float]]:
    """The seconds that each session took, for each round."""
    rounds: list[list[float]] = []
    end = time.perf_counter() + seconds
    while seconds > 0 and len(rounds) < max_rounds:
        if len(rounds) >= _MIN_ROUNDS and time.perf_counter() > end:
            break
        taken = [0.0] * len(sessions)
        for place in range(len(sessions)):
            index = (place + len(rounds)) % len(sessions)
            start = time.perf_counter()
            run_session(sessions[index], feed)
            taken[index] = time.perf_counter() - start
        rounds.append(taken)
    return rounds


def _latencies(rounds: Sequence[Sequence[float]], models: int) -> list[Latency | None]:
    if not rounds:
        return [None] * models
    return [
        Latency(
            median(taken[index] for taken in rounds),
            median(taken[index] / taken[0] for taken in rounds),
        )
        for index in range(models)
    ]


def _add_value(sums: _Sums, x: Any, y: Any, place: str) -> None:
    """Adds one output of the reference and the candidate: a tensor, or a sequence of them."""
    if isinstance(x, list) and isinstance(y, list):
        if len(x) != len(y):
            raise ModelError(f"{place} has {len(y)} elements, the reference has {len(x)}")
        for one, other in zip(x, y, strict=True):
            _add_value(sums, one, other, place)
        return
    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        raise ModelError(f"{place} cannot be compared: it is no tensor")
    if x.shape != y.shape:
        raise ModelError(f"{place} has shape {y.shape}, the reference has {x.shape}")
    sums.add(x, y)


@dataclass
class _Sums:
    """Running sums over pairs of arrays of one output."""

    floating: bool = False
    elements: int = 0
    equal: int = 0
    signal: float = 0.0
    noise: float = 0.0
    product: float = 0.0
    energy: float = 0.0
    largest: float = 0.0

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        """Adds an array of the reference and one of the same shape of the candidate."""
        self.elements += x.size
        if not _is_floating(x.dtype):
            self.equal += int(np.count_nonzero(x == y))
            return
        self.floating = True
        x, y = x.astype(np.float64), y.astype(np.float64)
        equal = (x == y) | (np.isnan(x) & np.isnan(y))
        self.equal += int(np.count_nonzero(equal))
        finite = np.isfinite(x) & np.isfinite(y)
        x, y = np.where(finite, x, 0), np.where(finite, y, 0)
        error = np.where(finite | equal, x - y, np.inf)
        self.signal += float(np.sum(x * x))
        self.energy += float(np.sum(y * y))
        self.product += float(np.sum(x * y))
        self.noise += float(np.sum(error * error))
        self.largest = max(self.largest, float(np.max(np.abs(error), initial=0)))

    def score(self, output: str) -> OutputScore:
        """The scores of everything added."""
        equal = self.equal / self.elements if self.elements else 1.0
        if not self.floating:
            return OutputScore(output, self.elements, equal)
        return OutputScore(output, self.elements, equal, self._sqnr(), self._cosine(), self.largest)

    def _sqnr(self) -> float:
        if self.noise == 0:
            return math.inf
        if self.signal == 0 or math.isinf(self.noise):
            return -math.inf
        return 10 * math.log10(self.signal / self.noise)

    def _cosine(self) -> float:
        if self.noise == 0:
            return 1.0
        length = math.sqrt(self.signal) * math.sqrt(self.energy)
        return self.product / length if length and math.isfinite(self.noise) else math.nan


def _is_floating(dtype: np.dtype) -> bool:
    if dtype.kind != "V":
        return dtype.kind == "f"
    try:
        ml_dtypes.finfo(dtype)
    except ValueError:
        return False
    return True
