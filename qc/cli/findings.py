"""What ``qc bisect`` found, for readers and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from qc.ir.errors import listed
from qc.rendering.remarks import remark_document
from qc.rendering.terminal import Fact
from qc.rendering.words import count, finite
from qc.search import Finding, Oracle, OracleVerdict, QuantizerFacts

_SHOWN_SITES = 4


def finding_facts(finding: Finding) -> Iterator[Fact]:
    """The finding, one fact below the other."""
    first, *others = finding.suspects
    if others:
        yield "first bad", f"one of the actions {first.number} to {others[-1].number} of {finding.actions}"
        for remark in finding.suspects:
            yield "", remark.title
        return
    yield "first bad", f"action {first.number} of {finding.actions}"
    yield "pass", first.pass_name
    yield "did", f"{first.kind} {first.subject}"
    yield "reason", first.reason + (f" [{first.asked_by}]" if first.asked_by else "")
    if finding.quantizer is not None:
        yield from _quantizer_facts(finding.quantizer)
    if finding.without is not None:
        yield "without it", f"{finding.without}, all other quantizers on"
    elif first.quantizer is not None:
        yield "quantizer", f"q{first.quantizer} is not part of the whole result"
    if finding.best_removal is not None:
        removal = finding.best_removal
        yield "helps most", f"to turn off q{removal.quantizer.number} alone: {removal.verdict}"
        yield from _quantizer_facts(removal.quantizer)
    if finding.removals:
        yield "tried", f"{count(finding.removals, 'quantizer')}, each turned off alone"


def _quantizer_facts(quantizer: QuantizerFacts) -> Iterator[Fact]:
    yield "quantizer", f"q{quantizer.number} {quantizer.spec}"
    yield "at", listed(quantizer.sites, _SHOWN_SITES)
    if quantizer.scale:
        yield "range", f"{min(quantizer.minimum):.6g} to {max(quantizer.maximum):.6g}"
        yield "scale", f"{_span(quantizer.scale)}, zero point {_span(quantizer.zero_point)}"


def _span(numbers: Sequence[float]) -> str:
    """One number, or the lowest and the highest of several."""
    low, high = f"{min(numbers):.6g}", f"{max(numbers):.6g}"
    return low if low == high else f"{low} to {high}"


def finding_document(model: str, oracle: Oracle, finding: Finding) -> dict[str, Any]:
    """The finding as plain values for JSON; infinite numbers and NaN, which it lacks, are text."""
    best = finding.best_removal
    document: dict[str, Any] = {
        "model": model,
        "oracle": str(oracle),
        "actions": finding.actions,
        "probes": [{"limit": probe.limit, **_verdict(probe.verdict)} for probe in finding.probes],
        "suspects": [remark_document(remark) for remark in finding.suspects],
        "quantizer": _quantizer(finding.quantizer) if finding.quantizer is not None else None,
        "without": _verdict(finding.without) if finding.without is not None else None,
        "best_removal": (
            {"quantizer": _quantizer(best.quantizer), **_verdict(best.verdict)} if best is not None else None
        ),
        "removals": finding.removals,
    }
    return cast(dict[str, Any], finite(document))


def _verdict(verdict: OracleVerdict) -> dict[str, Any]:
    return {
        "verdict": verdict.outcome.value,
        "grounds": verdict.words,
        "value": verdict.value,
    }


def _quantizer(facts: QuantizerFacts) -> dict[str, Any]:
    return {
        "number": facts.number,
        "sites": list(facts.sites),
        "spec": facts.spec,
        "scale": list(facts.scale),
        "zero_point": list(facts.zero_point),
        "minimum": list(facts.minimum),
        "maximum": list(facts.maximum),
    }
