"""The layers of a simulation as scripts around AdaRound ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from onnx import AttributeProto

from ..meta.operations import Product
from ..simulation.quantized_model import QuantizedModel

AdaroundSupportedModules = ["Conv", "ConvTranspose", "MatMul", "Gemm"]


@dataclass
class ModuleInfo:
    """What an op of a simulation has and reads.

    Attributes:
        params: its parameters by kind, such as ``weight``.
        inputs, outputs: the names of what else it reads, and of what it makes.
        type: of a layer that AdaRound can treat; None for others.
        attributes: of its node.
        transposed_params: whether its weight has the output channels first.
    """

    params: dict[str, Product] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    type: str | None = None
    attributes: Sequence[AttributeProto] | None = None
    transposed_params: bool = False


class ModelData:
    """The ops of a simulation.

    Attributes:
        module_to_info: by name.
    """

    def __init__(self, quant_sim: QuantizedModel) -> None:
        self.module_to_info: dict[str, ModuleInfo] = {}
        for op in quant_sim.connected_graph.ordered_ops:
            treated = op.type in AdaroundSupportedModules and op.node is not None
            self.module_to_info[op.name] = ModuleInfo(
                {kind: product for product, kind in op.parameters.values()},
                [product.name for product in op.inputs if product.name not in op.parameters],
                [product.name for product in op.outputs],
                op.type if treated else None,
                op.node.attribute if treated and op.node is not None else None,
                op.transposed_params,
            )
