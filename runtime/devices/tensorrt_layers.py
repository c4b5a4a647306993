"""What TensorRT tells of the layers of an engine, and what became of each op of the model by that.

In the JSON of its engine inspector a layer has ``Name``, ``LayerType``, ``Inputs`` and ``Outputs``, and in
``Metadata`` the nodes of the ONNX model that it is made of, as ``[ONNX EngineLayer: NAME]`` with a control
character between them. NVIDIA's documentation of TensorRT has it on the page
``inference-library/engine-tools``, and what TensorRT 11 changed on
``api/migration/tensorrt-10x-to-11x-IEngineInspector``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import ModelProto

from qc.ir.facts.products import is_product

from ..execution.executed import ExecutedOp
from ..protos.marks import marks_in
from ..protos.wiring import all_nodes

# A type within the description of a format, such as "Four wide channel vectorized row major Int8 format".
_TYPE = re.compile(r"\b(u?int\d+|fp\d+|bf16|bfloat16|float|half|bool|e\d+m\d+\w*)\b", re.IGNORECASE)
_CODES = frozenset({"int8", "uint8", "fp8"})
# Layers that copy: of an op that computes, they are only a part.
_COPIES = frozenset({"Constant", "NoOp", "Reformat", "Shuffle"})


@dataclass(frozen=True)
class EngineLayer:
    """One layer of an engine.

    Attributes:
        name: its name, as the profiler has it, too.
        type: its type, such as ``CaskConvolution``.
        places: the places of the nodes that it is made of, which bear marks for names.
        reads: the types of what it reads in this order, such as ``Int8``; its data comes first.
        makes: the types of what it makes.
    """

    name: str
    type: str
    places: tuple[int, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]

    @property
    def kernel(self) -> str:
        """How messages call it: its type, and the types of what goes in and, if another one, comes out."""
        ends = dict.fromkeys(types[0] for types in (self.reads, self.makes) if types)
        return f"{self.type} {' to '.join(ends)}".strip()

    @property
    def copies(self) -> bool:
        """Whether it only brings numbers into another place or format."""
        return self.type in _COPIES

    def is_integer(self, multiplies: bool) -> bool:
        """Whether it computes on codes of 8 bits, or moves them.

        Args:
            multiplies: whether it sums products. Sums of codes may leave it as floats, and have floats added.
                What else makes floats of codes has dequantized them before it computed.
        """
        if multiplies and not self.copies:
            return _is_code(self.reads[:1])
        return any(_is_code([one]) for one in self.reads) and _is_code(self.makes)


def read_layers(told: str) -> list[EngineLayer]:
    """The layers in the JSON of an engine that was built with detailed verbosity.

    Raises:
        ValueError: it is no such JSON.
    """
    try:
        described = json.loads(told, strict=False)["Layers"]
        return [_layer(one) for one in described if isinstance(one, dict)]
    except (KeyError, TypeError) as error:
        raise ValueError(f"the layers are told in another form: {error!r}") from error


def executed_ops(
    model: ModelProto, layers: Sequence[EngineLayer], seconds: Mapping[str, float]
) -> tuple[ExecutedOp, ...]:
    """What became of the ops of a model.

    An op that several layers are made of has the one that computes, and of these the one in integers: a Gemm
    becomes a product and an addition.

    Args:
        model: the model, whose nodes were marked (``runtime/protos/marks.py``) for the engine.
        layers: those of the engine.
        seconds: the time of one run by the name of the layer.
    """
    nodes = list(all_nodes(model.graph))
    products = {place for place, node in enumerate(nodes) if is_product(node.op_type, node.proto.domain)}
    found: dict[int, tuple[bool, bool, EngineLayer]] = {}
    for layer in layers:
        runner = not layer.copies, layer.is_integer(not products.isdisjoint(layer.places)), layer
        for place in layer.places:
            if place not in found or found[place][:2] < runner[:2]:
                found[place] = runner
    ops = []
    for place, node in enumerate(nodes):
        if node.rounds or node.op_type == "Constant":
            continue
        if place not in found:
            ops.append(ExecutedOp(node, "", "", None))
            continue
        _, integer, layer = found[place]
        ops.append(ExecutedOp(node, layer.kernel, layer.name, integer, seconds.get(layer.name, 0.0)))
    return tuple(ops)


def _layer(described: Mapping[str, Any]) -> EngineLayer:
    sides = (described.get(side) or () for side in ("Inputs", "Outputs"))
    reads, makes = (tuple(kind for kind in map(_type, tensors) if kind) for tensors in sides)
    places = tuple(dict.fromkeys(marks_in(str(described.get("Metadata", "")))))
    return EngineLayer(str(described["Name"]), str(described.get("LayerType", "")), places, reads, makes)


def _type(tensor: Mapping[str, str]) -> str:
    """The type of a tensor, in TensorRT's word; with its format in one text, or in a field of its own."""
    told = next((text for key, text in tensor.items() if key.lower().endswith("datatype")), "")
    kind = _TYPE.search(str(told))
    return kind[0] if kind else ""


def _is_code(types: Sequence[str]) -> bool:
    return bool(types) and all(kind.lower() in _CODES or kind.lower().startswith("e4m3") for kind in types)
