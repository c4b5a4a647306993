"""What ops tell of a shape with a free length beside becomes a constant, as these ops compute it."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import parse
from support.pipelines import apply, run_model

from qc.ir.onnx.lower import lower


@pytest.mark.parametrize(
    "told",
    [
        "s = Size(x) i = Identity(s) f = Cast<to = 1>(i) y = Div(x, f)",
        "s = Shape(x) c = Cast<to = 9>(s) f = Cast<to = 1>(c) g = Gather(f, one) y = Div(x, g)",
        "s = Shape(x) c = Cast<to = 10>(s) f = Cast<to = 1>(c) g = Gather(f, one) y = Div(x, g)",
    ],
    ids=["how many numbers", "whether there are any", "rounded"],
)
def test_what_is_told_of_a_shape_is_what_its_ops_make_of_it(told: str) -> None:
    """With a free length beside, which keeps it from being computed as a constant."""
    model = parse(f"g (float[N, 2049] x) => (float[N, 2049] y) <int64 one = {{1}}> {{ {told} }}")
    ir, _, _ = apply("fold-constants", model)
    feed = {"x": np.ones((2, 2049), np.float32)}
    np.testing.assert_array_equal(run_model(lower(ir), feed)["y"], run_model(model, feed)["y"])
