"""What an op of the graph of a model stands for."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import NodeProto


@dataclass(frozen=True)
class ModelModule:
    """A node of a model.

    Attributes:
        model_module: the node.
    """

    model_module: NodeProto | None

    def get_module(self) -> NodeProto | None:
        """The node."""
        return self.model_module


class ONNXModelModule(ModelModule):
    """A node of an ONNX model."""
