"""What evaluations and benchmarks found: tables, and documents for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from qc.runtime import Benchmark, Evaluation, Latency

from .table import Column, Table, text
from .words import count, decibels, file_size, finite, milliseconds

REFERENCE = "float"
_TO_FLOAT = Column("to float", lambda ratio: f"{ratio:.2f} x")
_SPREAD = Column("±", lambda share: f"±{share:.0%}")
_BUSY = 0.5  # of a ratio that is spread so far nothing can be said
_LATENCY = (Column("latency", milliseconds), _SPREAD, _TO_FLOAT, _SPREAD)


def accuracy_table(evaluation: Evaluation) -> Table:
    """How far every output of every candidate is from the reference."""
    scores = (Column("SQNR", decibels), Column("cosine", ".6f"), Column("max error", ".3g"))
    table = Table((text("output"), text("model"), *scores, Column("equal", ".1%")))
    for outputs in zip(*(candidate.outputs for candidate in evaluation.candidates), strict=True):
        for index, (candidate, score) in enumerate(zip(evaluation.candidates, outputs, strict=True)):
            numbers = (score.sqnr_db, score.cosine, score.max_abs_error)
            known = None not in numbers
            name = None if index else score.output
            equal = None if math.isnan(score.equal) else score.equal
            table.add(name, candidate.name, *(numbers if known else (None,) * 3), equal)
    return table


def comparison_notes(evaluation: Evaluation) -> list[str]:
    """What could not be compared, in sentences."""
    return [
        f"output '{score.output}' of '{candidate.name}' has other sizes than the reference's on "
        f"{score.left_out} of {count(evaluation.feeds, 'sample')}, which are left out: its length depends on "
        "the data"
        for candidate in evaluation.candidates
        for score in candidate.outputs
        if score.left_out
    ]


def metric_table(evaluation: Evaluation) -> Table:
    """The metrics that were asked for, of the reference and the candidates."""
    names = (REFERENCE, *(candidate.name for candidate in evaluation.candidates))
    rows = [(metric.name, metric.reference, *metric.candidates) for metric in evaluation.metrics]
    return Table((text("metric"), *(Column(name, ".6g") for name in names)), rows)


def latency_table(evaluation: Evaluation) -> Table:
    """The time per run of the reference and the candidates."""
    timed = [(REFERENCE, evaluation.reference)]
    timed += [(candidate.name, candidate.latency) for candidate in evaluation.candidates]
    rows = [(name, *_latency(latency)) for name, latency in timed if latency is not None]
    return Table((text("model"), *_LATENCY), rows)


def latency_note(result: Evaluation | Benchmark) -> str:
    """How the numbers of a latency table came about."""
    where = "on the GPU" if result.device == "cuda" else count(result.threads, "thread")
    how = f"median of {count(result.rounds, 'round')}, {where}; ± is half the distance between the quartiles"
    timed = result.models if isinstance(result, Benchmark) else result.candidates
    spreads = [_spread(one.latency.ratio, one.latency.ratio_quartiles) for one in timed if one.latency]
    busy = max((spread or 0.0 for spread in spreads), default=0.0) > _BUSY
    return f"{how}; so much that they tell little: other work keeps the processors busy" if busy else how


def bench_table(benchmark: Benchmark) -> Table:
    """Time, memory and size of every model."""
    first = benchmark.models[0].name
    ratio = _TO_FLOAT if first == REFERENCE else replace(_TO_FLOAT, title=f"to '{first}'")
    latency = tuple(ratio if column is _TO_FLOAT else column for column in _LATENCY)
    table = Table((text("model"), *latency, Column("peak memory"), Column("size", file_size)))
    for cost in benchmark.models:
        memory = file_size(cost.peak_memory) if cost.peak_memory is not None else "not known"
        table.add(cost.name, *_latency(cost.latency), memory, cost.file_size)
    return table


def bench_document(benchmarks: Mapping[str, Benchmark]) -> dict[str, Any]:
    """Benchmarks by the path of the model as plain values for JSON."""
    return {
        "models": [
            {
                "model": path,
                "rounds": benchmark.rounds,
                "device": benchmark.device,
                "threads": benchmark.threads,
                "pinned": benchmark.pinned,
                "forms": [asdict(cost) for cost in benchmark.models],
            }
            for path, benchmark in benchmarks.items()
        ]
    }


def evaluation_document(evaluation: Evaluation) -> dict[str, Any]:
    """The evaluation as plain values for JSON; infinite numbers and NaN, which it lacks, are text."""
    document: dict[str, Any] = finite(asdict(evaluation))
    return document


def _latency(latency: Latency) -> tuple[float, float | None, float, float | None]:
    spread = _spread(latency.seconds, latency.seconds_quartiles)
    return latency.seconds, spread, latency.ratio, _spread(latency.ratio, latency.ratio_quartiles)


def _spread(median: float, quartiles: tuple[float, float]) -> float | None:
    """Half the distance between the quartiles as a share of the median."""
    low, high = quartiles
    return (high - low) / 2 / median if high > low else None
