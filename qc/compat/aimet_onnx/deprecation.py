"""Warnings where AIMET warns: what is named there still works, and will not for ever."""

from __future__ import annotations

import warnings


def warn_deprecated(what: str, instead: str, depth: int = 3) -> None:
    """Warns of something that has a successor.

    Args:
        what: what was used.
        instead: what to use.
        depth: of the call to blame, counted from this function.
    """
    warnings.warn(f"{what} is deprecated; use {instead}", DeprecationWarning, stacklevel=depth)
