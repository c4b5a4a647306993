"""How the quantization of tensors differs, be it made of ops or of quantizers of the IR."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np

from qc.ir.facts.roundings import Mark
from qc.ir.graph import Value

from .comparison import Comparison
from .result import ADDED, CHANGED, QUANTIZERS, REMOVED, Difference
from .wiring import Read, Wiring


@dataclass
class _Marks:
    """The roundings of one tensor by their grid, and who reads it through each of them."""

    marks: dict[Hashable, Mark] = field(default_factory=dict)
    readers: dict[Hashable, list[str]] = field(default_factory=dict)
    total: int = 0

    def add(self, read: Read, reader: str) -> None:
        """Takes in one reading."""
        self.total += 1
        for mark in read.marks:
            self.marks.setdefault(mark.grid, mark)
            self.readers.setdefault(mark.grid, []).append(reader)

    def told(self, grid: Hashable) -> str:
        """One of the roundings in words; with its readers, if there are others."""
        readers = self.readers[grid]
        told = mark_text(self.marks[grid])
        if len(readers) == self.total:
            return told
        more = f" and {len(readers) - 1} more" if len(readers) > 1 else ""
        return f"{told}, for {readers[0]}{more} of {self.total} readers"


def quantizer_differences(comparison: Comparison) -> Iterator[Difference]:
    """Tensors whose quantization was added, removed or changed, then those that were tied or untied."""
    before, after = _marks_by_value(comparison.a), _marks_by_value(comparison.b)
    for value, marks in before.items():
        partner = comparison.alignment.values.get(value)
        yield from _compared(value.name, marks, after.pop(partner, _Marks()) if partner else _Marks())
    for value, marks in after.items():
        yield from _compared(comparison.name(value), _Marks(), marks)
    yield from _ties(comparison)


def mark_text(mark: Mark) -> str:
    """``int8 symmetric, scale 0.0123, zero point 3``, or how many scales there are, and in which range."""
    encoding = mark.encoding
    if encoding is None:
        return f"{mark.spec}, not calibrated"
    if encoding.scale.ndim == 0:
        return f"{mark.spec}, scale {float(encoding.scale):.6g}, zero point {int(encoding.zero_point)}"
    low, high = float(np.min(encoding.scale)), float(np.max(encoding.scale))
    return f"{mark.spec}, {encoding.scale.size} scales {low:.6g} to {high:.6g}"


def _marks_by_value(wiring: Wiring) -> dict[Value, _Marks]:
    found: dict[Value, _Marks] = {}
    for scope in wiring.scopes.values():
        for op in scope.ops:
            for read in scope.reads[op]:
                if read is not None:
                    found.setdefault(read.value, _Marks()).add(read, op.label)
        for output, read in scope.results.items():
            found.setdefault(read.value, _Marks()).add(read, f"output '{output.name}'")
    return {value: marks for value, marks in found.items() if marks.marks}


def _compared(name: str, before: _Marks, after: _Marks) -> Iterator[Difference]:
    gone = [grid for grid in before.marks if grid not in after.marks]
    new = [grid for grid in after.marks if grid not in before.marks]
    changed = list(zip(gone, new, strict=False))
    for one, other in changed:
        detail = f"{before.told(one)} -> {after.told(other)}"
        yield Difference(CHANGED, QUANTIZERS, f"'{name}'", detail)
    for grid in gone[len(changed) :]:
        yield Difference(REMOVED, QUANTIZERS, f"'{name}'", before.told(grid))
    for grid in new[len(changed) :]:
        yield Difference(ADDED, QUANTIZERS, f"'{name}'", after.told(grid))
    for grid in before.marks:
        old, now = len(before.readers[grid]), len(after.readers.get(grid, ()))
        if now and old != now:
            detail = f"{mark_text(before.marks[grid])}: {old} readers -> {now}"
            yield Difference(CHANGED, QUANTIZERS, f"'{name}'", detail)


def _ties(comparison: Comparison) -> Iterator[Difference]:
    before = _tied(comparison.a)
    after = {
        frozenset(comparison.alignment.values_back.get(value, value) for value in tie): tie
        for tie in _tied(comparison.b)
    }
    known = {frozenset(tie) for tie in before}
    for tie in before:
        if frozenset(tie) not in after and len(comparison.b.model.quant):  # ops cannot tell of ties
            yield Difference(REMOVED, QUANTIZERS, "tie", ", ".join(f"'{value.name}'" for value in tie))
    for key, tie in after.items():
        if key not in known:
            names = ", ".join(f"'{comparison.name(value)}'" for value in tie)
            yield Difference(ADDED, QUANTIZERS, "tie", names)


def _tied(wiring: Wiring) -> list[tuple[Value, ...]]:
    """The tensors that hold one quantizer of the IR."""
    table = wiring.model.quant
    found = (
        tuple(dict.fromkeys(site.value for site in table.sites_of(quantizer)))
        for quantizer in table.quantizers()
    )
    return [tie for tie in found if len(tie) > 1]
