"""What passes did and decided, for readers and for programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from qc.ir.errors import UsageError
from qc.ir.graph import Value
from qc.ir.journal import Remark


def remark_line(remark: Remark) -> str:
    """``insert-quantizers 12 place q3 'x': read by Conv 'c' [ort-cpu.toml, line 25]``."""
    return f"{remark.pass_name} {remark}".strip()


def select_remarks(remarks: Iterable[Remark], expression: str) -> list[Remark]:
    """The remarks whose line has a part that fits a regular expression.

    Raises:
        UsageError: the expression is not valid.
    """
    try:
        wanted = re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"--remarks: '{expression}' is not a regular expression: {error}") from error
    return [remark for remark in remarks if wanted.search(remark_line(remark))]


def remark_document(remark: Remark) -> dict[str, Any]:
    """A remark as plain values for JSON; what it does not have is left out."""
    about = "tensor" if isinstance(remark.about, Value) else "op"
    fields = {
        "number": remark.number or None,
        "pass": remark.pass_name or None,
        "kind": remark.kind,
        about: remark.about.name,
        "subject": remark.subject,
        "reason": remark.reason,
        "quantizer": remark.quantizer,
        "asked_by": remark.asked_by or None,
        "suggestion": remark.suggestion or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def count_by_rule(remarks: Iterable[Remark]) -> Counter[tuple[str, str, str]]:
    """How many remarks there are of each (pass, kind, rule); the rule is that of rewrites and matches."""
    return Counter((remark.pass_name, remark.kind, remark.rule) for remark in remarks)
