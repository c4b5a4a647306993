"""Integers against the simulation on a trained network: hardly a value is off by more than a step."""

from __future__ import annotations

import numpy as np
import pytest
from support.folders import FIXTURES
from support.machine import needs_exact_sums
from support.pipelines import QUANTIZE

import qc
from qc.runtime import expose_tensors, open_session, run_session

_RESTORED = "_DequantizeLinear_Output"


@needs_exact_sums
@pytest.mark.parametrize("target", ["ort-cpu", "ort-cpu-amx"])
def test_integers_are_one_step_from_the_simulation(target: str) -> None:
    with np.load(FIXTURES / "digits_calibration.npz") as data:
        images = data["image"]
    everything = QUANTIZE.replace("insert-quantizers", "insert-quantizers{slower=integer}")
    compiled = qc.compile(
        FIXTURES / "digits_cnn.onnx",
        f"{everything},insert-qdq,to-simulation",
        data=[{"image": images}],
        target=target,
        threads=1,
    )
    integer, simulation, table = compiled.model, compiled.simulation, compiled.ir.quant
    quantizers = {site.value.name: table.get(site) for site in table.sites() if site.op is None}
    made = {output for node in integer.graph.node for output in node.output}
    rounded = {
        node.input[0]: node.output[0] for node in simulation.graph.node if node.op_type == "FakeQuantize"
    }
    tensors = [name for name in rounded if f"{name}{_RESTORED}" in made]
    assert len(tensors) == len(rounded) == 14
    real_names = [f"{name}{_RESTORED}" for name in tensors]
    simulated_names = [rounded[name] for name in tensors]
    feed = {"image": images}
    real = run_session(open_session(expose_tensors(integer, real_names), threads=1), feed, real_names)
    simulated = run_session(
        open_session(expose_tensors(simulation, simulated_names), threads=1), feed, simulated_names
    )
    steps = []
    for name, x, y in zip(tensors, real, simulated, strict=True):
        quantizer = quantizers[name]
        assert quantizer is not None and quantizer.encoding is not None
        x = x[:, : y.shape[1]]  # the input has got channels of zeros
        assert x.shape == y.shape
        steps.append(np.rint(np.abs(x - y) / quantizer.encoding.scale).ravel())
    counted = np.concatenate(steps)
    assert counted.any()  # the float sums of the simulation do round differently at times
    assert np.mean(counted <= 1) > 0.999
    assert min(float(np.mean(taken <= 1)) for taken in steps) > 0.999
    assert max(float(taken.max()) for taken in steps) <= 3
