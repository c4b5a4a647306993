"""Models after passes that rewrite the float graph."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from qc.ir.onnx.lower import lower

from .models import random_feeds
from .pipelines import apply, check, run_model


def simplified(pipeline: str, model: ModelProto, changed: bool = True) -> ModelProto:
    """The model after a pipeline, after checking that the outputs stayed as they were."""
    ir, _, report = apply(pipeline, model)
    lowered = lower(ir)
    check(lowered)
    assert bool(report.actions) == changed
    for feed in random_feeds(model):
        expected = run_model(model, feed)
        for name, array in run_model(lowered, feed).items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-4)
    return lowered


def kinds(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]
