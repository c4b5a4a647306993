"""What every pass must keep: the outputs, the names, determinism, and a model that needs it no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import ModelProto
from support.graphs import float_models
from support.models import random_feeds
from support.pipelines import QUANTIZE, apply, artifact, check, run_model

from qc.ir.lower import lower, serialize
from qc.ir.model import Model
from qc.ir.text import print_model
from qc.passes import Stage, registry

TESTS = Path(__file__).parents[1]
FLOAT_PASSES = [cls.name for cls in registry() if cls.stage is Stage.FLOAT]
few = settings(
    max_examples=settings.default.max_examples // 2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def interface(model: ModelProto) -> list[bytes]:
    return [info.SerializeToString() for info in (*model.graph.input, *model.graph.output)]


@pytest.mark.parametrize("name", FLOAT_PASSES)
@few
@given(model=float_models())
def test_float_passes_keep_the_outputs(name: str, model: ModelProto) -> None:
    before = serialize(model)
    ir, _, report = apply(name, model)
    lowered = lower(ir)
    check(lowered)
    assert serialize(model) == before, "the model that was given is changed"
    assert interface(lowered) == interface(model)
    if not report.actions:
        assert serialize(lowered) == before
    feed = random_feeds(model, 1)[0]
    expected = run_model(model, feed)
    for output, array in run_model(lowered, feed).items():
        scale = float(np.abs(expected[output]).max(initial=1.0))
        np.testing.assert_allclose(array, expected[output], rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("name", FLOAT_PASSES)
@few
@given(model=float_models())
def test_float_passes_have_nothing_left_to_do(name: str, model: ModelProto) -> None:
    ir, _, _ = apply(name, model)
    text = print_model(ir)
    _, _, again = apply(name, ir)
    assert again.actions == 0
    assert print_model(ir) == text


@few
@given(model=float_models())
def test_float_passes_are_deterministic(model: ModelProto) -> None:
    pipeline = ",".join(FLOAT_PASSES)
    first, second = (apply(pipeline, model)[0] for _ in range(2))
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


@few
@given(model=float_models())
def test_lowering_leaves_the_model_as_it_was(model: ModelProto) -> None:
    ir, _, _ = apply(QUANTIZE, model, feeds=random_feeds(model))
    text, before = print_model(ir), serialize(lower(ir))
    made = [apply("insert-qdq,to-simulation,to-encodings", ir)[1] for _ in range(2)]
    assert print_model(ir) == text and serialize(lower(ir)) == before
    for name in ("qdq", "simulation"):
        assert serialize(artifact(made[0], name)) == serialize(artifact(made[1], name))
    assert made[0].artifacts["encodings"] == made[1].artifacts["encodings"]


HASHES = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from support.golden import GoldenFile
for path in sorted(Path(sys.argv[1]).glob("golden/*/*.golden")):
    print(path.name, hashlib.sha256(repr(GoldenFile.read(path).results()).encode()).hexdigest())
"""


def test_results_do_not_depend_on_the_hash_seed() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", HASHES, str(TESTS)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0].count("\n") > 30
    assert runs[0] == runs[1]
