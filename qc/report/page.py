"""The page: a self-contained HTML file for a colleague, on a screen or on paper."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from qc.ir.errors import listed
from qc.layers import Chart, layer_table
from qc.rendering.check import check_table
from qc.rendering.coverage import group_by_reason
from qc.rendering.html import page
from qc.rendering.table import Column, Table, text
from qc.rendering.words import count, finite, milliseconds
from qc.sensitivity import sensitivity_table
from qc.verdict.measure import Verdict
from qc.verdict.words import verdict_notes, verdict_warnings
from qc.view import precision_map

from .document import report_document
from .findings import Findings

_WORST = 20
_SLOWEST = 15
_NAMED = 8  # tensors of one reason
_CONTENTS = {
    "verdict": "What it keeps and what it costs",
    "precision": "Precision of every op, in the order of the graph",
    "float": "What stays float, and why",
    "layers": "Error of every quantized tensor",
    "time": "Time of one run",
    "histograms": "Values of tensors, and their grids",
    "sensitivity": "Quantizers that harm most",
    "recipe": "Made by",
}
_KEY = {
    "bits-8u": "uint8",
    "bits-8": "int8",
    "bits-4": "up to 4 bits",
    "bits-16": "16 bits",
    "bits-32": "32 bits",
    "small-float": "small float",
    "float": "float",
}


def report_page(
    findings: Findings, title: str, command: str, made_with: Mapping[str, str] = MappingProxyType({})
) -> str:
    """An HTML page; nothing is loaded from elsewhere, and all names are escaped.

    Args:
        title: the name of the model.
        command: what makes it again.
        made_with: what else tells where it comes from, such as the pipeline and the number of samples.
    """
    compiled, errors, sensitivity = findings.compiled, findings.errors, findings.sensitivity
    precision = precision_map(compiled.ir)
    styles = {style for op in precision for style in (op.data, op.weights)}
    document = report_document(findings, title, command, made_with)
    notes, floats, times = _notes(findings), _floats(findings), _times(findings.verdict)
    present = {
        "verdict": document.measures or notes,
        "float": floats.rows,
        "layers": errors is not None and errors.layers,
        "time": times,
        "histograms": findings.histograms,
        "sensitivity": sensitivity,
    }
    return page(
        "report/page.html",
        title=title,
        subtitle=", ".join(
            [*_made(document.made_with), f"{compiled.coverage.quantized:,} tensors quantized"]
        ),
        document=document,
        data=finite(document.model_dump(mode="json")),
        contents={name: words for name, words in _CONTENTS.items() if present.get(name, True)},
        notes=notes,
        precision=precision,
        key=[(style, words) for style, words in _KEY.items() if style in styles],
        formats=Table((Column("tensors"), text("format")), _formats(document.formats)),
        floats=floats,
        chart=Chart(errors.layers) if errors is not None else None,
        left_out=errors.left_out if errors is not None else "",
        worst=layer_table(errors, _WORST) if errors is not None else None,
        times=times,
        histograms=findings.histograms,
        ranked_on=count(sensitivity.feeds, "sample") if sensitivity is not None else "",
        sensitivity=sensitivity_table(sensitivity.quantizers[:_WORST]) if sensitivity is not None else None,
    )


def _made(made_with: Mapping[str, str]) -> list[str]:
    """How it was made, on the first line."""
    words = {"pipeline": "{} ", "target": "for {}", "calibrated on": "calibrated on {}"}
    return [form.format(made_with[name]).strip() for name, form in words.items() if name in made_with]


def _notes(findings: Findings) -> list[str]:
    """All that is to be known of the result, and what was not measured of it."""
    compiled, verdict = findings.compiled, findings.verdict
    told = [*verdict_warnings(verdict), *verdict_notes(verdict)]
    return [*compiled.notes, *compiled.warnings, *told, *_unmeasured(findings)]


def _unmeasured(findings: Findings) -> list[str]:
    """Why a number is missing."""
    verdict, errors = findings.verdict, findings.errors
    costs = [f"not all costs were measured: {verdict.unmeasured}"] if verdict.unmeasured else []
    if errors is None or errors.layers:
        return costs
    return [*costs, f"errors of single tensors were not measured: there are {errors.left_out} alone"]


def _formats(formats: dict[str, int]) -> list[tuple[Any, ...]]:
    return [(number, spec) for spec, number in sorted(formats.items(), key=lambda item: -item[1])]


def _floats(findings: Findings) -> Table:
    """Why tensors stay float, the most frequent reason first."""
    table = Table((Column("tensors"), text("reason"), text("which")))
    for group in group_by_reason(findings.compiled.coverage.unquantized):
        table.add(len(group.names), group.reason, listed(group.names, _NAMED))
    return table


def _times(verdict: Verdict) -> dict[str, Table]:
    """By op type, and the ops that take longest; nothing where the result was not timed."""
    check = verdict.check
    if check is None or not check.seconds:
        return {}
    slowest = Table(
        (text("op"), text("runs"), text("kernel"), Column("time", milliseconds), Column("", ".1%"))
    )
    for op in sorted(check.counted, key=lambda op: -op.seconds)[:_SLOWEST]:
        if op.seconds:
            slowest.add(op.name, op.runs, op.kernel, op.seconds, op.seconds / check.seconds)
    return {"by type": check_table(check), f"the {count(len(slowest.rows), 'op')} that take longest": slowest}
