"""What every pass must keep: the outputs, the names, determinism, and a model that needs it no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import ModelProto
from support.graphs import float_models
from support.models import random_feeds
from support.pipelines import QUANTIZE, apply, artifact, check, run_model
from support.properties import check_pass, interface, prefixes

from qc.ir.model import Model
from qc.ir.onnx.lower import lower, serialize
from qc.passes import Pass, Stage, registry

FLOAT_PASSES = [cls.name for cls in registry() if cls.stage is Stage.FLOAT]
few = settings(
    max_examples=settings.default.max_examples // 2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("cls", list(registry()), ids=lambda cls: cls.name)
@few
@given(model=float_models())
def test_what_a_pass_claims_on_random_graphs(
    cls: type[Pass], tmp_path_factory: pytest.TempPathFactory, model: ModelProto
) -> None:
    feed = random_feeds(model, 1)[0]
    for prefix in prefixes(cls):
        check_pass(cls, prefix, model, feed, tmp_path_factory.mktemp("encodings"))


@few
@given(model=float_models())
def test_float_passes_are_deterministic(model: ModelProto) -> None:
    pipeline = ",".join(FLOAT_PASSES)
    feeds = random_feeds(model, 1)
    first, second = (apply(pipeline, model, feeds=feeds)[0] for _ in range(2))
    check(lower(first))
    assert serialize(lower(first)) == serialize(lower(second))


PIPELINES = {
    "w8a8": QUANTIZE,
    "w8a16": QUANTIZE.replace("insert-quantizers", "insert-quantizers{activation=uint16}"),
    "w4a8": QUANTIZE.replace("insert-quantizers", "insert-quantizers{weight=int4}"),
    "blocks": QUANTIZE.replace("per-channel", "per-channel{block_size=2}"),
}


def step(ir: Model, output: str) -> float:
    """The step of the grid of an output; 0 if it has none."""
    value = ir.graph.value_named(output)
    quantizer = ir.quant.of_value(value) if value is not None else None
    return (
        float(quantizer.encoding.scale) if quantizer is not None and quantizer.encoding is not None else 0.0
    )


@pytest.mark.parametrize("target", ["ort-cpu", "npu"])
@pytest.mark.parametrize("name", PIPELINES)
@few
@given(model=float_models())
def test_the_simulation_is_what_onnx_runtime_computes(name: str, target: str, model: ModelProto) -> None:
    feeds = random_feeds(model)
    ir, context, _ = apply(f"{PIPELINES[name]},insert-qdq,to-simulation", model, target, feeds)
    qdq, simulation = artifact(context, "qdq"), artifact(context, "simulation")
    check(qdq)
    assert interface(qdq) == interface(model)
    expected = run_model(model, feeds[0])
    real, simulated = run_model(qdq, feeds[0]), run_model(simulation, feeds[0])
    for output, array in real.items():
        scale = float(np.abs(expected[output]).max(initial=1.0))
        np.testing.assert_allclose(simulated[output], array, rtol=1e-4, atol=step(ir, output) + 1e-5 * scale)
