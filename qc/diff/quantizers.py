"""How the quantization of tensors differs, be it made of ops or of quantizers of the IR."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np

from qc.ir.errors import listed
from qc.ir.facts.qdq import Quantization
from qc.ir.graph import Value

from .pairs import ModelPair
from .result import ADDED, CHANGED, QUANTIZERS, REMOVED, Difference
from .wiring import Read, Wiring

_Key = tuple[Hashable, bool | None]


@dataclass
class _Grids:
    """The quantizations of one tensor by their grid, and who reads it through each of them."""

    quantizations: dict[_Key, Quantization] = field(default_factory=dict)
    users: dict[_Key, list[str]] = field(default_factory=dict)
    total: int = 0

    def add(self, read: Read, user: str) -> None:
        """Takes in one reading."""
        self.total += 1
        for one in read.quantizations:
            key = (one.grid, one.narrow)
            self.quantizations.setdefault(key, one)
            self.users.setdefault(key, []).append(user)

    def told(self, key: _Key) -> str:
        """One of the quantizations in words; with its users, if there are others."""
        users = self.users[key]
        told = quantization_text(self.quantizations[key])
        if len(users) == self.total:
            return told
        return f"{told}, for {listed(users, 1)} of {self.total} readers"

    def same(self, key: _Key) -> _Key | None:
        """The key here of a grid of another model; one that cannot tell whether it is narrow is either."""
        grid, narrow = key
        alike = (None, True, False) if narrow is None else (narrow, None)
        return next(((grid, other) for other in alike if (grid, other) in self.users), None)


def quantizer_differences(comparison: ModelPair) -> Iterator[Difference]:
    """Tensors whose quantization was added, removed or changed, then those that were tied or untied."""
    before, after = _grids_by_value(comparison.a), _grids_by_value(comparison.b)
    for value, grids in before.items():
        partner = comparison.alignment.values.get(value)
        yield from _compared(value.name, grids, after.pop(partner, _Grids()) if partner else _Grids())
    for value, grids in after.items():
        yield from _compared(comparison.name(value), _Grids(), grids)
    yield from _ties(comparison)


def quantization_text(one: Quantization) -> str:
    """``int8 symmetric, scale 0.0123, zero point 3``, or how many scales there are, and in which range."""
    encoding = one.encoding
    if encoding is None:
        return f"{one.spec}, not calibrated"
    if encoding.scale.ndim == 0:
        return f"{one.spec}, scale {float(encoding.scale):.6g}, zero point {int(encoding.zero_point)}"
    low, high = float(np.min(encoding.scale)), float(np.max(encoding.scale))
    return f"{one.spec}, {encoding.scale.size} scales {low:.6g} to {high:.6g}"


def _grids_by_value(wiring: Wiring) -> dict[Value, _Grids]:
    found: dict[Value, _Grids] = {}
    for scope in wiring.scopes.values():
        for op in scope.ops:
            for read in scope.reads[op]:
                if read is not None:
                    found.setdefault(read.value, _Grids()).add(read, op.label)
        for output, read in scope.outputs.items():
            found.setdefault(read.value, _Grids()).add(read, f"output '{output.name}'")
    return {value: grids for value, grids in found.items() if grids.users}


def _compared(name: str, before: _Grids, after: _Grids) -> Iterator[Difference]:
    kept = {key: same for key in before.users if (same := after.same(key)) is not None}
    gone = [key for key in before.users if key not in kept]
    new = [key for key in after.users if key not in kept.values()]
    changed = list(zip(gone, new, strict=False))
    for one, other in changed:
        detail = f"{before.told(one)} -> {after.told(other)}"
        yield Difference(CHANGED, QUANTIZERS, f"'{name}'", detail)
    for key in gone[len(changed) :]:
        yield Difference(REMOVED, QUANTIZERS, f"'{name}'", before.told(key))
    for key in new[len(changed) :]:
        yield Difference(ADDED, QUANTIZERS, f"'{name}'", after.told(key))
    for key, same in kept.items():
        old, now = len(before.users[key]), len(after.users[same])
        if old != now:
            detail = f"{quantization_text(before.quantizations[key])}: {old} readers -> {now}"
            yield Difference(CHANGED, QUANTIZERS, f"'{name}'", detail)


def _ties(comparison: ModelPair) -> Iterator[Difference]:
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
