"""How lengths of free dimensions are given on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping


def fix_shape_options(free: Mapping[str, str]) -> str:
    """The options that give free dimensions a length: 1 along the first axis, and one to fill in elsewhere.

    Args:
        free: the names of dimensions by where they are, such as ``x[0]``, which is the name of one without.
    """
    lengths = dict.fromkeys(free.values(), "LENGTH")
    lengths |= {name: "1" for place, name in free.items() if place.endswith("[0]")}
    return " ".join(f"--fix-shape {shlex.quote(f'{name}={length}')}" for name, length in lengths.items())
