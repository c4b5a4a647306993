"""What a candidate costs in a group: bits of weights, operations on bits, or time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .candidates import Candidate
from .groups import Group

# ``size``: bits of all weights; ``operations``: multiplications, each as bits of weight times bits of data;
# ``time``: what ops in float take longer than in integers, with the ops that quantize around them.
Cost = Literal["size", "operations", "time"]
UNITS: dict[Cost, str] = {
    "size": "bits of a weight",
    "operations": "bit operations",
    "time": "of the time in float",
}

_PARTS = 1_000_000
# Of two choices of one cost the one with fewer operations, or of these the one of fewer bits, is better.
_OTHER_SHARE = 0.01


def cost_table(
    groups: Sequence[Group], candidates: Sequence[Candidate], cost: Cost, extra: Sequence[float] = ()
) -> list[list[int]]:
    """The cost by group and candidate, in millionths of what all groups cost in the dearest candidates.

    To a hundredth another cost counts, too: without it, what has no weights would cost nothing by size.

    Args:
        groups, candidates: what there is to choose from.
        cost: what counts.
        extra: for ``time``, what each group takes longer in float.
    """
    sizes = _shares([[group.weights * one.weight_bits for one in candidates] for group in groups])
    operations = _shares([[group.operations * one.bit_operations for one in candidates] for group in groups])
    first, second = (sizes, operations) if cost == "size" else (operations, sizes)
    if cost == "time":
        first = _shares([[own if one.is_float else 0.0 for one in candidates] for own in extra])
        second = operations
    return [
        [round(_PARTS * (one + _OTHER_SHARE * other)) for one, other in zip(own, others, strict=True)]
        for own, others in zip(first, second, strict=True)
    ]


def _shares(costs: Sequence[Sequence[float]]) -> list[list[float]]:
    whole = sum(map(max, costs)) or 1
    return [[cost / whole for cost in own] for own in costs]
