"""Ops that an option leaves in float, by their types and names."""

from __future__ import annotations

from collections.abc import Sequence

from qc.ir.errors import UsageError, nearest
from qc.ir.graph import Op
from qc.ir.model import Model

from .unit import Reason


def named_ops(model: Model, types: Sequence[str], names: Sequence[str], of_pass: str) -> dict[Op, Reason]:
    """The ops of some types, or of some names, with the option that names them.

    Raises:
        UsageError: no op has such a type, or such a name.
    """
    found: dict[Op, Reason] = {}
    ops = [op for graph in model.graph.walk() for op in graph.ops()]
    for option, kind, chosen in (("skip_ops", "op_type", types), ("skip_nodes", "name", names)):
        known = dict.fromkeys(getattr(op, kind) for op in ops)
        for word in chosen:
            if word not in known:
                raise UsageError(f"{option} names '{word}', which no op has{nearest(word, list(known))}")
        reason = Reason(f"{option} names it", f"option {option} of '{of_pass}'")
        found.update({op: reason for op in ops if getattr(op, kind) in chosen})
    return found
