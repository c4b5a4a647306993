"""Results as the command line shows them, for notebooks and for ``print``."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Iterable, Sequence
from itertools import islice

from rich.console import Console, RenderableType
from rich.text import Text

from qc.auto.climb import Found
from qc.checking import Check
from qc.compiler.compiled import Compiled
from qc.coverage import Coverage
from qc.ir.facts.weights import QuantizedWeight, Weights
from qc.ir.model import Model
from qc.ir.text.printer import print_model
from qc.layers import LayerErrors, layer_table
from qc.passes import PipelineReport
from qc.rendering.check import check_facts, check_table
from qc.rendering.coverage import coverage_summary
from qc.rendering.evaluation import accuracy_table, bench_table, latency_note, latency_table, metric_table
from qc.rendering.passes import timing_table
from qc.rendering.table import Column, Table, text
from qc.rendering.terminal import facts_grid, lines, rendered
from qc.rendering.words import count, file_size
from qc.runtime import Benchmark, Evaluation
from qc.sensitivity import Sensitivity, sensitivity_heading, sensitivity_table
from qc.verdict.measure import Verdict
from qc.verdict.words import verdict_facts, verdict_notes, verdict_warnings
from qc.view.words import encoding_texts, shape_text

WIDTH = 110
_MOST_LINES = 200  # of the text of a model
_MOST_QUANTIZERS = 20
_MOST_LAYERS = 20
_MOST_WEIGHTS = 40
_FRAME = '<pre style="white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace">{code}</pre>'

Part = RenderableType | Table


def as_html(result: object) -> str:
    """What a notebook shows: text with its weights and colours, on the ground of the notebook."""
    console = _printed(result, io.StringIO())
    return console.export_html(inline_styles=True, code_format=_FRAME)


def as_text(result: object) -> str:
    """What ``print`` shows, without blanks at line ends."""
    console = _printed(result, io.StringIO())
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def _printed(result: object, file: io.StringIO) -> Console:
    console = Console(
        file=file,
        record=True,
        width=WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
        force_jupyter=False,  # it would show what it records
    )
    for part in parts(result):
        console.print(rendered(part) if isinstance(part, Table) else part)
    return console


@functools.singledispatch
def parts(result: object) -> Iterable[Part]:
    """What is shown of a result, one below the other; TypeError for what is none."""
    raise TypeError(f"{type(result).__name__} is no result that qc shows")


@parts.register
def _compiled(result: Compiled) -> Sequence[Part]:
    name = result.source.name if result.source is not None else result.ir.name
    facts = [
        ("model", f"{name}, compiled for {result.target.name} in {result.report.seconds:.1f} s"),
        *coverage_summary(result.coverage),
    ]
    return [facts_grid(facts), *_notes([*result.notes, *result.warnings])]


@parts.register
def _found(result: Found) -> Sequence[Part]:
    kept = "keeps the accuracy" if result.is_accepted else "loses more than it may"
    tried = f"{count(len(result.trials), 'recipe')} tried"
    words = [f"'{result.best.recipe.name}', which {kept}", tried, *([result.ended] if result.ended else [])]
    facts = [("recipe", "; ".join(words))]
    survey = [result.survey.table()] if result.survey is not None else []
    return [facts_grid(facts), *_compiled(result.compiled), *survey]


@parts.register
def _coverage(result: Coverage) -> Sequence[Part]:
    return [facts_grid(coverage_summary(result))]


@parts.register
def _verdict(result: Verdict) -> Sequence[Part]:
    return [facts_grid(verdict_facts(result)), *_notes([*verdict_warnings(result), *verdict_notes(result)])]


@parts.register
def _check(result: Check) -> Sequence[Part]:
    return [facts_grid(check_facts(result)), "", check_table(result)]


@parts.register
def _evaluation(result: Evaluation) -> Sequence[Part]:
    shown: list[Part] = [accuracy_table(result)]
    if result.metrics:
        shown += ["", metric_table(result)]
    if result.rounds:
        shown += ["", latency_table(result), "", latency_note(result)]
    return shown


@parts.register
def _benchmark(result: Benchmark) -> Sequence[Part]:
    return [bench_table(result), "", latency_note(result)]


@parts.register
def _sensitivity(result: Sensitivity) -> Sequence[Part]:
    rows = result.quantizers[:_MOST_QUANTIZERS]
    return [sensitivity_heading(result, len(rows)), "", sensitivity_table(rows)]


@parts.register
def _layers(result: LayerErrors) -> Sequence[Part]:
    left = [f"left out: {result.left_out}"] if result.left_out else []
    if not result.layers:
        return [lines(left)]
    table = layer_table(result, _MOST_LAYERS)
    which = f"the {len(table.rows)} of them that lose most" if len(table.rows) < len(result.layers) else "all"
    told = f"{count(len(result.layers), 'tensor')} on {count(result.feeds, 'sample')}; {which}:"
    return [lines([told, *left]), "", table]


@parts.register
def _weights(result: Weights) -> Sequence[Part]:
    columns = (text("weight"), text("shape"), text("format"), text("granularity"), Column("codes", file_size))
    table = Table(columns)
    for name, weight in islice(result.items(), _MOST_WEIGHTS):
        table.add(name, shape_text(weight.shape), weight.format, weight.granularity, _code_bytes(weight))
    size = file_size(sum(map(_code_bytes, result.values())))
    left = len(result) - len(table.rows)
    more = [f"... and {count(left, 'more weight')}"] if left else []
    return [lines([f"{count(len(result), 'weight')}, {size} of codes"]), "", table, *more]


@parts.register
def _weight(result: QuantizedWeight) -> Sequence[Part]:
    facts = [
        ("weight", f"{result.name} {shape_text(result.shape)}"),
        ("format", f"{result.encoding.spec}, {file_size(_code_bytes(result))} of codes"),
        *encoding_texts(result.encoding).items(),
    ]
    return [facts_grid(facts)]


def _code_bytes(weight: QuantizedWeight) -> int:
    return math.ceil(math.prod(weight.shape) * weight.bits / 8)


@parts.register
def _report(result: PipelineReport) -> Sequence[Part]:
    return [timing_table(result)]


@parts.register
def _model(result: Model) -> Sequence[Part]:
    printed = print_model(result).splitlines()
    left = len(printed) - _MOST_LINES
    return [lines([*printed[:_MOST_LINES], *([f"... and {count(left, 'line')} more"] if left > 0 else [])])]


def _notes(notes: Iterable[str]) -> list[Part]:
    return [Text(f"note: {note}") for note in notes]
