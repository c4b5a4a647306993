"""What evaluations and benchmarks found: tables for a terminal, and documents for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.table import Table

from qc.runtime import Benchmark, Evaluation, Latency, OutputScore

from .report import count, file_size, plain_table, printable

REFERENCE = "float"
_LATENCY_COLUMNS = ("latency", "\u00b1", "to float", "\u00b1")


def accuracy_table(evaluation: Evaluation) -> Table:
    """How far every output of every candidate is from the reference."""
    table = plain_table(("output", "model", "SQNR", "cosine", "max error", "equal"), text_columns=2)
    for index, first in enumerate(evaluation.candidates[0].outputs):
        for candidate in evaluation.candidates:
            score = candidate.outputs[index]
            name = printable(first.output) if candidate is evaluation.candidates[0] else ""
            table.add_row(name, candidate.name, *_scores(score))
    return table


def metric_table(evaluation: Evaluation) -> Table:
    """The metrics that were asked for, of the reference and the candidates."""
    names = [candidate.name for candidate in evaluation.candidates]
    table = plain_table(("metric", REFERENCE, *names))
    for metric in evaluation.metrics:
        values = (metric.reference, *metric.candidates)
        table.add_row(printable(metric.name), *(f"{value:.6g}" for value in values))
    return table


def latency_table(evaluation: Evaluation) -> Table:
    """The time per run of the reference and the candidates."""
    table = plain_table(("model", *_LATENCY_COLUMNS))
    rows = [(REFERENCE, evaluation.reference)]
    rows += [(candidate.name, candidate.latency) for candidate in evaluation.candidates]
    for name, latency in rows:
        if latency is not None:
            table.add_row(name, *_latency_cells(latency))
    return table


def latency_note(result: Evaluation | Benchmark) -> str:
    """How the numbers of a latency table came about."""
    where = "on the GPU" if result.device == "cuda" else count(result.threads, "thread")
    return (
        f"median of {count(result.rounds, 'round')}, {where}; "
        "\u00b1 is half the distance between the quartiles"
    )


def bench_table(benchmark: Benchmark) -> Table:
    """Time, memory and size of every model."""
    table = plain_table(("model", *_LATENCY_COLUMNS, "peak memory", "size"))
    for cost in benchmark.models:
        memory = file_size(cost.peak_memory) if cost.peak_memory is not None else "not known"
        table.add_row(printable(cost.name), *_latency_cells(cost.latency), memory, file_size(cost.file_size))
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


def decibels(sqnr: float) -> str:
    """A signal to quantization noise ratio in words."""
    return "equal" if sqnr == math.inf else f"{sqnr:.1f} dB"


def _scores(score: OutputScore) -> tuple[str, str, str, str]:
    equal = f"{score.equal:.1%}"
    if score.sqnr_db is None or score.cosine is None or score.max_abs_error is None:
        return "", "", "", equal
    return decibels(score.sqnr_db), f"{score.cosine:.6f}", f"{score.max_abs_error:.3g}", equal


def _latency_cells(latency: Latency) -> tuple[str, str, str, str]:
    return (
        _milliseconds(latency.seconds),
        _spread(latency.seconds, latency.seconds_quartiles),
        f"{latency.ratio:.2f} x",
        _spread(latency.ratio, latency.ratio_quartiles),
    )


def _spread(median: float, quartiles: tuple[float, float]) -> str:
    """Half the distance between the quartiles as a share of the median."""
    low, high = quartiles
    return f"\u00b1{(high - low) / 2 / median:.0%}" if high > low else ""


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds * 1000:.0f} ms"


def finite(value: Any) -> Any:
    """Plain values for JSON, in which infinite numbers and NaN are text."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
