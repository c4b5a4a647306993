"""Operators as they are offered to devices: their inputs, by rank, and their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    """An operator, ready to be offered.

    Attributes:
        op_type: its type.
        data: how many inputs are computed; all have one shape, but for the second of a product.
        shape: the shape of the data, by rank.
        ranks: those that it is offered with; ``rank`` is the one where others are compared.
        parameters: constants that are no data, by port: numbers, or what makes them of the shape.
        weight: the shape of the weight by rank, at port 1; None for an op without.
        axis: that of the channels of the weight.
        blocked: that along which the weight has blocks; None if it cannot have any.
        biases: the further ports with a number for each channel.
        may_compute_weight: whether the weight may be data, too.
        attributes: attributes, or what makes them of the rank.
        positive: whether its data is positive, as behind a Relu, and its grid begins at zero.
        made: the types of the results.
    """

    op_type: str
    data: int = 1
    shape: Callable[[int], Shape] = lambda rank: (1, 2, 4, 8, 64)[5 - rank :]
    ranks: tuple[int, ...] = (2, 3, 4, 5)
    rank: int = 4
    parameters: Mapping[int, Any] = field(default_factory=dict)
    weight: Callable[[int], Shape] | None = None
    axis: int = 0
    blocked: int | None = None
    biases: tuple[int, ...] = ()
    may_compute_weight: bool = False
    attributes: Mapping[str, Any] | Callable[[int], Mapping[str, Any]] = field(default_factory=dict)
    positive: bool = False
    made: tuple[int, ...] = (TensorProto.FLOAT,)


def _pictures(rank: int) -> Shape:
    return (1, 64, *[6] * (rank - 2))


def _spatial(op_type: str, *, ranks: tuple[int, ...] = (3, 4, 5), **more: Any) -> Sample:
    return Sample(op_type, shape=_pictures, ranks=ranks, **more)


def _reduction(op_type: str, **more: Any) -> Sample:
    if op_type.startswith("Arg"):
        return Sample(op_type, attributes={"axis": -1}, made=(TensorProto.INT64,), **more)
    return Sample(op_type, parameters={1: np.array([-1])}, **more)


def _kernels(rank: int) -> dict[str, Any]:
    return {"kernel_shape": [2] * (rank - 2), "strides": [2] * (rank - 2)}


def _channels(rank: int) -> Shape:
    return (64,)


_ONE, _LAST = np.array([1]), np.array([-1])
_UNARY = [
    "Abs",
    "Ceil",
    "Cos",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tanh",
]
_BINARY = ["Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum"]
_OF_POSITIVE = ["Div", "Log", "Pow", "Reciprocal", "Sqrt"]
_COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]
_REDUCTIONS = [
    "ArgMax",
    "ArgMin",
    "ReduceL2",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
]

SAMPLES: dict[str, Sample] = {
    sample.op_type: sample
    for sample in (
        _spatial(
            "Conv",
            weight=lambda rank: (32, 64, *[3] * (rank - 2)),
            blocked=1,
            biases=(2,),
        ),
        _spatial(
            "ConvTranspose",
            weight=lambda rank: (64, 32, *[2] * (rank - 2)),
            axis=1,
            biases=(2,),
            positive=True,
            attributes=lambda rank: {"strides": [2] * (rank - 2)},
        ),
        Sample("Gemm", ranks=(2,), rank=2, weight=lambda rank: (64, 32), axis=1, blocked=0, biases=(2,)),
        Sample("MatMul", weight=lambda rank: (64, 32), axis=1, blocked=0, may_compute_weight=True),
        _spatial("BatchNormalization", parameters=dict.fromkeys(range(1, 5), np.ones(64, np.float32))),
        _spatial("InstanceNormalization", weight=_channels, biases=(2,)),
        Sample("LayerNormalization", weight=_channels, biases=(2,)),
        Sample("LpNormalization", attributes={"axis": -1}),
        _spatial("PRelu", weight=lambda rank: (64, *[1] * (rank - 2))),
        *(Sample(op_type, positive=op_type in _OF_POSITIVE) for op_type in _UNARY),
        *(Sample(op_type, data=2, positive=op_type in _OF_POSITIVE) for op_type in _BINARY),
        *(Sample(op_type, data=2, made=(TensorProto.BOOL,)) for op_type in _COMPARISONS),
        *map(_reduction, _REDUCTIONS),
        Sample("Clip", parameters={1: np.float32(-0.5), 2: np.float32(0.5)}),
        Sample("CumSum", parameters={1: np.array(1)}),
        _spatial("AveragePool", attributes=_kernels),
        _spatial("GlobalAveragePool"),
        _spatial("GlobalMaxPool"),
        _spatial("MaxPool", attributes=_kernels),
        _spatial("LRN", ranks=(4,), attributes={"size": 3}),
        _spatial("DepthToSpace", ranks=(4,), attributes={"blocksize": 2}),
        _spatial("SpaceToDepth", ranks=(4,), attributes={"blocksize": 2}),
        _spatial(
            "Resize",
            parameters={1: None, 2: lambda shape: np.array([1, 1, *[2] * (len(shape) - 2)], np.float32)},
            attributes={
                "mode": "nearest",
                "coordinate_transformation_mode": "asymmetric",
                "nearest_mode": "floor",
            },
        ),
        Sample("Concat", data=2, attributes={"axis": -1}),
        Sample(
            "Expand",
            parameters={1: lambda shape: np.array([2, *shape[1:]])},
            shape=lambda r: (1, *[8] * (r - 1)),
        ),
        Sample("Flatten"),
        Sample("Gather", parameters={1: np.array([0, 3, 5])}, attributes={"axis": -1}),
        Sample("GatherElements", parameters={1: lambda shape: np.zeros(shape, np.int64)}),
        Sample("GatherND", parameters={1: np.array([[0]])}),
        Sample("Pad", parameters={1: lambda shape: np.array([0, 1] * len(shape))}),
        Sample("Reshape", parameters={1: np.array([-1, 2])}),
        Sample("Slice", parameters={1: _ONE, 2: np.array([3]), 3: _LAST}),
        Sample("Split", attributes={"axis": -1, "num_outputs": 2}, made=(TensorProto.FLOAT,) * 2),
        Sample("Squeeze", parameters={1: np.array([0])}, shape=lambda rank: (1, *[8] * (rank - 1))),
        Sample("Tile", parameters={1: lambda shape: np.array([1] * (len(shape) - 1) + [2])}),
        Sample("TopK", parameters={1: _ONE}, made=(TensorProto.FLOAT, TensorProto.INT64)),
        Sample("Transpose"),
        Sample("Unsqueeze", parameters={1: np.array([0])}, ranks=(2, 3, 4), rank=3),
        Sample("Where", data=2),
    )
}
