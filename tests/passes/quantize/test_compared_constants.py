"""Data that is compared with a constant has one grid with it, so that what is equal in float stays equal."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse

import qc
from qc.runtime import OpenModel

TEXT = """
    prompts (float[1, 6] labels, float[1, 6] points) => (float[1, 6] y) <float[6, 6] w> {
        none = Constant <value = float {NUMBER}> ()
        is_none = Equal (ORDER)
        nothing = Constant <value = float {0.0}> ()
        kept = Where (is_none, nothing, points)
        shown = Add (kept, labels)
        y = MatMul (shown, w)
    }
"""


@pytest.mark.parametrize("pipeline", ["w8a8", "w8a16"])
@pytest.mark.parametrize("order", ["labels, none", "none, labels"])
@pytest.mark.parametrize("number", ["-1.0", "0.0", "5.0", "-3.0"])
def test_equal_finds_what_it_finds_in_float(number: str, order: str, pipeline: str) -> None:
    """Numbers at the end of the data's range, within it, and beyond it, where no data is."""
    model = parse(TEXT.replace("NUMBER", number).replace("ORDER", order))
    rng = np.random.default_rng(0)
    feeds = [
        {
            "labels": rng.integers(-1, 2, (1, 6)).astype(np.float32),
            "points": np.float32(rng.random((1, 6)) + 1),
        }
        for _ in range(8)
    ]
    made = qc.compile(model, pipeline, target="qnn-htp", data=feeds).model
    assert "Equal" in {node.op_type for node in made.graph.node}
    exact, quantized = OpenModel(model), OpenModel(made)
    for feed in feeds:
        np.testing.assert_allclose(quantized.run(feed)["y"], exact.run(feed)["y"], atol=0.15)
