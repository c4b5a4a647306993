"""Results that people look at: in a notebook as HTML, and printed, as the command line shows them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Shown:
    """What ``print`` and notebooks show of a result; its ``repr`` stays one for programmers."""

    def __str__(self) -> str:
        return str(_showing().as_text(self))

    def _repr_html_(self) -> str:
        return str(_showing().as_html(self))


def _showing() -> Any:
    """By its name, as what shows results stands above all that makes them."""
    return import_module("qc.report.showing")
