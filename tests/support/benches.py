"""Modules of the folder ``benches``, which is not installed."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from .folders import ROOT

_BENCHES = str(ROOT / "benches")


def import_bench(name: str) -> ModuleType:
    """A module by its name, such as ``models.networks``."""
    sys.path.insert(0, _BENCHES)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(_BENCHES)
