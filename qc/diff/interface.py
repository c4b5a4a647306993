"""How the outsides of two models differ: format, opsets, inputs, outputs, functions, metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qc.ir.graph import Value
from qc.ir.model import Model

from .alignment import corresponding
from .pairs import GraphPair, ModelPair, function_label
from .result import ADDED, CHANGED, INTERFACE, MODEL, REMOVED, Difference


def interface_differences(comparison: ModelPair) -> Iterator[Difference]:
    """The differences of the models as wholes, then of what their graphs take and give."""
    yield from _model_differences(comparison.a.model, comparison.b.model)
    for pair in comparison.scopes:
        yield from _given(pair, pair.a.graph.inputs, pair.b.graph.inputs, "input")
        yield from _given(pair, pair.a.graph.outputs, pair.b.graph.outputs, "output")


def _model_differences(a: Model, b: Model) -> Iterator[Difference]:
    facts_a, facts_b = _facts(a), _facts(b)
    for name in dict.fromkeys((*facts_a, *facts_b)):
        before, after = facts_a.get(name), facts_b.get(name)
        if before is None:
            yield Difference(ADDED, MODEL, name, after or "")
        elif after is None:
            yield Difference(REMOVED, MODEL, name, before)
        elif before != after:
            yield Difference(CHANGED, MODEL, name, f"{before} -> {after}")


def _facts(model: Model) -> Mapping[str, str]:
    facts = {"IR version": str(model.origin.ir_version)}
    for domain, version in sorted(model.opset_imports.items()):
        facts[f"opset {domain}".strip()] = str(version)
    for key in model.functions:
        facts[f"function {function_label(key)}"] = ""
    for entry in model.origin.metadata_props:
        facts[f"metadata '{entry.key}'"] = repr(entry.value)
    return facts


def _given(
    pair: GraphPair, a: Sequence[Value | None], b: Sequence[Value | None], role: str
) -> Iterator[Difference]:
    """Inputs or outputs that came, went or, for the main graph, changed."""
    pairs = corresponding(a, b, pair.by_position)
    for before, after in pairs:
        if before is None and after is not None:
            yield Difference(ADDED, INTERFACE, f"{role} '{after.name}'", _described(after), pair.label)
        elif before is not None and after is None:
            yield Difference(REMOVED, INTERFACE, f"{role} '{before.name}'", _described(before), pair.label)
        elif before is not None and after is not None and not pair.by_position:
            old, new = (before.name, _described(before)), (after.name, _described(after))
            changes = [f"{one} -> {other}" for one, other in zip(old, new, strict=True) if one != other]
            if changes:
                yield Difference(CHANGED, INTERFACE, f"{role} '{before.name}'", "; ".join(changes))
    kept = {after: None for before, after in pairs if before is not None and after is not None}
    if not pair.by_position and list(kept) != [value for value in b if value in kept]:
        names = ", ".join(f"'{value.name}'" for value in b if value is not None)
        yield Difference(CHANGED, INTERFACE, f"order of the {role}s", f"is {names}")


def _described(value: Value) -> str:
    return f"{value.type}{' with a default' if value.const is not None else ''}"
