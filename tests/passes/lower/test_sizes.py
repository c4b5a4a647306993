"""What is compiled is no larger than what it was made from, and constants without elements do no harm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from support.models import floats, model_of, parse, random_feeds
from support.pipelines import run_model

import qc

SIZE = 96
_SLACK = 4096  # bytes by which folding may let any model grow
_OF_A_QUANTIZER = 500  # bytes of its ops, its scale and its zero point, with their names
_OF_A_CHANNEL = 12  # the scale of a weight, the scale of its bias, and a zero point


class _Layers:
    """Layers whose weights are stored in the ways that exporters have, the first weight often again."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, np.ndarray] = {"w": self.matrix(), "axis": np.array([0], np.int64)}
        self.weights.update(first=np.int64(0), end=np.int64(SIZE), step=np.int64(1))
        self.last = "x"

    def matrix(self) -> np.ndarray:
        return self.rng.normal(0, 0.1, (SIZE, SIZE)).astype(np.float32)

    def make(self, op_type: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def add(self, style: str) -> None:
        weight = getattr(self, style)()
        product = self.make("MatMul", self.last, weight)
        self.last = self.make("Relu", product)

    def own(self) -> str:
        return self.store(self.matrix())

    def copied(self) -> str:
        return self.store(self.weights["w"])

    def store(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def through_identity(self) -> str:
        return self.make("Identity", "w")

    def narrow(self) -> str:
        return self.make("Cast", self.store(self.matrix().astype(np.float16)), to=TensorProto.FLOAT)

    def reshaped(self) -> str:
        return self.make("Squeeze", self.make("Unsqueeze", "w", "axis"), "axis")

    def computed(self) -> str:
        row = self.make("Cast", self.make("Range", "first", "end", "step"), to=TensorProto.FLOAT)
        column = self.make("Transpose", self.make("Unsqueeze", row, "axis"))
        return self.make("Sin", self.make("Mul", row, column))

    def model(self) -> ModelProto:
        constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in self.weights.items()]
        return model_of(self.nodes, [floats("x", 2, SIZE)], [floats(self.last, 2, SIZE)], constants)


STYLES = ["own", "copied", "through_identity", "narrow", "reshaped", "computed"]


@settings(max_examples=20)
@given(styles=st.lists(st.sampled_from(STYLES), min_size=1, max_size=8), seed=st.integers(0, 9))
def test_no_result_is_larger_than_the_float_model(styles: list[str], seed: int) -> None:
    layers = _Layers(seed)
    for style in styles:
        layers.add(style)
    model = layers.model()
    compiled = qc.compile(model, data=random_feeds(model), threads=1, allow_unquantized=True)
    quantizers = compiled.ir.quant.quantizers()
    channels = sum(one.encoding.scale.size for one in quantizers if one.encoding is not None)
    scales = _OF_A_QUANTIZER * len(quantizers) + _OF_A_CHANNEL * channels
    assert compiled.model.ByteSize() <= 1.02 * model.ByteSize() + _SLACK + scales
    feed = random_feeds(model, 1)[0]
    assert run_model(compiled.model, feed, optimize=True)[layers.last].shape == (2, SIZE)


@pytest.mark.parametrize("pipeline", ["w8a8", "w4a8", "w8a16"])
@pytest.mark.parametrize(
    "text",
    [
        "g (float[2, 4] x) => (float[2, 0] y) <float[4, 0] w> { y = MatMul(x, w) }",
        "g (float[2, 0] x) => (float[2, 4] y) <float[0, 4] w> { y = MatMul(x, w) }",
        """g (float[2, 4] x) => (float[2, 4] y) <float[4, 4] u, float[4, 0] v, float[0, 4] w> {
            a = MatMul(x, u)
            b = MatMul(a, v)
            y = MatMul(b, w)
        }""",
        "g (float[1, 0, 5, 5] x) => (float[1, 3, 5, 5] y) <float[3, 0, 1, 1] w> { y = Conv(x, w) }",
    ],
)
def test_a_weight_without_elements_stays_float(text: str, pipeline: str) -> None:
    model = parse(text)
    feeds = random_feeds(model)
    compiled = qc.compile(model, pipeline, data=feeds, threads=1, allow_unquantized=True)
    np.testing.assert_allclose(
        run_model(compiled.model, feeds[0], optimize=True)["y"], run_model(model, feeds[0])["y"], atol=0.1
    )
    (value,) = [value for value in compiled.ir.graph.values() if value.name == "w"]
    assert compiled.ir.quant.why_not(value) == "a constant without elements"


def test_a_parameter_without_elements_has_no_grid_in_quantsim() -> None:
    model = parse(
        """g (float[1, 10, 0, 5] x, float[2, 4] u) => (float[1, 10, 0, 5] y, float[2, 3] z)
        <float[1, 10, 0, 1] s, float[4, 3] w> {
            y = PRelu(x, s)
            z = MatMul(u, w)
        }"""
    )
    compiled = qc.compile(model, "quantsim", data=random_feeds(model), threads=1)
    (value,) = [value for value in compiled.ir.graph.values() if value.name == "s"]
    assert compiled.ir.quant.why_not(value) == "a constant without elements"
