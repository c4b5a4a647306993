"""Small graphs for the tests of patterns, written in ONNX's text form."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from qc.ir.graph import Graph
from qc.ir.lift import lift

GraphOf = Callable[..., Graph]


def build(
    body: str,
    outputs: str = "y",
    inputs: str = "float[2,4,8] x",
    opset: int = 17,
    constants: dict[str, object] | None = None,
) -> Graph:
    """The lifted main graph of a model.

    Args:
        body: the nodes in ONNX's text form, separated by semicolons; the name ``none`` is left out.
        constants: what the initializers may be; those that the nodes do not read are left out.
    """
    declared = ", ".join(f"float {name}" for name in outputs.split())
    body = body.replace(";", "\n")
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> test ({inputs}) => ({declared}) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
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
    return lift(proto).graph


@pytest.fixture
def graph_of() -> GraphOf:
    """The function that builds a graph."""
    return build
