"""The grids that stored codes are read on."""

from __future__ import annotations

from collections.abc import Hashable

from ..graph import Value
from .constants import initializer
from .scopes import Scopes


def grids_of_codes(scopes: Scopes, codes: Value) -> frozenset[Hashable]:
    """The contents of scale and zero point of all DequantizeLinear ops that read a constant.

    Two grids are equal here if they are bit for bit; empty for what is no code.
    """
    readers = (op for op, port in scopes.uses(codes) if op.is_type("DequantizeLinear") and port == 0)
    return frozenset(tuple(map(_content, op.inputs[1:])) for op in readers)


def _content(parameter: Value | None) -> Hashable:
    const = initializer(parameter)
    return parameter if const is None else const.digest()
