"""The ops of the graph of a model, and the products between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from onnx import NodeProto, TensorProto

from ...missing import PartlyProvided
from ..common.model_module import ONNXModelModule
from ..deprecation import warn_deprecated


@dataclass(eq=False)
class Product(PartlyProvided):
    """What an op makes, reads, or is trained with.

    Attributes:
        name: of the tensor.
        shape: its sizes; None where they are not known.
        producer: the op that makes it; None for inputs and constants.
        consumers: the ops that read it, one that reads it twice twice.
        is_parm: whether it is a trained parameter of an op.
        is_model_input: whether it is an input of the model.
        is_const: whether it is another constant.
        tensor: the numbers of a parameter.
    """

    name: str
    shape: list[int] | None = None
    producer: Op | None = None
    consumers: list[Op] = field(default_factory=list)
    is_parm: bool = False
    is_model_input: bool = False
    is_const: bool = False
    tensor: TensorProto | None = None

    def __repr__(self) -> str:
        return self.name

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape or [])

    def is_inter_module(self) -> bool:
        """Whether an op makes it."""
        return not (self.is_const or self.is_parm or self.is_model_input)


@dataclass(eq=False)
class Op(PartlyProvided):
    """An op of the model, or several that the configuration counts as one.

    Attributes:
        name: of the op, or of the last of several.
        type, domain: what it counts as.
        node: its node in the model, or that of the last of several.
        inputs, outputs: what it reads, parameters included, and makes.
        parameters: its trained parameters by name, each with its kind, such as ``weight``.
        transposed_params: whether the weight of a matrix product has its output channels first.
        num_in_channels, num_out_channels: None, as in AIMET's graphs of ONNX models.
        is_anonymous: False: all have names.
    """

    name: str
    type: str
    domain: str = ""
    node: NodeProto | None = None
    inputs: list[Product] = field(default_factory=list)
    outputs: list[Product] = field(default_factory=list)
    parameters: dict[str, tuple[Product, str]] = field(default_factory=dict)
    transposed_params: bool = False
    num_in_channels: int | None = None
    num_out_channels: int | None = None
    is_anonymous: bool = False

    def __repr__(self) -> str:
        return self.name

    @property
    def name_op(self) -> str:
        """The name."""
        return self.name

    @property
    def dotted_name(self) -> str:
        """The name."""
        return self.name

    @property
    def input_ops(self) -> list[Op]:
        """The ops that make what it reads."""
        return [product.producer for product in self.inputs if product.producer is not None]

    @property
    def output_ops(self) -> list[Op]:
        """The ops that read what it makes."""
        return [op for product in self.outputs for op in product.consumers]

    @property
    def output(self) -> Product | None:
        """What it makes, if that is one thing; ``outputs`` has all."""
        warn_deprecated("Op.output", "Op.outputs")
        if len(self.outputs) > 1:
            raise RuntimeError(f"op '{self.name}' has {len(self.outputs)} outputs; ask for Op.outputs")
        return self.outputs[0] if self.outputs else None

    @property
    def groups(self) -> int | None:
        """The groups of a convolution, as its node tells them."""
        attributes = self.node.attribute if self.node is not None else ()
        return next((one.i for one in attributes if one.name == "group"), None)

    @property
    def output_shape(self) -> list[int] | None:
        """The sizes of the first thing that it makes; None where they are not known."""
        return self.outputs[0].shape if self.outputs else None

    def get_input_products(self) -> list[Product]:
        """What it reads but for parameters and other constants."""
        return [product for product in self.inputs if not (product.is_parm or product.is_const)]

    @property
    def model_module(self) -> ONNXModelModule:
        """Its node, as an object that gives it."""
        return ONNXModelModule(self.node)

    def get_module(self) -> NodeProto | None:
        """Its node in the model."""
        return self.node
