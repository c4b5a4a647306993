"""What the operators of ONNX are, in one table; what a device can run is in the targets."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Literal

Ports = Mapping[str, int]
ANY_NUMBER = (-inf, inf)


@dataclass(frozen=True)
class OpTraits:
    """Facts about one operator that follow from its definition.

    Attributes:
        product: what sums products of data and a weight: a convolution, a matrix product, or a recurrent op.
        trained: input ports of what is trained, by kind.
        parameters: input ports of what is an attribute in some opset, and a constant in nearly every model.
        settings: input ports of further constants that belong to the operation and are no data.
        grid: ``keeps`` if the results hold only numbers of the first input, whose grid holds for them;
            ``joins`` if they hold those of several inputs, which need one grid to stay in integers.
        limits: the least and the largest number that a result can be, whatever the inputs are.
        ordered: input ports whose numbers it moves, chooses from, or limits: they keep their order.
        compares: whether it compares the numbers of two inputs.
        masks: whether it can add a mask, or put one in.
        spreads: whether an infinity of any input can become one of a result.
        commutative: whether its inputs may be in any order.
        axes_are_set: whether its axes are a set; elsewhere other parameters refer to their order.
        reads_shape: whether it reads the shape of a tensor and not its numbers.
        sized: whether it makes a tensor as long as an input says.
    """

    product: Literal["", "convolution", "matrix", "recurrent"] = ""
    trained: Ports = field(default_factory=dict)
    parameters: Ports = field(default_factory=dict)
    settings: tuple[int, ...] = ()
    grid: Literal["", "keeps", "joins"] = ""
    limits: tuple[float, float] = ANY_NUMBER
    ordered: Container[int] = ()
    compares: bool = False
    masks: bool = False
    spreads: bool = False
    commutative: bool = False
    axes_are_set: bool = False
    reads_shape: bool = False
    sized: bool = False


_ALL = range(2**31)
_SCALE_AND_BIAS = {"weight": 1, "bias": 2}
_RECURRENT = OpTraits("recurrent", {"weight": 1, "weight_r": 2, "bias": 3})
_KEEPS = OpTraits(grid="keeps")
_MOVES = OpTraits(grid="keeps", ordered=(0,))
_COMMUTES = OpTraits(commutative=True)
_COMPARES = OpTraits(compares=True)
_NOT_NEGATIVE = OpTraits(limits=(0.0, inf))
_UP_TO_ONE = OpTraits(limits=(0.0, 1.0))
_WITHIN_ONE = OpTraits(limits=(-1.0, 1.0))
_REDUCES = OpTraits(parameters={"axes": 1}, axes_are_set=True)
_REDUCES_UP = OpTraits(parameters={"axes": 1}, axes_are_set=True, limits=(0.0, inf))
_REDUCES_TO_ONE = OpTraits(parameters={"axes": 1}, axes_are_set=True, grid="keeps")
_RESIZES = {"roi": 1, "scales": 2, "sizes": 3}
_SLICES = {"starts": 1, "ends": 2, "axes": 3, "steps": 4}

TABLE: Mapping[str, OpTraits] = {
    # with a weight
    "Conv": OpTraits("convolution", _SCALE_AND_BIAS),
    "ConvTranspose": OpTraits("convolution", _SCALE_AND_BIAS),
    "Gemm": OpTraits("matrix", _SCALE_AND_BIAS),
    "MatMul": OpTraits("matrix", {"weight": 1}),
    "GRU": _RECURRENT,
    "LSTM": _RECURRENT,
    "RNN": _RECURRENT,
    # normalizations
    "BatchNormalization": OpTraits(trained=_SCALE_AND_BIAS | {"running_mean": 3, "running_var": 4}),
    "GroupNormalization": OpTraits(trained=_SCALE_AND_BIAS),
    "InstanceNormalization": OpTraits(trained=_SCALE_AND_BIAS),
    "LayerNormalization": OpTraits(trained=_SCALE_AND_BIAS),
    "LpNormalization": _WITHIN_ONE,
    "LogSoftmax": OpTraits(limits=(-inf, 0.0)),
    "RMSNormalization": OpTraits(trained={"weight": 1}),
    "Softmax": _UP_TO_ONE,
    # elementwise
    "Abs": _NOT_NEGATIVE,
    "Add": OpTraits(masks=True, spreads=True, commutative=True),
    "And": _COMMUTES,
    "BitwiseAnd": _COMMUTES,
    "BitwiseOr": _COMMUTES,
    "BitwiseXor": _COMMUTES,
    "Cast": OpTraits(spreads=True),
    "CastLike": OpTraits(spreads=True),
    "Clip": OpTraits(parameters={"min": 1, "max": 2}, ordered=(0,)),
    "Cos": _WITHIN_ONE,
    "Equal": OpTraits(compares=True, commutative=True),
    "Erf": _WITHIN_ONE,
    "Exp": _NOT_NEGATIVE,
    "Greater": _COMPARES,
    "GreaterOrEqual": _COMPARES,
    "HardSigmoid": _UP_TO_ONE,
    "HardSwish": OpTraits(limits=(-0.375, inf)),
    "Less": _COMPARES,
    "LessOrEqual": _COMPARES,
    "Max": OpTraits(ordered=_ALL, commutative=True),
    "Mean": _COMMUTES,
    "Min": _COMMUTES,
    "Mul": OpTraits(spreads=True, commutative=True),
    "Or": _COMMUTES,
    "Pow": OpTraits(settings=(1,)),
    "PRelu": OpTraits(settings=(1,)),
    "Relu": _NOT_NEGATIVE,
    "Sigmoid": _UP_TO_ONE,
    "Sin": _WITHIN_ONE,
    "Softplus": _NOT_NEGATIVE,
    "Softsign": _WITHIN_ONE,
    "Sqrt": _NOT_NEGATIVE,
    "Sub": OpTraits(masks=True, spreads=True),
    "Sum": OpTraits(masks=True, spreads=True, commutative=True),
    "Tanh": _WITHIN_ONE,
    "Where": OpTraits(ordered=(1, 2), masks=True, spreads=True),
    "Xor": _COMMUTES,
    # reductions
    "ReduceL1": _REDUCES_UP,
    "ReduceL2": _REDUCES_UP,
    "ReduceLogSum": _REDUCES,
    "ReduceLogSumExp": _REDUCES,
    "ReduceMax": _REDUCES_TO_ONE,
    "ReduceMean": _REDUCES,
    "ReduceMin": _REDUCES_TO_ONE,
    "ReduceProd": _REDUCES,
    "ReduceSum": _REDUCES,
    "ReduceSumSquare": _REDUCES_UP,
    # moving data
    "BatchToSpace": _KEEPS,
    "Compress": _KEEPS,
    "Concat": OpTraits(grid="joins", ordered=_ALL, spreads=True),
    "DepthToSpace": _KEEPS,
    "Dropout": OpTraits(grid="keeps", parameters={"ratio": 1, "training_mode": 2}),
    "Expand": OpTraits(grid="keeps", parameters={"shape": 1}, ordered=(0,), sized=True),
    "Flatten": _MOVES,
    "Gather": _MOVES,
    "GatherElements": _MOVES,
    "GatherND": _MOVES,
    "Identity": _MOVES,
    "MaxPool": _KEEPS,
    "MaxRoiPool": _KEEPS,
    "Pad": OpTraits(parameters={"pads": 1, "value": 2, "axes": 3}, spreads=True, sized=True),
    "Reshape": OpTraits(grid="keeps", parameters={"shape": 1}, ordered=(0,), sized=True),
    "Resize": OpTraits(parameters=_RESIZES),
    "Scatter": OpTraits(grid="joins", spreads=True),
    "ScatterElements": OpTraits(grid="joins", spreads=True),
    "ScatterND": OpTraits(grid="joins", spreads=True),
    "Slice": OpTraits(grid="keeps", parameters=_SLICES, ordered=(0,)),
    "SpaceToBatch": _KEEPS,
    "SpaceToDepth": _KEEPS,
    "Split": OpTraits(grid="keeps", parameters={"split": 1}, ordered=(0,)),
    "Squeeze": OpTraits(grid="keeps", parameters={"axes": 1}, ordered=(0,), axes_are_set=True),
    "Tile": OpTraits(grid="keeps", parameters={"repeats": 1}, ordered=(0,), sized=True),
    "TopK": OpTraits(grid="keeps", parameters={"k": 1}),
    "Transpose": _MOVES,
    "Trilu": OpTraits(parameters={"k": 1}, spreads=True),
    "Unsqueeze": OpTraits(grid="keeps", parameters={"axes": 1}, ordered=(0,), axes_are_set=True),
    "Upsample": OpTraits(parameters={"scales": 1}),
    # others
    "ConstantOfShape": OpTraits(sized=True),
    "CumSum": OpTraits(parameters={"axis": 1}),
    "DFT": OpTraits(parameters={"axis": 2}),
    "NonMaxSuppression": OpTraits(settings=(2, 3, 4)),
    "OneHot": OpTraits(settings=(2,)),
    "Range": OpTraits(settings=(0, 1, 2), sized=True),
    "Shape": OpTraits(reads_shape=True),
    "Size": OpTraits(reads_shape=True),
}

_UNKNOWN = OpTraits()

WEIGHTED = tuple(op for op, traits in TABLE.items() if traits.product in ("convolution", "matrix"))
GRID_PRESERVING = frozenset(op_type for op_type, traits in TABLE.items() if traits.grid == "keeps")
GRID_JOINING = frozenset(op_type for op_type, traits in TABLE.items() if traits.grid == "joins")


def traits_of(op_type: str, domain: str = "") -> OpTraits:
    """The traits of an operator; those of no kind if it is not one of ONNX, or has none."""
    return TABLE.get(op_type, _UNKNOWN) if not domain else _UNKNOWN
