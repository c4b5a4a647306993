"""Numbers and names in words."""

from __future__ import annotations

import math
from typing import Any


def count(number: int, noun: str) -> str:
    """``1 op``, ``2 ops``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def share_of(share: float, of: str) -> str:
    """``95.0% of the multiplications``; ``share`` is from 0 to 1."""
    return f"{share:.1%} of the {of}"


def file_size(size: int) -> str:
    """A number of bytes in words, in steps of 1000."""
    value, units = float(size), ["B", "KB", "MB", "GB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    digits = 1 if value < 99.95 and units[0] != "B" else 0
    return f"{value:.{digits}f} {units[0]}"


def decibels(sqnr: float) -> str:
    """A signal to quantization noise ratio in words."""
    return "equal" if sqnr == math.inf else f"{sqnr:.1f} dB"


def in_three_digits(number: float) -> str:
    """A number in three digits, without an exponent where it is large: ``0.0123``, ``1,010``."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:.3g}"


def milliseconds(seconds: float) -> str:
    """A time in three digits."""
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds * 1000:.0f} ms"


def printable(text: str) -> str:
    """Text with its control characters escaped: the name of a tensor must not steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def finite(value: Any) -> Any:
    """Plain values for JSON, in which infinite numbers and NaN are text."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
