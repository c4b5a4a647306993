"""Data that is scaled or shifted by constants, which devices do where they compute it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from qc.ir.facts.scopes import Scopes
from qc.ir.graph import Value
from qc.ir.tensor_ref import TensorRef


class _Read(Protocol):
    @property
    def value(self) -> Value: ...


def scaled_alone(read: Iterable[_Read], scopes: Scopes) -> Value | None:
    """The one tensor of data among what an op reads, if constants fit that and nothing else reads it.

    A constant fits that is one number, or one for each channel.
    """
    values = [one.value for one in read]
    data = [value for value in values if value.original.const is None]
    constants = [const for value in values if (const := value.original.const) is not None]
    if len(data) != 1 or not constants or not all(map(_is_of_channels, constants)):
        return None
    alone = len(list(scopes.uses(data[0]))) == 1 and not scopes.leaves(data[0]) and data[0].captured is None
    return data[0] if alone else None


def _is_of_channels(const: TensorRef) -> bool:
    return sum(length != 1 for length in const.shape) <= 1
