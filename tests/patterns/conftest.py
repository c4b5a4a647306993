"""Small graphs for the tests of patterns, written in ONNX's text form."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.graph_text import build

from qc.ir.graph import Graph

GraphOf = Callable[..., Graph]


@pytest.fixture
def graph_of() -> GraphOf:
    """The function that builds a graph."""
    return build
