"""What ops cost on a target, as measured numbers: the part of a target file that placement weighs by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from qc.ir.errors import nearest

from .target_rules import Strict

# What the time of a kernel grows with.
QUANTITIES = {
    "op": "once for each op",
    "product": "multiplications with accumulation; of a pool, numbers that it averages",
    "padded": "the same with channels rounded up to whole vectors",
    "ragged": "multiplications if the channels do not fill vectors",
    "tail": "multiplications in the channels that are left over by vectors of half the length",
    "patch": "numbers that a convolution gathers for its products",
    "group": "positions of the result, for each group of channels",
    "window": "places of the kernel over all positions of the result",
    "row": "the same, where places side by side, without dilation, count as one",
    "channel": "channels of the result",
    "read": "numbers of the data that is read",
    "made": "numbers of the result",
    "weight": "numbers of the weight",
    "single": "numbers of a Concat, where pieces have a single one between two of others",
    "layout": "numbers that a convolution of two spatial axes has in an order of its own",
}

Amounts = Mapping[str, float]


def _checked(costs: dict[str, float]) -> dict[str, float]:
    for quantity, each in costs.items():
        if quantity not in QUANTITIES:
            raise ValueError(f"'{quantity}' is no quantity{nearest(quantity, list(QUANTITIES))}")
        if not each >= 0:
            raise ValueError(f"the cost of '{quantity}' is {each}, and must not be negative")
    return costs


Nanoseconds = Annotated[dict[str, float], AfterValidator(_checked)]


class KernelCosts(Strict):
    """The nanoseconds that one thread takes for each quantity of a kind of op, in floats and in integers."""

    floats: Nanoseconds
    integers: Nanoseconds


class Costs(Strict):
    """What a target takes for its kernels, and for the ops between floats and integers.

    Attributes:
        lanes: the numbers in a vector.
        free_length: the length that a free dimension counts with; the first one of an input counts as 1.
        unnoticed: microseconds of a run that nobody notices: integers that cost no more in all may stay.
        tolerated: the same of a model that is slower in integers than in floats as a whole.
        quick: the share of the time in floats up to which a model is clearly quicker in integers, so that
            nothing is left in float for its time.
        quantize, dequantize: nanoseconds by quantity of these ops.
        kernels: by kind of op, see :func:`qc.passes.quantize.placement.work.work_of`. What is not listed is
            as quick in integers as in floats.
    """

    lanes: int = Field(16, ge=1)
    free_length: int = Field(64, ge=1)
    unnoticed: float = Field(0.0, ge=0.0)
    tolerated: float = Field(0.0, ge=0.0)
    quick: float = Field(0.0, ge=0.0)
    quantize: Nanoseconds
    dequantize: Nanoseconds
    kernels: dict[str, KernelCosts]


def nanoseconds(costs: Nanoseconds, amounts: Amounts) -> float:
    """The estimated time of a kernel that works on such amounts."""
    return sum(each * amounts.get(quantity, 0) for quantity, each in costs.items())
