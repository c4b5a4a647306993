"""What a page holds for the comparison with another one: its numbers, as JSON within it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from qc.ir.errors import UsageError
from qc.rendering.check import seconds_by_type
from qc.versions import versions

from .findings import Findings
from .measures import Measure, measures_of

_DATA = re.compile(r'<script id="report" type="application/json">(.*?)</script>', re.DOTALL)


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KeptLayer(_Kept):
    """The error of a tensor in dB, as :class:`qc.layers.LayerError` has it."""

    tensor: str
    format: str
    isolated_db: float
    cumulative_db: float | None


class ReportDocument(_Kept):
    """The numbers of a report.

    Attributes:
        title: the name of the model.
        command: what made it.
        made_with: pipeline, target, samples and versions, in words.
        steps: the passes with their options.
        measures: the verdict.
        formats: number of quantized tensors by the text of their spec.
        float_tensors: those that stayed float, with the reason.
        layers: where several places have a tensor, the worst.
        seconds: of one run, by op type; nothing if it was not timed.
    """

    title: str
    command: str
    made_with: dict[str, str]
    steps: tuple[str, ...]
    measures: tuple[Measure, ...]
    formats: dict[str, int]
    float_tensors: dict[str, str]
    layers: tuple[KeptLayer, ...]
    seconds: dict[str, float]


def report_document(
    findings: Findings, title: str, command: str, made_with: Mapping[str, str]
) -> ReportDocument:
    """The numbers of a report."""
    compiled, errors = findings.compiled, findings.errors
    worst = {layer.tensor: layer for layer in reversed(errors.worst_first())} if errors is not None else {}
    return ReportDocument(
        title=title,
        command=command,
        made_with={"target": compiled.target.name, **made_with, **versions()},
        steps=tuple(step.text for step in compiled.report.steps),
        measures=tuple(measures_of(findings.verdict)),
        formats=compiled.coverage.formats,
        float_tensors={tensor.name: tensor.reason for tensor in compiled.coverage.unquantized},
        layers=tuple(
            KeptLayer(
                tensor=layer.tensor,
                format=layer.spec.split()[0],
                isolated_db=layer.isolated_db,
                cumulative_db=layer.cumulative_db,
            )
            for layer in worst.values()
        ),
        seconds=seconds_by_type(findings.verdict.check) if findings.verdict.check is not None else {},
    )


def read_document(path: str | Path) -> ReportDocument:
    """The numbers of a page that :func:`report_page` made.

    Raises:
        UsageError: the file cannot be read, or is no such page.
    """
    if not Path(path).is_file():
        raise UsageError(f"there is no report '{path}'")
    try:
        found = _DATA.search(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        found = None
    if found is not None:
        try:
            return ReportDocument.model_validate_json(found[1])
        except ValidationError:
            pass
    raise UsageError(
        f"'{path}' is not a report of this version of qc: write one with 'qc report MODEL.onnx --data SRC'"
    )
