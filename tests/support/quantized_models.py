"""Models that are quantized: by the tools of ONNX Runtime, and of its operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime import quantization as ort

from .models import floats, model_of, random_feeds


class _Feeds(ort.CalibrationDataReader):
    def __init__(self, model: ModelProto) -> None:
        self._feeds = iter(random_feeds(model, 8))

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def _named(model: ModelProto) -> ModelProto:
    """The model, with the names of nodes that ONNX Runtime's tools need."""
    for index, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{index}"
    return model


def static(model: ModelProto, folder: Path, form: ort.QuantFormat, **options: object) -> ModelProto:
    onnx.save(_named(model), folder / "float.onnx")
    ort.quantize_static(
        folder / "float.onnx", folder / "quantized.onnx", _Feeds(model), quant_format=form, **options
    )
    return onnx.load(folder / "quantized.onnx")


def dynamic(model: ModelProto, folder: Path, **options: object) -> ModelProto:
    onnx.save(_named(model), folder / "float.onnx")
    ort.quantize_dynamic(folder / "float.onnx", folder / "quantized.onnx", **options)
    return onnx.load(folder / "quantized.onnx")


def lstm() -> ModelProto:
    rng = np.random.default_rng(3)
    shapes = {"w": (2, 16, 6), "r": (2, 16, 4), "b": (2, 32)}
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32) / 2, name)
        for name, shape in shapes.items()
    ]
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=4, direction="bidirectional")
    return model_of([node], [floats("x", 7, 2, 6)], [floats("y", 7, 2, 2, 4)], weights, opset=17)


def contrib(
    node: str, inputs: list[str], outputs: dict[str, tuple[int, ...]], **attributes: object
) -> ModelProto:
    """A model of one op of ONNX Runtime, on constants that depend on their names."""
    rng = np.random.default_rng(5)
    shapes = {"w": (16, 48), "b": (48,), "words": (30, 16), "places": (10, 16), "kinds": (2, 16)}
    shapes |= {"gamma": (16,), "beta": (16,)}
    weights = [
        numpy_helper.from_array(rng.normal(size=shapes[name]).astype(np.float32) / 3, name)
        for name in inputs
        if name in shapes
    ]
    given = [
        floats("x", 2, 6, 16)
        if name == "x"
        else helper.make_tensor_value_info(name, TensorProto.INT32, [2, 6])
        for name in inputs
        if name and name not in shapes
    ]
    made = [helper.make_node(node, inputs, list(outputs), domain="com.microsoft", **attributes)]
    declared = [floats(name, *shape) for name, shape in outputs.items()]
    return model_of(made, given, declared, weights, opset=17, domains=["com.microsoft"])


def few_bits(bits: int, has_zeros: bool, has_bias: bool) -> ModelProto:
    """A product and a table with weights of few bits, in blocks of 16, the last of them not full."""
    rng = np.random.default_rng(bits)
    rows, columns, blocks = 24, 40, 3
    held = -(-blocks * bits // 8)
    arrays = {
        "codes": rng.integers(0, 256, (rows, blocks, 16 * bits // 8)).astype(np.uint8),
        "scales": rng.uniform(0.01, 0.1, rows * blocks).astype(np.float32),
        "zeros": rng.integers(0, 256, rows * held).astype(np.uint8),
        "bias": rng.normal(size=rows).astype(np.float32),
        "table": rng.integers(0, 256, (64, 32 * bits // 8)).astype(np.uint8),
        "table_scales": rng.uniform(0.01, 0.1, (64, 2)).astype(np.float32),
        "table_zeros": rng.integers(0, 256, (64, 2 * bits // 8)).astype(np.uint8),
    }
    given = ["x", "codes", "scales", "zeros" if has_zeros else "", "", "bias" if has_bias else ""]
    looked_up = ["table", "token", "table_scales", *(["table_zeros"] if has_zeros else [])]
    settings = {"bits": bits, "block_size": 16, "domain": "com.microsoft"}
    nodes = [
        helper.make_node("MatMulNBits", given, ["y"], K=columns, N=rows, **settings),
        helper.make_node(
            "GatherBlockQuantized", looked_up, ["z"], quantize_axis=1, gather_axis=0, **settings
        ),
    ]
    inputs = [floats("x", 2, columns), helper.make_tensor_value_info("token", TensorProto.INT64, [3])]
    return model_of(
        nodes,
        inputs,
        [floats("y", 2, rows), floats("z", 3, 32)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
        domains=["com.microsoft"],
    )
