"""The IR as text: one line for each input, constant, op, region and quantizer, in a stable order."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
from onnx import AttributeProto, TensorProto, helper

from .graph import Graph, Op, Value
from .model import Model
from .quant import Encoding, Quantizer


def print_model(model: Model) -> str:
    """The text of a model; equal models give equal text."""
    return "\n".join(_model_lines(model)) + "\n"


def _model_lines(model: Model) -> Iterator[str]:
    opsets = ", ".join(f'"{domain}" {version}' for domain, version in sorted(model.opset_imports.items()))
    yield f"model ir {model.origin.ir_version} opset {opsets}"
    yield from _graph_lines(model.graph, "")
    for (domain, name, overload), body in model.functions.items():
        yield f"function {domain}::{name}{':' + overload if overload else ''}"
        yield from _graph_lines(body, "  ")
    for region in model.regions:
        yield f"region {region.name}: {', '.join(op.label for op in region.ops)}"
    for quantizer in model.quant.quantizers():
        yield _quantizer_line(model, quantizer)


def _graph_lines(graph: Graph, indent: str) -> Iterator[str]:
    inputs = ", ".join(_typed(value) for value in graph.inputs)
    yield f"{indent}graph {graph.name or '-'}({inputs}) {{"
    for value in graph.values():
        if value.const is not None:
            yield f"{indent}  const {_typed(value)}"
    for op in graph.ops():
        yield f"{indent}  {_op_line(op)}"
        for key, nested in op.subgraphs.items():
            yield f"{indent}    {key}:"
            yield from _graph_lines(nested, indent + "    ")
    outputs = ", ".join(repr(value) for value in graph.outputs)
    yield f"{indent}  return {outputs}"
    yield f"{indent}}}"


def _typed(value: Value) -> str:
    return f"{value!r}: {value.type}"


def _op_line(op: Op) -> str:
    inputs = ", ".join("_" if value is None else repr(value) for value in op.graph.op_inputs(op))
    outputs = ", ".join("_" if value is None else _typed(value) for value in op.graph.op_outputs(op))
    attributes = " ".join(f"{name}={_attribute(proto)}" for name, proto in op.attributes.items())
    kind = f"{op.domain}::{op.op_type}" if op.domain else op.op_type
    return f"{outputs} = {kind}({inputs})" + (f" {{{attributes}}}" if attributes else "")


def _attribute(proto: AttributeProto) -> str:
    if proto.ref_attr_name:
        return f"@{proto.ref_attr_name}"
    value = helper.get_attribute_value(proto)
    if isinstance(value, TensorProto):
        return f"tensor<{TensorProto.DataType.Name(value.data_type).lower()}{list(value.dims)}>"
    if isinstance(value, bytes):
        return _quoted(value)
    if isinstance(value, float):
        return f"{value:.9g}"
    if proto.type in (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS):
        return "[" + ",".join(_element(item) for item in value) + "]"
    return str(value)


def _quoted(text: bytes) -> str:
    """The text on one line, with quotes around and escapes within."""
    return json.dumps(text.decode("utf-8", "backslashreplace"), ensure_ascii=False)


def _element(item: object) -> str:
    if isinstance(item, bytes):
        return _quoted(item)
    return f"{item:.9g}" if isinstance(item, float) else str(item)


def _quantizer_line(model: Model, quantizer: Quantizer) -> str:
    sites = ", ".join(str(site) for site in model.quant.sites_of(quantizer))
    numbers = f" {_encoding(quantizer.encoding)}" if quantizer.encoding is not None else ""
    return f"quantizer {quantizer}{numbers}: {sites}"


def _encoding(encoding: Encoding) -> str:
    return f"scale={_numbers(encoding.scale)} zero_point={_numbers(encoding.zero_point)}"


def _numbers(array: np.ndarray) -> str:
    flat = [f"{item:.9g}" for item in array.ravel()[:4].tolist()]
    if array.ndim == 0:
        return flat[0]
    return "[" + ",".join(flat) + (f",... {array.size}" if array.size > len(flat) else "") + "]"
