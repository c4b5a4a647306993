"""The charts that AIMET-ONNX writes as pages: lines over layers, ranges of tensors, and histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qc.ir.base.files import atomic_write
from qc.rendering.html import page

_WIDTH, _HEIGHT = 1100, 360  # pixels
_LEFT, _RIGHT, _ABOVE, _BELOW = 76, 16, 12, 26
_TICKS = 6


@dataclass(frozen=True)
class _Axis:
    """Where numbers from ``low`` to ``high`` are, from pixel ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, numbers: Sequence[float] | np.ndarray, start: float, end: float) -> _Axis:
        """One that all finite numbers are on."""
        finite = [float(number) for number in numbers if math.isfinite(number)] or [0.0]
        low, high = min(finite), max(finite)
        return cls(low, high if high > low else low + 1.0, start, end)

    def at(self, number: float) -> str:
        """Where a number is; what is not finite is at the end."""
        inside = min(max(number, self.low), self.high) if not math.isnan(number) else self.high
        return f"{self.start + (self.end - self.start) * (inside - self.low) / (self.high - self.low):.1f}"

    def ticks(self) -> list[tuple[str, str]]:
        """Some round numbers, and where they are."""
        rough = (self.high - self.low) / _TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        numbers = [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [(f"{number:.6g}", self.at(number)) for number in numbers]


def write_line(path: Path, title: str, values: Mapping[str, float], label: str) -> None:
    """One number for each layer, in their order; the axis begins at zero, or below."""
    x = _Axis(0, max(len(values) - 1, 1), _LEFT, _WIDTH - _RIGHT)
    y = _Axis.over([0.0, *values.values()], _HEIGHT - _BELOW, _ABOVE)
    marks = [(x.at(i), y.at(value), f"{name}: {value:.6g}") for i, (name, value) in enumerate(values.items())]
    rows = [(name, f"{value:.6g}") for name, value in values.items()]
    _write(path, title, y, marks=marks, line=_points(marks), head=("layer", label), rows=rows)


def write_ranges(path: Path, title: str, ranges: Mapping[str, tuple[float, float]]) -> None:
    """A bar from the lowest to the highest number of each grid."""
    x = _Axis(-0.5, len(ranges) - 0.5, _LEFT, _WIDTH - _RIGHT)
    y = _Axis.over(np.array([0.0, *np.ravel(list(ranges.values()))]), _HEIGHT - _BELOW, _ABOVE)
    bars = [
        (x.at(i), y.at(low), y.at(high), f"{name}: {low:.6g} to {high:.6g}")
        for i, (name, (low, high)) in enumerate(ranges.items())
    ]
    rows = [(name, f"{low:.6g}", f"{high:.6g}") for name, (low, high) in ranges.items()]
    _write(path, title, y, bars=bars, head=("tensor", "lowest", "highest"), rows=rows)


def write_histogram(
    path: Path, title: str, histogram: Sequence[tuple[float, float]], low: float, high: float
) -> None:
    """The share of the numbers in each bin over its lower border, and the ends of the grid."""
    edges, shares = zip(*histogram, strict=True)
    x = _Axis.over([*edges, low, high], _LEFT, _WIDTH - _RIGHT)
    y = _Axis.over([0.0, *shares], _HEIGHT - _BELOW, _ABOVE)
    outline = [(x.at(edge), y.at(share), "") for edge, share in histogram]
    ends = [(x.at(low), f"lowest of the grid: {low:.6g}"), (x.at(high), f"highest of the grid: {high:.6g}")]
    _write(path, title, y, line=_points(outline), ends=ends, below=x.ticks())


def _points(marks: Sequence[tuple[str, str, str]]) -> str:
    return " ".join(f"{x},{y}" for x, y, _ in marks)


def _write(path: Path, title: str, y: _Axis, **parts: Any) -> None:
    empty: dict[str, Any] = {
        "line": "",
        "marks": (),
        "bars": (),
        "ends": (),
        "below": (),
        "head": (),
        "rows": (),
    }
    box = {"width": _WIDTH, "height": _HEIGHT, "left": _LEFT, "right": _WIDTH - _RIGHT, "top": _ABOVE}
    values = {**empty, **box, "bottom": _HEIGHT - _BELOW, "levels": y.ticks(), **parts}
    text = page("compat/aimet_onnx/chart.html", title=title, **values)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(text.encode())
