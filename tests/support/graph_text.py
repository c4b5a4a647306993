"""Graphs from a few nodes in ONNX's text form."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

from qc.ir import lift
from qc.ir.graph import Graph


def build_model(
    body: str,
    outputs: str = "y",
    inputs: str = "float[2,4,8] x",
    opset: int = 17,
    constants: Mapping[str, object] | None = None,
) -> ModelProto:
    """A model of nodes; its outputs have whatever type follows.

    Args:
        body: the nodes in ONNX's text form, separated by semicolons; the name ``none`` is left out.
        constants: what the initializers may be; those that the nodes do not read are left out.
    """
    declared = ", ".join(f"float {name}" for name in outputs.split())
    body = body.replace(";", "\n")
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> test ({inputs}) => ({declared}) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    for value in proto.graph.output:
        value.ClearField("type")
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = ["" if name == "none" else name for name in names]
    words = re.findall(r"\w+", body)
    for name, content in (constants or {}).items():
        if name not in words:
            continue
        array = np.asarray(content)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def build(
    body: str,
    outputs: str = "y",
    inputs: str = "float[2,4,8] x",
    opset: int = 17,
    constants: Mapping[str, object] | None = None,
) -> Graph:
    """The lifted main graph of :func:`build_model`."""
    return lift(build_model(body, outputs, inputs, opset, constants)).graph
