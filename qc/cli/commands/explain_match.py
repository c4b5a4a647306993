"""Tell why a supergroup is found, or how far it fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text

import qc
from qc.ir.errors import listed
from qc.ir.graph import Op
from qc.near_matches import Explanation, explain, named_supergroups
from qc.options import argument, option
from qc.passes.framework.target import load_target
from qc.patterns import Match, Mismatch
from qc.rendering.terminal import Fact, facts_grid
from qc.rendering.words import count, printable

from ..command import Command
from ..output import standard_output

_SHOWN = 3
_SHOWN_OPS = 12


@dataclass(frozen=True, kw_only=True)
class ExplainMatch(Command):
    """Tells where SUPERGROUP is in MODEL.onnx, or how far the best attempts got and what they expected there.

    NODE is the name of an op or of one of its outputs: then only what that op is part of counts.

    Examples:
        qc explain-match model.onnx layer_norm norm1
    """

    model: str = argument("MODEL.onnx")
    supergroup: str = argument("SUPERGROUP")
    node: str | None = argument("[NODE]", None)
    target: str | None = option(None, "Target whose own supergroups can be named, too.", metavar="NAME|FILE")

    def run(self) -> None:
        target = load_target(self.target) if self.target is not None else None
        groups = named_supergroups(self.supergroup, target)
        explanation = explain(qc.read_model(self.model), groups, self.node)
        standard_output().show(facts_grid(_facts(self.supergroup, explanation)))


def _facts(name: str, explanation: Explanation) -> Iterator[Fact]:
    yield "supergroup", Group(name, Text(explanation.groups[0].doc, "dim"))
    matches, attempts = explanation.matches, explanation.attempts
    if matches:
        shown = [_match(match) for match in matches[:_SHOWN]]
        yield "found", Group(count(len(matches), "time"), *shown, *_rest(len(matches)))
    else:
        yield "found", "nowhere"
    if attempts:
        yield "nearest", Group(*_mismatch(attempts[0]))
        for attempt in attempts[1:_SHOWN]:
            yield "", Group(*_mismatch(attempt))
    elif not matches:
        yield "nearest", "no op comes near: less than half of it fits anywhere"


def _match(match: Match) -> Text:
    return Text(printable(f"at {match.root.label}: {_listed(match.ops)}"))


def _mismatch(attempt: Mismatch) -> Iterator[Text]:
    fitting = f", {_listed(attempt.ops)}" if attempt.ops else ""
    yield Text(printable(f"at {attempt.root.label}: {attempt.extent}{fitting}"))
    yield Text(printable(f"  {attempt.reason}"))


def _listed(ops: tuple[Op, ...]) -> str:
    return listed([op.label for op in ops], _SHOWN_OPS)


def _rest(number: int) -> list[str]:
    return [f"and {number - _SHOWN} more"] if number > _SHOWN else []
