"""Lets quantizers compute the activation before them, where each op reads and writes the memory.

On a GPU, ONNX Runtime runs a Relu or a Clip as a kernel of its own. ``qc::FakeQuantize`` is one that waits
for the memory, too, and clamps what it reads in the meantime. The results are the same bit for bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from qc.ir.onnx.protos import reads, walk_graphs

from ..native.library import QC_DOMAIN


def fuse_activations(model: ModelProto) -> ModelProto:
    """A model whose quantizers clamp, in place of the Relu or Clip whose result only they read.

    Quantizers that can be switched off still clamp. ``model`` is not changed.
    """
    fused = ModelProto()
    fused.CopyFrom(model)
    graph = fused.graph
    readers = Counter(name for body in walk_graphs(graph) for node in body.node for name in reads(node))
    readers.update(output.name for output in graph.output)
    given = {value.name for value in graph.input}
    constants = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if tensor.name not in given and not any(tensor.dims)
    }
    makers = {output: node for node in graph.node for output in node.output}
    spared = set()
    for node in graph.node:
        activation = makers.get(node.input[0]) if _is_quantizer(node) else None
        limits = _limits(activation, constants) if activation is not None else None
        if activation is None or limits is None or readers[node.input[0]] > 1:
            continue
        node.input[0] = activation.input[0]
        for name, limit in zip(("minimum", "maximum"), limits, strict=True):
            node.attribute.append(helper.make_attribute(name, limit))
        spared.add(activation.output[0])
    kept = [node for node in graph.node if not spared.intersection(node.output)]
    del graph.node[:]
    graph.node.extend(kept)
    return fused


def _is_quantizer(node: NodeProto) -> bool:
    return node.domain == QC_DOMAIN and node.op_type == "FakeQuantize"


def _limits(node: NodeProto, constants: Mapping[str, np.ndarray]) -> tuple[float, float] | None:
    """What a node clamps to, if it does no more than that."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("Relu", "Clip"):
        return None
    if node.op_type == "Relu":
        return 0.0, np.inf
    attributes = {attribute.name: attribute.f for attribute in node.attribute}
    limits = [attributes.get("min", -np.inf), attributes.get("max", np.inf)]
    for place, name in enumerate(node.input[1:3]):
        if name and name not in constants:
            return None
        limits[place] = float(constants[name]) if name else limits[place]
    return limits[0], limits[1]
