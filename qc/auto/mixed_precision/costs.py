"""What a candidate costs in a group: bits of weights, or operations on bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from .candidates import Candidate
from .groups import Group

# ``size``: bits of all weights; ``operations``: multiplications, each as bits of weight times bits of data.
Cost = Literal["size", "operations"]
COSTS: tuple[str, ...] = get_args(Cost)

_PARTS = 1_000_000
# Of two choices of one size the one with fewer operations is better, and the other way round.
_OTHER_SHARE = 0.01


def cost_table(groups: Sequence[Group], candidates: Sequence[Candidate], cost: Cost) -> list[list[int]]:
    """The cost by group and candidate, in millionths of what all groups cost in the dearest candidates.

    To a hundredth the other cost counts, too: without it, what has no weights would cost nothing by size.
    """
    sizes = _shares([[group.weights * one.weight_bits for one in candidates] for group in groups])
    operations = _shares([[group.operations * one.bit_operations for one in candidates] for group in groups])
    first, second = (sizes, operations) if cost == "size" else (operations, sizes)
    return [
        [round(_PARTS * (one + _OTHER_SHARE * other)) for one, other in zip(own, others, strict=True)]
        for own, others in zip(first, second, strict=True)
    ]


def _shares(costs: list[list[int]]) -> list[list[float]]:
    whole = max(1, sum(map(max, costs)))
    return [[cost / whole for cost in own] for own in costs]
