"""Models in ONNX's text syntax, and data for them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'


def parse(text: str) -> ModelProto:
    """The model of a text; opset 21 if the text does not begin with a header.

    A float tensor that is declared between ``<`` and ``>`` behind the outputs, has no data there, and is
    computed by no node, becomes a weight: random numbers that depend on its name and shape alone.
    """
    text = text.strip()
    model = onnx.parser.parse_model(text if text.startswith("<") else HEADER + text)
    _add_weights(model.graph)
    return model


def _add_weights(graph: GraphProto) -> None:
    made = {name for node in graph.node for name in node.output}
    made |= {tensor.name for tensor in graph.initializer}
    declared = list(graph.value_info)
    del graph.value_info[:]
    for info in declared:
        if info.name in made:
            graph.value_info.append(info)
        else:
            graph.initializer.append(numpy_helper.from_array(weight(info), info.name))


def weight(info: ValueInfoProto) -> np.ndarray:
    """Random multiples of 1/8, which depend on the name; positive ones if the name contains ``var``.

    Sums of products of such numbers are exact in float32, so they are the same on every machine.
    """
    tensor = info.type.tensor_type
    shape = [dim.dim_value for dim in tensor.shape.dim]
    array = _eighths(np.random.default_rng(zlib.crc32(info.name.encode())), shape)
    if "var" in info.name:
        array = np.abs(array) + 0.5
    return array.astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))


def _eighths(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    return np.rint(rng.normal(size=shape) * 8) / 8 + 0.0  # no negative zeros


def random_feeds(
    model: ModelProto, count: int = 2, seed: int = 0, size: int = 2
) -> list[dict[str, np.ndarray]]:
    """Feeds for the inputs that have no default; ``size`` stands for symbolic dimensions."""
    rng = np.random.default_rng(seed)
    defaults = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in defaults]
    return [{info.name: _random(rng, info, size) for info in inputs} for _ in range(count)]


def _random(rng: np.random.Generator, info: ValueInfoProto, size: int) -> np.ndarray:
    tensor = info.type.tensor_type
    shape = [dim.dim_value if dim.HasField("dim_value") else size for dim in tensor.shape.dim]
    if tensor.elem_type == TensorProto.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if dtype.kind in "iu":
        return rng.integers(0, 2, shape).astype(dtype)
    return _eighths(rng, shape).astype(dtype)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto | str],
    weights: Sequence[TensorProto] = (),
    opset: int = 21,
    domains: Sequence[str] = (),
) -> ModelProto:
    """A model from protos, for what the text syntax cannot say; an output given by name has no type."""
    declared = [ValueInfoProto(name=info) if isinstance(info, str) else info for info in outputs]
    graph = helper.make_graph(nodes, "test", inputs, declared, list(weights))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def floats(name: str, *shape: int | str) -> ValueInfoProto:
    """The declaration of a float32 tensor."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
