"""Symmetric grids that begin at zero where nothing is negative, in every form that a model is written in."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from support.models import parse, random_feeds
from support.pipelines import PLACE, apply, artifact, run_model
from support.placement import of_value

from qc.ir.quant.arithmetic import fake_quantize
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import QuantSpec

MODEL = """g (float[1, 4] x) => (float[1, 2] y) <float[4, 4] v, float[4, 2] w> {
    m = MatMul(x, v)
    r = Relu(m)
    y = MatMul(r, w)
}"""


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("calibrate", ["calibrate", "calibrate-as-aimet"])
def test_every_form_says_the_same(signed: bool, calibrate: str) -> None:
    source = parse(MODEL)
    feeds = random_feeds(source, 4)
    model = apply(PLACE, source)[0]
    spec = QuantSpec(IntFormat(8, signed), symmetric=True, one_sided=True)
    for name in ("x", "r"):
        quantizer = of_value(model, name)
        assert quantizer is not None
        model.quant.respec(quantizer, spec, "test")
    pipeline = f"{calibrate},to-simulation,insert-qdq,to-encodings"
    context = apply(pipeline, model, "ort-cpu", feeds)[1]

    lowest, highest = (-128, 127) if signed else (0, 255)
    held = of_value(model, "r"), of_value(model, "x")
    one_sided, both = (quantizer.encoding for quantizer in held if quantizer is not None)
    assert one_sided is not None and both is not None
    assert (int(one_sided.zero_point), int(both.zero_point)) == (lowest, lowest + 128)
    assert float(one_sided.minimum) == 0 and float(both.minimum) < 0
    seen = max(float(np.maximum(_product(source, feed), 0).max()) for feed in feeds)
    assert float(one_sided.scale) * (highest - lowest) == pytest.approx(seen, rel=1e-5)

    outputs = [run_model(artifact(context, name), feeds[0])["y"] for name in ("simulation", "qdq")]
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-6)
    assert float(fake_quantize(np.float32(-1), one_sided)) == 0
    listed = json.loads(str(context.artifacts["encodings"].payload))["activation_encodings"]
    entries = {entry["name"]: entry for entry in listed}
    assert (entries["r"]["is_sym"], entries["r"]["offset"]) == (True, [0])
    assert (entries["x"]["is_sym"], entries["x"]["offset"]) == (True, [-128])


def _product(source: onnx.ModelProto, feed: dict[str, np.ndarray]) -> np.ndarray:
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in source.graph.initializer}
    return np.asarray(feed["x"] @ weights["v"])
