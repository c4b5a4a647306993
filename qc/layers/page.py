"""The page: a self-contained HTML file with the scores of a quantized model and the error of every tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qc.rendering.evaluation import accuracy_table, latency_table, metric_table
from qc.rendering.html import page
from qc.rendering.table import Table
from qc.runtime import Evaluation

from .chart import Chart, describe
from .errors import LayerErrors
from .table import axis_top, location


def evaluation_page(title: str, subtitle: str, evaluation: Evaluation, errors: LayerErrors) -> str:
    """An HTML page; nothing is loaded from elsewhere, and all names are escaped."""
    return page(
        "layers/page.html",
        title=title,
        subtitle=subtitle,
        tables=_tables(evaluation),
        chart=Chart(errors.layers),
        left_out=errors.left_out,
        rows=_rows(errors),
    )


def _tables(evaluation: Evaluation) -> dict[str, Table]:
    """The tables that the terminal shows, too."""
    found = {"Outputs against float": accuracy_table(evaluation)}
    if evaluation.metrics:
        found["Metrics"] = metric_table(evaluation)
    if evaluation.rounds:
        found["Latency"] = latency_table(evaluation)
    return found


def _rows(errors: LayerErrors) -> Iterator[dict[str, Any]]:
    numbers = {id(layer): number for number, layer in enumerate(errors.layers)}
    top = axis_top(errors.layers)
    for layer in errors.worst_first():
        share = min(max(layer.isolated_db / top, 0.0), 1.0)
        title, at = describe(layer), location(layer)
        yield {"layer": layer, "number": numbers[id(layer)], "title": title, "at": at, "share": share}
