"""Ops in other ops at the ends of what numbers and attributes can be."""

from __future__ import annotations

import pytest
from support.decomposed import types
from support.models import parse

import qc


@pytest.mark.parametrize("alpha", ["0.0", "-0.5"])
def test_a_celu_that_has_no_units_stays(alpha: str) -> None:
    model = parse(f"g (float[2, 3] x) => (float[2, 3] y) {{ y = Celu <alpha = {alpha}> (x) }}")
    assert types(qc.compile(model, "decompose-ops", target="qnn-htp").model) == ["Celu"]
