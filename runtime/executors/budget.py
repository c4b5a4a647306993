"""How much memory statistics take while they are collected, and how to collect them with less."""

from __future__ import annotations

import math
from collections.abc import Mapping

from qc.ir.executor import Observation, Request

from ..statistics.tensor import BINS

# What the op gives back, the copy that the processor sees, and an exact sum.
_PRODUCT = 8 + 8 + 26


def features_of(request: Request) -> Request:
    """What is to be observed to know how many channels the features of a Gram matrix are made of."""
    name, observation = request
    return name, Observation(axis=1 if observation.patches is not None else observation.axis)


def bytes_of(observation: Observation, channels: int) -> int:
    """About how many bytes an observation takes, of a tensor with so many channels."""
    if observation.kind == "histogram":
        return 8 * BINS
    if observation.kind != "gram":
        return 256 * channels
    patches = observation.patches
    groups = patches.group if patches is not None else 1
    features = channels // groups * (math.prod(patches.kernel) if patches is not None else 1)
    return groups * _PRODUCT * features * (features + 1) // 2


def split_by_memory(sizes: Mapping[Request, int], memory: int) -> list[list[Request]]:
    """Divides requests, in their order, into parts of no more than ``memory`` bytes, or of a single one."""
    parts: list[list[Request]] = [[]]
    used = 0
    for request, size in sizes.items():
        if parts[-1] and used + size > memory:
            parts.append([])
            used = 0
        parts[-1].append(request)
        used += size
    return parts
