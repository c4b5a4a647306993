"""Weights that the body of a Scan captures, which AIMET quantizes as those of the main graph."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.models import parse, random_feeds

from qc.compat.aimet_onnx import QuantizationSimModel


def recurrent(step: str, **weights: np.ndarray) -> onnx.ModelProto:
    """A recurrent network written as a Scan, whose step multiplies by a weight of the main graph."""
    model = parse(
        f"""<ir_version: 9, opset_import: ["": 18]>
        network (float[5,1,8] x, float[1,4] start) => (float[5,1,4] y) {{
            last, y = Scan<num_scan_inputs = 1, body = step (float[1,4] state, float[1,8] row)
                => (float[1,4] next, float[1,4] made) {{
                p = {step}
                s = Add(p, state)
                next = Tanh(s)
                made = Identity(next)
            }}>(start, x)
        }}"""
    )
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    return model


def steps(weight: np.ndarray, axis: int | None) -> np.ndarray:
    """Scales of int4 that hold all numbers, along an axis."""
    return np.maximum(weight.max(axis) / 7, -weight.min(axis) / 8)


@pytest.mark.parametrize(("config", "scales"), [("default", 4), ("htp_v66", 1)])
@pytest.mark.parametrize(
    ("step", "shape"),
    [("MatMul(row, w)", (8, 4)), ("Gemm<transB = 1>(row, w)", (4, 8))],
    ids=["matmul", "gemm"],
)
def test_a_captured_weight_is_a_parameter(
    step: str, shape: tuple[int, int], config: str, scales: int, tmp_path: Path
) -> None:
    weight = np.random.default_rng(0).normal(size=shape)
    model = recurrent(step, w=weight)
    sim = QuantizationSimModel(model, param_type="int4", activation_type="int16", config_file=config)
    sim.compute_encodings(random_feeds(model, 3))
    sim.export(str(tmp_path), "model")
    encodings = json.loads((tmp_path / "model.encodings").read_text(encoding="utf-8"))
    assert [entry["name"] for entry in encodings["param_encodings"]] == ["w"]
    (entry,) = encodings["param_encodings"]
    assert len(entry["scale"]) == scales
    axis = shape.index(8) if scales > 1 else None
    np.testing.assert_allclose(entry["scale"], np.ravel(steps(weight, axis)), rtol=1e-5)


def test_the_simulation_rounds_a_captured_weight() -> None:
    weight = np.random.default_rng(0).normal(size=(8, 4))
    model = recurrent("MatMul(row, w)", w=weight)
    scale = steps(weight, 0)
    rounded = recurrent("MatMul(row, w)", w=np.round(weight / scale) * scale)
    feeds = random_feeds(model, 3)
    made = {}
    for name, given, bits in (("integers", model, "int4"), ("rounded", rounded, ""), ("float", model, "")):
        sim = QuantizationSimModel(given, param_type=bits or "int8", activation_type="int16")
        sim.qc_quantize_op_dict["w"].enabled = bool(bits)
        sim.compute_encodings(feeds)
        made[name] = sim.session.run(None, feeds[0])[0]
    np.testing.assert_allclose(made["integers"], made["rounded"], atol=1e-3)
    assert np.abs(made["integers"] - made["float"]).max() > 1e-2
