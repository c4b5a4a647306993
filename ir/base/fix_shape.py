"""How free dimensions are named, and how their lengths are given on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

_LONGEST = 2**63 - 1  # what ONNX can say of a length


def free_axes(name: str, shape: Iterable[int | str | None]) -> dict[int, str]:
    """The names of the free dimensions of an input by axis: ``x[0]`` is that of one without a name."""
    free = ((axis, size) for axis, size in enumerate(shape) if not isinstance(size, int))
    return {axis: size or f"{name}[{axis}]" for axis, size in free}


def named_length(text: str) -> tuple[str, int]:
    """What ``NAME=N`` says: a free dimension and its length; raises ValueError for other text."""
    name, _, number = text.rpartition("=")
    digits = number.lstrip("0")
    # They are counted first: Python reads no integer of thousands of them.
    is_short = number.isascii() and digits.isdecimal() and len(digits) <= len(str(_LONGEST))
    if not name or not is_short or int(digits) > _LONGEST:
        raise ValueError(f"{text!r} is not of the form NAME=N with N from 1 to {_LONGEST}")
    return name, int(digits)


def fix_shape_options(free: Mapping[str, str]) -> str:
    """The options that give free dimensions a length: 1 along the first axis, and one to fill in elsewhere.

    Args:
        free: the names of dimensions by where they are, such as ``x[0]``, which is the name of one without.
    """
    lengths = dict.fromkeys(free.values(), "LENGTH")
    lengths |= {name: "1" for place, name in free.items() if place.endswith("[0]")}
    return " ".join(f"--fix-shape {shlex.quote(f'{name}={length}')}" for name, length in lengths.items())
