"""Whether ops that are written in others compute what they did."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import ModelProto

from .models import random_feeds
from .pipelines import run_model


def agree(made: ModelProto, model: ModelProto, tolerance: float = 1e-5) -> None:
    """Both give the same numbers, in the same shapes, and the new one is well formed."""
    onnx.checker.check_model(made, full_check=True)
    for feed in random_feeds(model, 2):
        expected, found = run_model(model, feed), run_model(made, feed)
        for name, array in expected.items():
            assert found[name].shape == array.shape
            np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance)


def types(model: ModelProto) -> list[str]:
    """The op types of the main graph, in its order."""
    return [node.op_type for node in model.graph.node]
