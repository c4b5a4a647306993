"""The page: a self-contained HTML file with the scores of a quantized model and the error of every tensor."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from rich.table import Table

from qc.evaluation_report import accuracy_table, decibels, latency_table, metric_table
from qc.report import printable
from qc.runtime import Evaluation
from qc.view.document import html_document

from .chart import chart, describe
from .errors import LayerError, LayerErrors
from .table import axis_top, location


def evaluation_page(title: str, subtitle: str, evaluation: Evaluation, errors: LayerErrors) -> str:
    """An HTML page; nothing is loaded from elsewhere, and all names are escaped."""
    body = Template(_resource("page.html")).substitute(
        title=escape(printable(title)),
        subtitle=escape(printable(subtitle)),
        scores="\n".join(_scores(evaluation)),
        chart=chart(errors.layers),
        left_out=f"Left out: {errors.left_out}." if errors.left_out else "",
        rows="\n".join(_rows(errors)),
    )
    return html_document(title, _resource("page.css"), body)


def _resource(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _scores(evaluation: Evaluation) -> list[str]:
    """The tables that the terminal shows, too."""
    sections = [_section("Outputs against float", accuracy_table(evaluation))]
    if evaluation.metrics:
        sections.append(_section("Metrics", metric_table(evaluation)))
    if evaluation.rounds:
        sections.append(_section("Latency", latency_table(evaluation)))
    return sections


def _section(heading: str, table: Table) -> str:
    """A table of the report in HTML."""
    kinds = ["number" if column.justify == "right" else "text" for column in table.columns]
    head = _cells("th", [str(column.header) for column in table.columns], kinds)
    cells = zip(*(column.cells for column in table.columns), strict=True)
    rows = "\n".join(f"<tr>{_cells('td', [str(cell) for cell in row], kinds)}</tr>" for row in cells)
    return (
        f"<section><h2>{escape(heading)}</h2><table><thead><tr>{head}</tr></thead>\n{rows}</table></section>"
    )


def _cells(tag: str, texts: Sequence[str], kinds: Sequence[str]) -> str:
    cells = zip(texts, kinds, strict=True)
    return "".join(f'<{tag} class="{kind}">{escape(text)}</{tag}>' for text, kind in cells)


def _rows(errors: LayerErrors) -> list[str]:
    numbers = {id(layer): number for number, layer in enumerate(errors.layers)}
    top = axis_top(errors.layers)
    return [_row(layer, numbers[id(layer)], top) for layer in errors.worst_first()]


def _row(layer: LayerError, number: int, top: float) -> str:
    share = min(max(layer.isolated_db / top, 0.0), 1.0)
    kind = "constant" if layer.is_constant else "computed"
    together = decibels(layer.cumulative_db) if layer.cumulative_db is not None else ""
    return (
        f'<tr id="tensor-{number}" title="{escape(describe(layer))}">'
        f'<td class="name">{escape(printable(layer.tensor))}</td>'
        f"<td>{escape(location(layer))}</td>"
        f'<td>{escape(layer.spec.split()[0])}</td><td class="number">{decibels(layer.isolated_db)}</td>'
        f'<td class="gauge"><span class="{kind}" style="width:{share:.1%}"></span></td>'
        f'<td class="number">{together}</td></tr>'
    )
