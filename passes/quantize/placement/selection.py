"""Which ops and tensors of a model a rule selects."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from qc.ir.errors import UsageError, nearest
from qc.ir.facts.scopes import distinct_names, has_wildcard, tensors_by_name
from qc.ir.graph import Op, Value
from qc.ir.model import Model

from ..precision.rules import KINDS, Rule


@dataclass(frozen=True)
class Selection:
    """Ops in topological order, or float tensors in the order of the model; never both."""

    ops: tuple[Op, ...] = ()
    tensors: tuple[Value, ...] = ()


def select(model: Model, rule: Rule) -> Selection:
    """What a rule is for, in the main graph and in all bodies.

    Raises:
        UsageError: it selects nothing, with the most similar name, or names of different kinds.
    """
    kinds = [rule.kind] if rule.kind is not None else list(KINDS)
    names = {kind: _names(model, kind, rule.kind is not None) for kind in kinds}
    fitting = {kind: _fitting(rule, list(names[kind])) for kind in kinds}
    found = [kind for kind in kinds if fitting[kind]]
    if not found:
        what = KINDS[rule.kind] if rule.kind is not None else "op type, op, region or tensor"
        verb = "fits" if rule.regex else "is called"
        hint = _hint(rule, [name for kind in kinds for name in names[kind] if name])
        raise UsageError(f"{_place(rule)}no {what} of the model {verb} '{rule.name}'{hint}")
    if len(found) > 1:
        options = " or ".join(f"'{kind}:{rule.name}'" for kind in found)
        raise UsageError(f"{_place(rule)}'{rule.name}' is the name of several things; write {options}")
    chosen = dict.fromkeys(member for name in fitting[found[0]] for member in names[found[0]][name])
    if found[0] == "tensor":
        return Selection(tensors=tuple(value for value in chosen if isinstance(value, Value)))
    return Selection(ops=tuple(op for op in _ops(model) if op in chosen))


def _place(rule: Rule) -> str:
    return f"{rule.asked_by}: " if rule.asked_by else ""


def _hint(rule: Rule, names: list[str]) -> str:
    """What may be meant by a rule that selects nothing."""
    if rule.regex:
        parts = [found for name in names if (found := re.search(rule.name, name))]
        if parts:
            before = "" if any(found.start() == 0 for found in parts) else ".*"
            return f"; the expression has to fit whole names, as '{before}{rule.name}.*' does"
    elif has_wildcard(rule.name):
        pattern = re.escape(rule.name).replace(r"\*", ".*").replace(r"\?", ".")
        said = f"{rule.kind or 'op'}~{pattern}"
        return f"; a name has no wildcards, and '{said}' is a regular expression that fits several"
    same = [name for name in names if name.lower() == rule.name.lower()]
    if same:
        return f" (did you mean '{same[0]}'?)"
    return nearest(rule.name, names) or "; passes before may have removed it"


def _fitting(rule: Rule, names: list[str]) -> list[str]:
    fits: Callable[[str], object] = re.compile(rule.name).fullmatch if rule.regex else rule.name.__eq__
    return [name for name in names if name and fits(name)]


def _names(model: Model, kind: str, is_said: bool) -> dict[str, list[Op | Value]]:
    """All names of a kind, with what has them; ops without a name have one only where the kind is said."""
    found: dict[str, list[Op | Value]] = {}
    if kind == "tensor":
        graphs = set(model.graph.walk())
        for name, value in tensors_by_name(model).items():
            if value.is_float and value.graph in graphs:
                found[name] = [value]
        return found
    if kind == "region":
        for region in model.regions:
            found.setdefault(region.name, []).extend(region.ops)
        return found
    names = op_names(model) if kind == "op" and is_said else {}
    for op in _ops(model):
        found.setdefault(op.op_type if kind == "type" else names.get(op, op.name), []).append(op)
    return found


def op_names(model: Model) -> dict[Op, str]:
    """What rules call the ops of a model behind ``op:``; one without a name is called as its first result."""
    paths = distinct_names(model)

    def name(op: Op) -> str:
        first = next((value for value in op.outputs if value is not None), None)
        return op.name or (paths.get(first, first.name) if first is not None else "")

    return {op: name(op) for op in _ops(model)}


def _ops(model: Model) -> list[Op]:
    return [op for graph in model.graph.walk() for op in graph.ops()]
