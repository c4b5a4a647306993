"""The HTP computes what the QDQ model says: graphs of which it had other numbers, or which it refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from support.models import parse

import qc
from qc.runtime import model_inputs, open_session
from qc.runtime.devices.device import version_of
from qc.runtime.devices.known import DEVICES, open_device

pytestmark = pytest.mark.skipif(
    version_of(DEVICES["qnn-htp"]) is None, reason="onnxruntime-qnn is not installed"
)

# By what the HTP does with it; in brackets what it had.
GRAPHS = {
    "places are rounded down from halves (-1 dB)": """g (float[1, 2, 6, 6] x) => (float[1, 2, 12, 12] y)
        <float[4] s = {1.0, 1.0, 2.0, 2.0}> { a = Sigmoid(x)  y = Resize<nearest_mode = "floor">(a, , s) }""",
    "every second number is taken (refused)": """g (float[1, 2, 6, 6] x) => (float[1, 2, 3, 3] y)
        <float[4] s = {1.0, 1.0, 0.5, 0.5}> {
            a = Sigmoid(x)
            y = Resize<coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(a, , s)
        }""",
}


@pytest.mark.parametrize("pipeline", ["w8a8", "w8a16"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_its_numbers_are_those_of_the_model(graph: str, pipeline: str) -> None:
    random = np.random.default_rng(4)
    feeds = [{"x": random.normal(size=(1, 2, 6, 6)).astype(np.float32)} for _ in range(4)]
    compiled = qc.compile(parse(graph), pipeline, data=feeds, target="qnn-htp", threads=1)
    made = open_device("qnn-htp").open(compiled.model).run(feeds[0])["y"]
    meant = open_session(compiled.model).run(None, feeds[0])[0]
    np.testing.assert_allclose(made, meant, atol=0.05 * np.abs(meant).max())


@pytest.mark.parametrize("normalized", ["LayerNormalization(s, scale, bias)", "RMSNormalization(s, scale)"])
def test_a_silu_of_a_picture_may_be_normalized(normalized: str) -> None:
    """In 16 bits it had other numbers altogether."""
    random = np.random.default_rng(4)
    model = parse(f"""<ir_version: 10, opset_import: ["" : 23]>
    g (float[1, 4, 16, 4] x) => (float[1, 4, 16, 4] y)
    <float[4] scale = {{1, 2, 0.5, 1}}, float[4] bias = {{0, 1, -1, 0.5}}> {{
        g = Sigmoid(x)  s = Mul(x, g)  y = {normalized}
    }}""")
    feeds = [{"x": random.normal(size=(1, 4, 16, 4)).astype(np.float32)} for _ in range(4)]
    compiled = qc.compile(model, "w8a16", data=feeds, target="qnn-htp", threads=1)
    made = open_device("qnn-htp").open(compiled.model).run(feeds[0])["y"]
    meant = open_session(compiled.model).run(None, feeds[0])[0]
    np.testing.assert_allclose(made, meant, atol=0.02 * np.std(meant))


def test_an_activation_behind_a_silu_is_one_table_with_it() -> None:
    """The simulation of the device was not made."""
    model = parse(
        """g (float[1, 256] x) => (float[1, 256] y) { g = Sigmoid(x)  s = Mul(x, g)  y = Relu(s) }"""
    )
    feeds = [{"x": np.linspace(-3, 3, 256, dtype=np.float32)[None]}]
    compiled = qc.compile(model, "w8a8", data=feeds, target="qnn-htp", threads=1, allow_unquantized=True)
    made = open_device("qnn-htp").open(compiled.model).run(feeds[0])["y"]
    np.testing.assert_allclose(
        made, open_session(compiled.device_simulation).run(None, feeds[0])[0], atol=1e-6
    )


@pytest.mark.parametrize(
    "graph",
    [
        """g (float[16, 8] x) => (float[16, 24] y) <float[8, 24] w> { m = MatMul(x, w)  y = Tanh(m) }""",
        """g (float[1, 8, 1, 16] x) => (float[1, 24, 1, 16] y)
        <float[24, 8, 1, 1] w> { c = Conv(x, w)  y = Tanh(c) }""",
    ],
    ids=["rows", "columns"],
)
def test_a_tanh_of_16_places(graph: str) -> None:
    """Behind a product it had other numbers altogether in 16 bits, of no more and no fewer places."""
    model, random = parse(graph), np.random.default_rng(3)
    (weight,) = model.graph.initializer
    numbers = random.normal(size=tuple(weight.dims)).astype(np.float32)
    weight.CopyFrom(onnx.numpy_helper.from_array(numbers, weight.name))
    (info,) = model_inputs(model)
    feeds = [{"x": random.normal(size=info.shape).astype(np.float32)} for _ in range(4)]
    compiled = qc.compile(model, "w8a16", data=feeds, target="qnn-htp", threads=1)
    made = open_device("qnn-htp").open(compiled.model).run(feeds[0])["y"]
    meant = open_session(compiled.model).run(None, feeds[0])[0]
    np.testing.assert_allclose(made, meant, atol=0.05)


@pytest.mark.parametrize("end", [0.7, 5.0])
def test_a_logarithm_of_16_places(end: float) -> None:
    """It counts its argument in steps, of which none is half a one: the plain simulation has 20 to 23 dB."""
    model = parse("g (float[1, 4096] x) => (float[1, 4096] y) { y = Log(x) }")
    x = np.linspace(0, end, 4096).astype(np.float32).reshape(1, -1)
    x[0, 0] = 1e-7
    compiled = qc.compile(model, "w8a16", data=[{"x": x}], target="qnn-htp", threads=1)
    made = open_device("qnn-htp").open(compiled.model).run({"x": x})["y"]
    simulated = open_session(compiled.device_simulation).run(None, {"x": x})[0]
    assert 10 * np.log10(np.sum(made**2) / np.sum((made - simulated) ** 2)) > 45
