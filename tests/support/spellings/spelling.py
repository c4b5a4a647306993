"""One way in which an exporter writes a supergroup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import ModelProto

from ..graph_text import build_model


@dataclass(frozen=True)
class Spelling:
    """One way in which an exporter writes a supergroup.

    Attributes:
        group: the name that the match must have.
        source: the exporter, or where else it is written so, and what is special.
        body: the nodes, see :func:`support.graph_text.build_model`.
        constants: the initializers that the nodes may read.
        outside: the types of the ops that the match must leave out, in the order of the graph.
        meaning: nodes of opset 23 that compute the same, with an op of ONNX for the whole formula; empty
            if there is no such op.
    """

    group: str
    source: str
    body: str
    opset: int = 17
    inputs: str = "float[2,4,8] x"
    outputs: str = "y"
    constants: Mapping[str, object] = field(default_factory=dict, hash=False, repr=False)
    outside: str = ""
    meaning: str = ""

    def model(self) -> ModelProto:
        """The model."""
        return build_model(self.body, self.outputs, self.inputs, self.opset, self.constants)

    def reference(self) -> ModelProto:
        """The model of the meaning."""
        return build_model(self.meaning, "y", self.inputs, 23, self.constants)

    def __str__(self) -> str:
        return f"{self.group}: {self.source}"
