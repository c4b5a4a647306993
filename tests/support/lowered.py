"""Models lowered both ways: what ONNX Runtime computes is what the simulation does."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from qc.ir.model import Model
from qc.ir.quant.spec import Quantizer
from qc.passes import PassContext

from .models import random_feeds
from .pipelines import QUANTIZE, apply, artifact, check, run_model
from .placement import of_value

BOTH = f"{QUANTIZE},insert-qdq,to-simulation,to-encodings"


def assert_lowered_alike(model: ModelProto, target: str = "ort-cpu", pipeline: str = BOTH) -> Model:
    """Lowers a model both ways and compares what both compute; gives the compiled model."""
    feeds = random_feeds(model, 4)
    ir, context, _ = apply(pipeline, model, target, feeds)
    check(artifact(context, "qdq"))
    for feed in feeds:
        assert_same_results(context, feed)
    return ir


def assert_same_results(context: PassContext, feed: dict[str, np.ndarray]) -> None:
    """Compares the QDQ model with the simulation."""
    real, simulated = (run_model(artifact(context, name), feed) for name in ("qdq", "simulation"))
    for name, array in real.items():
        np.testing.assert_allclose(simulated[name], array, atol=1e-5)


def held(model: Model, *names: str) -> list[Quantizer]:
    """The quantizers that all readers of some values see."""
    found = [of_value(model, name) for name in names]
    return [quantizer for quantizer in found if quantizer is not None]
