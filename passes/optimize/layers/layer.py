"""A layer: a convolution or product with a constant weight, which is a matrix whatever its layout is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from qc.ir.errors import UsageError, nearest
from qc.ir.executor import Observation, Patches
from qc.ir.facts.constants import constant_data
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import Shape

from .constant import Constant


@dataclass(frozen=True)
class Layer:
    """An op, its input and its weight: ``result = gain * matrix @ features + bias``.

    The features of a convolution are the patches of its input that the kernel sees, of ConvTranspose those of
    the input with zeros put between its elements, which the reversed kernel sees.

    Attributes:
        op: a Conv, ConvTranspose, Gemm, or MatMul by a matrix.
        weight: where the weight is.
        groups: how many groups channels are in; each has a matrix of its own.
        input_axis: the axis of the channels of the data.
        output_axis: the axis of the channels of the result.
        bias: where the bias is, or could be made; None if the result has none that could be changed.
    """

    op: Op
    weight: Constant
    groups: int
    input_axis: int
    output_axis: int
    bias: Constant | None

    @classmethod
    def of(cls, model: Model, op: Op) -> Layer | None:
        """The layer of an op; None if it is none, multiplies nothing, or is of unknown shapes."""
        weight, result = Constant.of_floats(model, op, 1), op.outputs[0]
        shape = result.type.shape if result is not None else None
        if result is None or shape is None or weight is None or 0 in weight.shape:
            return None
        rank, last, bias = len(weight.shape), len(shape) - 1, Constant.at(model, op, 2)
        groups = op.attribute("group", 1)
        if op.is_type("Conv", "ConvTranspose") and rank > 2 and last > 0:
            fits = groups > 0 and weight.shape[0] % groups == 0
            return cls(op, weight, groups, 1, 1, bias) if fits else None
        if op.is_type("Gemm") and rank == 2 and last == 1:
            beta = op.attribute("beta", 1.0)
            bias = bias if beta and _is_vector(bias, shape) else None
            return cls(op, weight, 1, 0 if op.attribute("transA", 0) else 1, 1, bias)
        if op.is_type("MatMul") and rank == 2 and last >= 0:
            return cls(op, weight, 1, last, last, _addend(model, result, shape))
        return None

    @property
    def data(self) -> Value:
        """The tensor that the weight multiplies."""
        data = self.op.inputs[0]
        assert data is not None
        return data

    @property
    def result(self) -> Value:
        """The tensor with the bias in it."""
        last = self.bias.op if self.bias is not None else self.op
        result = last.outputs[0]
        assert result is not None
        return result

    @property
    def channels(self) -> int:
        """How many channels the result has."""
        shape = self.weight.shape
        if self.op.is_type("ConvTranspose"):
            return self.groups * shape[1]
        return shape[-1] if self.is_transposed else shape[0]

    @property
    def gain(self) -> float:
        """What the product is multiplied by: ``alpha`` of a Gemm."""
        return float(self.op.attribute("alpha", 1.0)) if self.op.is_type("Gemm") else 1.0

    @property
    def matrix(self) -> np.ndarray:
        """The weight; its dtype, shape ``(groups, outputs / groups, inputs / groups * kernel elements)``.

        The elements of the kernel change quickest along the last axis, channels of the input slowest.
        """
        return self.as_matrix(self.weight.array)

    def as_matrix(self, array: np.ndarray) -> np.ndarray:
        """An array in the layout of the weight, such as its codes, in that of :attr:`matrix`."""
        if self.op.is_type("ConvTranspose"):
            split = array.reshape(self.groups, -1, *array.shape[1:])
            return np.swapaxes(split, 1, 2).reshape(self.groups, array.shape[1], -1)
        if self.is_transposed:
            array = array.T
        return array.reshape(self.groups, array.shape[0] // self.groups, -1)

    def as_weight(self, matrix: np.ndarray) -> np.ndarray:
        """An array in the layout of :attr:`matrix` in that of the weight: the inverse of ``as_matrix``."""
        shape = self.weight.array.shape
        if self.op.is_type("ConvTranspose"):
            split = matrix.reshape(self.groups, shape[1], -1, *shape[2:])
            return np.swapaxes(split, 1, 2).reshape(shape)
        return (matrix.reshape(shape[::-1]).T if self.is_transposed else matrix).reshape(shape)

    def by_feature(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers for the channels of the data, for its features: shape ``(groups, 1, features)``."""
        groups, _, features = self.matrix.shape
        split = numbers.reshape(groups, 1, -1)
        return np.repeat(split, features // split.shape[2], axis=2)

    def with_matrix(self, rewriter: Rewriter, matrix: np.ndarray) -> None:
        """Gives the weight the numbers of a matrix like :attr:`matrix`, in its own layout, for this op alone.

        Its quantizer stays. To be used in an action.
        """
        self.weight.set(rewriter, self.as_weight(matrix))

    @property
    def features(self) -> Observation:
        """What of the data has the Gram matrix of the features."""
        if not self.op.is_type("Conv", "ConvTranspose"):
            return Observation("gram", axis=self.input_axis)
        lists = ("strides", "dilations", "pads", "output_padding", "output_shape")
        kernel = tuple(self.weight.array.shape[2:])
        return Observation(
            "gram",
            patches=Patches(
                kernel,
                **{name: tuple(self.op.attribute(name, ())) for name in lists},
                group=self.groups,
                auto_pad=self.op.attribute("auto_pad", "NOTSET"),
                transposed=self.op.is_type("ConvTranspose"),
            ),
        )

    def arranged(self, data: np.ndarray) -> np.ndarray:
        """The data as :attr:`features` are observed of it."""
        return data

    def own_bias(self, rewriter: Rewriter) -> None:
        """Makes a bias of zeros if there is none, and a copy of one that others read too; in an action."""
        assert self.bias is not None
        zeros = np.zeros(self.channels, self.matrix.dtype)
        self.bias.set(rewriter, self.bias.array if self.bias.value is not None else zeros)

    def add_to_bias(self, rewriter: Rewriter, shift: np.ndarray, in_float: bool = True) -> None:
        """Adds a number for each channel to the results, by way of the bias as it is rounded; in an action.

        Without ``in_float`` the float model keeps the bias that it has, which is the layer's own.

        Args:
            shift: one number for each output, those of a group together.
        """
        assert self.bias is not None
        bias = self.bias.rounded(self.bias.array)
        beta = float(self.op.attribute("beta", 1.0)) if self.op.is_type("Gemm") else 1.0
        self.bias.set(rewriter, (bias + (shift / beta).reshape(bias.shape)).astype(bias.dtype), in_float)

    @property
    def is_transposed(self) -> bool:
        """Whether the outputs are along the last axis of the weight, which is a matrix."""
        return self.op.is_type("MatMul") or (self.op.is_type("Gemm") and not self.op.attribute("transB", 0))


def layers_of(model: Model) -> list[Layer]:
    """The layers of the main graph in topological order."""
    return [layer for op in model.graph.ops() if (layer := Layer.of(model, op)) is not None]


def named_layers(model: Model, names: Collection[str]) -> list[Layer]:
    """The layers of ops with these names; all if there are none.

    Raises:
        UsageError: there is no layer of such a name.
    """
    layers = layers_of(model)
    check_names(names, layers)
    return [layer for layer in layers if not names or layer.op.name in names]


def check_names(names: Collection[str], layers: Collection[Layer]) -> None:
    """Raises UsageError unless each name is that of the op of a layer."""
    known = {layer.op.name for layer in layers}
    for name in names:
        if name not in known:
            raise UsageError(f"there is no layer '{name}'{nearest(name, sorted(known))}")


def _addend(model: Model, product: Value, shape: Shape) -> Constant | None:
    """The constant that is added to a product, and to nothing else that reads it."""
    use = product.only_use
    if use is None or not use.op.is_type("Add"):
        return None
    found = Constant.at(model, use.op, 1 if use.port == 0 else 0)
    return found if found is not None and found.value is not None and _is_vector(found, shape) else None


def _is_vector(bias: Constant | None, shape: Shape) -> bool:
    """Whether there is no bias yet, or one with a number for each channel along the last axis of a result."""
    if bias is None or bias.value is None:
        return bias is not None
    data = constant_data(bias.value)
    if data is None or len(data.shape) > len(shape):  # of a higher rank, it would give the result more axes
        return False
    return data.size == shape[-1] and data.shape[-1:] == shape[-1:]
