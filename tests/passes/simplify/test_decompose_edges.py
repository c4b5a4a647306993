"""Ops in other ops at the ends of what numbers and attributes can be."""

from __future__ import annotations

import numpy as np
import pytest
from support.decomposed import types
from support.models import parse, random_feeds
from support.pipelines import run_model

import qc


@pytest.mark.parametrize("alpha", ["0.0", "-0.5"])
def test_a_celu_that_has_no_units_stays(alpha: str) -> None:
    model = parse(f"g (float[2, 3] x) => (float[2, 3] y) {{ y = Celu <alpha = {alpha}> (x) }}")
    assert types(qc.compile(model, "decompose-ops", target="qnn-htp").model) == ["Celu"]


def test_a_row_of_infinities_has_an_infinite_logarithm() -> None:
    """As rows have that a mask covers."""
    model = parse("""<ir_version: 8, opset_import: ["" : 18]>
    g (float[4, 3] x) => (float[4, 1] y) <int64[1] last = {-1}> { y = ReduceLogSumExp (x, last) }""")
    feed = random_feeds(model, 1)[0]
    feed["x"][0], feed["x"][1, :2], feed["x"][2, 0] = -np.inf, -np.inf, np.inf
    for pipeline in ("decompose-ops", "eliminate-identity,decompose-ops,eliminate-identity"):
        made = qc.compile(model, pipeline, target="qnn-htp", allow_unquantized=True).model
        assert "ReduceLogSumExp" not in types(made)
        np.testing.assert_allclose(run_model(made, feed)["y"], run_model(model, feed)["y"], rtol=1e-6)
        assert run_model(made, feed)["y"][[0, 2], 0].tolist() == [-np.inf, np.inf]
