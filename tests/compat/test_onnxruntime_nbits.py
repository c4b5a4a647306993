"""``MatMulNBitsQuantizer``: weights of few bits in blocks, with ONNX Runtime's names."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto
from onnxruntime.quantization import QuantFormat
from support.graph_text import build_model

import qc
from qc.compat.onnxruntime.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer


def network() -> ModelProto:
    random = np.random.default_rng(0)
    weights = {name: random.normal(size=(256, 256)) / 16 for name in ("w", "v")}
    body = "h = MatMul(x, w)\nr = Relu(h)\ny = MatMul(r, v)"
    proto = build_model(body, inputs="float[8,256] x", constants=weights)
    for node in proto.graph.node:
        node.name = node.output[0]
    return proto


def processed(**arguments: Any) -> ModelProto:
    quantizer = MatMulNBitsQuantizer(network(), **arguments)
    quantizer.process()
    made: ModelProto = quantizer.model.model
    return made


def types(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def error(model: ModelProto) -> float:
    feed = {"x": np.random.default_rng(1).normal(size=(8, 256)).astype(np.float32)}
    found, exact = (
        ort.InferenceSession(one.SerializeToString()).run(None, feed)[0] for one in (model, network())
    )
    return float(np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean()))


@pytest.fixture
def theirs() -> Any:
    return pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer", exc_type=ImportError)


def test_it_is_that_of_onnxruntime(theirs: Any) -> None:
    for ours in (MatMulNBitsQuantizer, DefaultWeightOnlyQuantConfig):
        their = inspect.signature(getattr(theirs, ours.__name__)).parameters
        our = inspect.signature(ours).parameters
        assert [(one.name, one.default) for one in our.values()] == [
            (one.name, one.default) for one in their.values()
        ]
    quantizer = theirs.MatMulNBitsQuantizer(network(), block_size=32)
    quantizer.process()
    assert error(processed(block_size=32)) < error(quantizer.model.model)
    with pytest.raises(qc.UsageError, match="'HQQWeightOnlyQuantConfig' is not part of"):
        processed(algo_config=theirs.HQQWeightOnlyQuantConfig())
    config = theirs.DefaultWeightOnlyQuantConfig(block_size=64, quant_format=QuantFormat.QDQ)
    assert types(processed(algo_config=config)).count("DequantizeLinear") == 2


def test_products_are_onnxruntimes_op_or_standard_ones(tmp_path: Path) -> None:
    made = processed(block_size=32)
    assert types(made) == ["MatMulNBits", "Relu", "MatMulNBits"]
    blocks = [a.i for node in made.graph.node for a in node.attribute if a.name == "block_size"]
    assert blocks == [32, 32] and error(made) < 0.15
    standard = processed(block_size=32, quant_format=QuantFormat.QDQ)
    assert sorted(types(standard)) == ["DequantizeLinear", "DequantizeLinear", "MatMul", "MatMul", "Relu"]
    kinds = {tensor.data_type for tensor in standard.graph.initializer}
    assert kinds == {TensorProto.UINT4, TensorProto.FLOAT}
    assert error(processed(bits=8, block_size=32)) < 0.02
    short = processed(bits=2, block_size=32)
    assert {tensor.data_type for tensor in short.graph.initializer} == {TensorProto.UINT2, TensorProto.FLOAT}
    assert error(short) < 0.6 and short.ByteSize() < 0.7 * made.ByteSize()

    quantizer = MatMulNBitsQuantizer(network(), block_size=32)
    quantizer.process()
    quantizer.model.save_model_to_file(str(tmp_path / "q.onnx"))
    assert types(onnx.load(tmp_path / "q.onnx")) == types(made)


def test_in_what_is_computed() -> None:
    def levels(**arguments: Any) -> set[int]:
        nodes = processed(block_size=32, **arguments).graph.node[::2]
        return {next((a.i for a in node.attribute if a.name == "accuracy_level"), 0) for node in nodes}

    assert levels() <= {0, 1} and levels(accuracy_level=1) <= {0, 1}
    assert levels(accuracy_level=4, is_symmetric=True) == {4}


@pytest.mark.parametrize("chosen", [{"nodes_to_exclude": ["h"]}, {"nodes_to_include": ["y"]}])
def test_what_is_left_out_stays_float(chosen: dict[str, Any]) -> None:
    assert types(processed(**chosen)) == ["MatMul", "Relu", "MatMulNBits"]


def test_a_configuration_takes_the_place_of_arguments() -> None:
    config = DefaultWeightOnlyQuantConfig(block_size=64, quant_format=QuantFormat.QDQ)
    assert types(processed(block_size=32, algo_config=config)).count("DequantizeLinear") == 2


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"bits": 3}, "weights have 2, 4 or 8 bits, not 3"),
        ({"accuracy_level": 2}, "'accuracy_level=2' is not part of .*; use 1 for floats, or 4"),
        ({"quant_axes": (("MatMul", 1),)}, "blocks along another axis is not part of"),
        ({"nodes_to_exclude": ["hh"]}, "nodes_to_exclude: the model has no node 'hh'"),
        ({"nodes_to_exclude": ["h", "y"]}, "nothing was quantized"),
    ],
)
def test_what_is_not_provided(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises((qc.UsageError, qc.CoverageError), match=sentence):
        processed(**arguments)


@pytest.mark.parametrize("quant_format", [QuantFormat.QOperator, QuantFormat.QDQ])
def test_symmetric_weights_have_all_codes(quant_format: QuantFormat) -> None:
    """Weights that are whole numbers from -8 to 7 stay what they are."""
    weight = np.random.default_rng(0).permuted(np.tile(np.arange(-8.0, 8), (256, 8)), axis=1).T
    proto = build_model("y = MatMul(x, w)", inputs="float[8,128] x", constants={"w": weight})
    quantizer = MatMulNBitsQuantizer(proto, is_symmetric=True, quant_format=quant_format)
    quantizer.process()
    feed = {"x": np.random.default_rng(1).normal(size=(8, 128)).astype(np.float32)}
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # which rounds x, too
    found = ort.InferenceSession(quantizer.model.model.SerializeToString(), options).run(None, feed)[0]
    np.testing.assert_allclose(found, feed["x"] @ weight, rtol=1e-5, atol=1e-4)
