"""``quantize_dynamic`` with ONNX Runtime's signature."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime.quantization
import pytest
from onnx import ModelProto
from support.models import parse, random_feeds

import qc
from qc.compat.onnxruntime import DynamicQuantConfig, QuantType, quantize, quantize_dynamic

MODEL = parse("""g (float[n, 256] x) => (float[n, 256] y)
<float[256, 256] first, float[256, 256] second, float[256] b> {
    m = MatMul(x, first)
    s = Add(m, b)
    r = Relu(s)
    y = MatMul(r, second)
}""")
for position, node in enumerate(MODEL.graph.node):
    node.name = f"node {position}"


def products(folder: Path, **arguments: Any) -> tuple[ModelProto, int]:
    """The model after ``quantize_dynamic``, near the float model, and how many products are integers."""
    path, (feed,) = folder / "q.onnx", random_feeds(MODEL, 1)
    with pytest.warns(UserWarning, match="is quantized in every run"):
        quantize_dynamic(MODEL, path, **arguments)
    (found,) = ort.InferenceSession(path).run(None, feed)
    (exact,) = ort.InferenceSession(MODEL.SerializeToString()).run(None, feed)
    assert np.square(found - exact).sum() < np.square(exact).sum() / 500
    made = onnx.load(path)
    return made, sum(node.op_type == "MatMulInteger" for node in made.graph.node)


def scales(model: ModelProto) -> dict[str, tuple[int, ...]]:
    return {t.name: tuple(t.dims) for t in model.graph.initializer if t.name.endswith("_scale")}


def test_the_signature_is_that_of_onnxruntime() -> None:
    theirs = inspect.signature(onnxruntime.quantization.quantize_dynamic).parameters
    ours = inspect.signature(quantize_dynamic).parameters
    assert list(ours) == list(theirs)
    for name in set(theirs) - {"model_input", "model_output"}:
        assert ours[name].default == theirs[name].default


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"weight_type": QuantType.QUInt8},
        {"reduce_range": True},
        {"extra_options": {"WeightSymmetric": False, "MatMulConstBOnly": True}},
    ],
)
def test_products_by_weights_are_integers(tmp_path: Path, arguments: dict[str, Any]) -> None:
    made, integer = products(tmp_path, **arguments)
    assert integer == 2
    assert set(scales(made).values()) == {()}, "a scale for each weight"


def test_a_scale_for_each_channel(tmp_path: Path) -> None:
    made, _ = products(tmp_path, per_channel=True)
    assert set(scales(made).values()) == {(256,)}


@pytest.mark.parametrize(
    "arguments",
    [
        {"nodes_to_exclude": ["node 3"]},
        {"nodes_to_quantize": ["node 0"]},
        {"nodes_to_exclude": ["node 3"], "op_types_to_quantize": ["MatMul"]},
    ],
)
def test_what_is_left_out_stays_float(tmp_path: Path, arguments: dict[str, Any]) -> None:
    made, integer = products(tmp_path, **arguments)
    assert integer == 1
    assert [node.op_type for node in made.graph.node].count("MatMul") == 1


def test_as_a_configuration(tmp_path: Path) -> None:
    quantize_dynamic(MODEL, tmp_path / "a.onnx", per_channel=True)
    quantize(MODEL, tmp_path / "b.onnx", DynamicQuantConfig(per_channel=True))
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"extra_options": {"MatMulConstBOnly": False}},
            "the extra option 'MatMulConstBOnly' with the value",
        ),
        ({"extra_options": {"WeightSymmetric": "no"}}, "'WeightSymmetric' is True or False"),
        ({"weight_type": QuantType.QInt4}, "of dynamic quantization"),
        ({"nodes_to_exclude": ["node 9"]}, "the model has no node 'node 9'"),
        ({"op_types_to_quantize": ["Conv"]}, "the model has no 'Conv'"),
        ({"op_types_to_quantize": "MatMul"}, "is a list of names"),
    ],
)
def test_what_is_refused(tmp_path: Path, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(qc.UsageError, match=sentence):
        quantize_dynamic(MODEL, tmp_path / "q.onnx", **arguments)
    assert list(tmp_path.iterdir()) == []
