"""Classes of the style sheet, which has the colours: of number formats and of regions."""

from __future__ import annotations

import re
from collections.abc import Iterable

_REGION_COLOURS = 8
_FORMAT = re.compile(r"(u?)int(\d+)")


def format_class(format: str) -> str:
    """The class of a number format; ``float`` for what is not quantized."""
    if not format:
        return "float"
    match = _FORMAT.fullmatch(format)
    if match is None:
        return "small-float"
    bits, unsigned = int(match[2]), bool(match[1])
    if bits <= 4:
        return "bits-4"
    if bits <= 8:
        return "bits-8u" if unsigned else "bits-8"
    return "bits-16" if bits <= 16 else "bits-32"


def region_classes(names: Iterable[str]) -> dict[str, str]:
    """A class for each name of a region, in the order of the names; there are only so many colours."""
    ordered = dict.fromkeys(names)
    return {name: f"region-{position % _REGION_COLOURS}" for position, name in enumerate(ordered)}
