"""What qc says about tensors that it treats otherwise than AIMET, and which tensors share a quantizer."""

from __future__ import annotations

import re

from qc.ir.model import Model

_DEFECT = re.compile(r"AIMET [^()]*\(([^()]*)\)")


def ties_of(model: Model) -> set[tuple[str, ...]]:
    """The names of tensors that share a quantizer, where several do."""
    held: dict[int, list[str]] = {}
    for site in model.quant.sites():
        quantizer = model.quant.get(site)
        if site.op is None and quantizer is not None:
            held.setdefault(quantizer.id, []).append(site.value.name)
    return {tuple(sorted(names)) for names in held.values() if len(names) > 1}


def defects_of(model: Model) -> dict[str, str]:
    """By tensor, the defects of AIMET that the remarks about it name.

    Of results that nobody reads AIMET leaves some out, and nothing depends on them.
    """
    found = {value.name: "unread" for value in model.graph.values() if not value.is_read}
    for remark in model.journal.remarks:
        names = _DEFECT.findall(remark.reason)
        if names and remark.about.name not in found:
            found[remark.about.name] = names[-1]
    return found
