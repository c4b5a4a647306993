"""Errors of quantized tensors in the terminal, and for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import table as rich_table
from rich.bar import Bar
from rich.constrain import Constrain

from qc.rendering.table import Column, Table, text
from qc.rendering.words import decibels, finite, printable

from .errors import LayerError, LayerErrors

_PLOT_LINES = 40
_PLOT_WIDTH = 120
_NAME_WIDTH = 28
_AXIS_STEP = 10.0  # dB


def layer_table(errors: LayerErrors, most: int) -> Table:
    """The tensors that lose most in isolation."""
    numbers = (Column("isolated", decibels), Column("cumulative", decibels))
    table = Table((text("tensor"), text("at"), text("format"), *numbers))
    for layer in errors.worst_first()[:most]:
        format = layer.spec.split()[0]
        table.add(layer.tensor, location(layer), format, layer.isolated_db, layer.cumulative_db)
    return table


def layer_plot(errors: LayerErrors) -> Constrain:
    """Bars in the order of the graph: the longer, the less is lost.

    Neighbors share a line where there are more than fit on a screen; the one that loses most is shown.
    """
    table = rich_table.Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False, expand=True)
    table.add_column("tensor", no_wrap=True, max_width=_NAME_WIDTH, overflow="ellipsis")
    for heading in ("isolated", "cumulative"):
        table.add_column(heading, ratio=1)
        table.add_column("dB", justify="right", no_wrap=True)
    top = axis_top(errors.layers)
    size = math.ceil(len(errors.layers) / _PLOT_LINES)
    for start in range(0, len(errors.layers), size):
        neighbors = errors.layers[start : start + size]
        worst = min(neighbors, key=lambda layer: layer.isolated_db)
        others = f" +{len(neighbors) - 1}" if len(neighbors) > 1 else ""
        name = printable(worst.tensor)
        if len(name) + len(others) > _NAME_WIDTH:
            name = f"...{name[-(_NAME_WIDTH - len(others) - 3) :]}"
        table.add_row(
            f"{name}{others}",
            _bar(worst.isolated_db, top),
            _number(worst.isolated_db),
            _bar(worst.cumulative_db, top),
            _number(worst.cumulative_db),
        )
    return Constrain(table, _PLOT_WIDTH)


def layer_document(errors: LayerErrors) -> dict[str, Any]:
    """All errors, in the order of the graph, as plain values for JSON; infinite numbers are text."""
    document: dict[str, Any] = finite(asdict(errors))
    return document


def location(layer: LayerError) -> str:
    """Where a tensor is: the type of the op that makes it, or that reads the constant."""
    if layer.op_type is None:
        return "input"
    return printable(f"into {layer.op_type}" if layer.is_constant else layer.op_type)


def axis_top(layers: Sequence[LayerError]) -> float:
    """The end of the axis in dB: all that the network computes fits below it.

    Constants of many bits, such as biases, lose so little that they would flatten all the others.
    """
    computed = [layer for layer in layers if not layer.is_constant] or layers
    highest = max((layer.isolated_db for layer in computed if math.isfinite(layer.isolated_db)), default=0.0)
    return max(_AXIS_STEP * (math.floor(highest / _AXIS_STEP) + 1), _AXIS_STEP)


def _bar(value: float | None, top: float) -> Bar:
    return Bar(size=top, begin=0, end=min(max(value or 0.0, 0.0), top))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
