"""Facts about ONNX operators that quantization rests on: weights, channel axes, and what keeps a grid.

All of them follow from the operator definitions of ONNX; what a device can run is in the targets.
"""

from __future__ import annotations

from ..graph import Op, Value

# Input ports of (weight, bias) of ops that multiply by a weight.
_WEIGHTED = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (1, 2),
    "MatMul": (1, None),
    "LSTM": (1, 3),
    "GRU": (1, 3),
    "RNN": (1, 3),
}

# Input ports of what is trained, by kind.
_WEIGHT_AND_BIAS = {"weight": 1, "bias": 2}
_RECURRENT = {"weight": 1, "weight_r": 2, "bias": 3}
_TRAINED = {
    "Conv": _WEIGHT_AND_BIAS,
    "ConvTranspose": _WEIGHT_AND_BIAS,
    "Gemm": _WEIGHT_AND_BIAS,
    "MatMul": {"weight": 1},
    "LayerNormalization": _WEIGHT_AND_BIAS,
    "GroupNormalization": _WEIGHT_AND_BIAS,
    "InstanceNormalization": _WEIGHT_AND_BIAS,
    "BatchNormalization": {"weight": 1, "bias": 2, "running_mean": 3, "running_var": 4},
    "RMSNormalization": {"weight": 1},
    "RNN": _RECURRENT,
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
}

# Ops whose output holds only values of their first input: the grid of the input holds for the output.
GRID_PRESERVING = frozenset(
    {
        "BatchToSpace",
        "Compress",
        "DepthToSpace",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "MaxPool",
        "MaxRoiPool",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Slice",
        "SpaceToBatch",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "TopK",
        "Transpose",
        "Unsqueeze",
    }
)

# Ops that join several tensors whose values pass unchanged: all of them need one grid to stay in integers.
GRID_JOINING = frozenset({"Concat", "ScatterElements", "ScatterND", "Scatter"})

# Input ports that hold parameters of the operation rather than data that flows through it.
_PARAMETER_PORTS = {
    "Clip": {1, 2},
    "Pad": {1, 2, 3},
    "Resize": {1, 2, 3},
    "Upsample": {1},
    "Dropout": {1, 2},
    "BatchNormalization": {1, 2, 3, 4},
    "LayerNormalization": {1, 2},
    "InstanceNormalization": {1, 2},
    "GroupNormalization": {1, 2},
    "RMSNormalization": {1},
    "Pow": {1},
    "OneHot": {2},
    "NonMaxSuppression": {2, 3, 4},
    "Range": {0, 1, 2},
    "PRelu": {1},
}


def weight_port(op: Op) -> int | None:
    """The input port of the weight of ``op``; None if it is not an op with a weight."""
    return _WEIGHTED[op.op_type][0] if not op.domain and op.op_type in _WEIGHTED else None


def bias_port(op: Op) -> int | None:
    """The input port of the bias of ``op``; None if it has none by definition."""
    return _WEIGHTED[op.op_type][1] if not op.domain and op.op_type in _WEIGHTED else None


def is_parameter(op: Op, port: int) -> bool:
    """Whether input ``port`` is a parameter of the operation and not data (a Clip limit, a Resize scale)."""
    return not op.domain and port in _PARAMETER_PORTS.get(op.op_type, ())


def trained_ports(op_type: str) -> dict[str, int]:
    """The input ports of trained parameters of an op of ONNX, by kind, such as ``weight`` and ``bias``."""
    return _TRAINED.get(op_type, {})


def is_trained(value: Value) -> bool:
    """Whether a constant is a trained parameter of an op, read directly or behind Identity or Transpose.

    Scale and bias of a region that counts as one op are trained too.
    """
    if value.const is None:
        return False
    pending = [value]
    for read in pending:
        for op, port in read.graph.uses(read):
            if not op.domain and port in trained_ports(op.op_type).values():
                return True
            region = op.region
            if region is not None and any(region.captures.get(name) is value for name in ("scale", "bias")):
                return True
            if op.is_type("Identity", "Transpose"):
                pending += [moved for moved in op.graph.op_outputs(op) if moved is not None]
    return False


def is_grid_preserving(op: Op) -> bool:
    """Whether every output value is a value of input 0 (MaxPool, Reshape, nearest Resize and so on)."""
    return not op.domain and (op.op_type in GRID_PRESERVING or _repeats_nearest(op))


def _repeats_nearest(op: Op) -> bool:
    """Whether a Resize only repeats or leaves out elements; cropped, it can put in a number of its own."""
    crops = op.attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    return op.is_type("Resize", "Upsample") and op.attribute("mode", "nearest") == "nearest" and not crops


def channel_axis(op: Op, weight: Value) -> int | None:
    """The output-channel axis of the weight of ``op``; None if it has none that all devices agree on."""
    rank = len(weight.type.shape) if weight.type.shape is not None else None
    if op.is_type("Conv"):
        return 0
    if op.is_type("ConvTranspose"):
        return 1 if op.attribute("group", 1) == 1 else None
    if op.is_type("Gemm"):
        return 0 if op.attribute("transB", 0) else 1
    if op.is_type("MatMul") and rank == 2:  # no device takes scales per channel of a stack of matrices
        return 1
    return None


def input_channel_axis(op: Op, weight: Value) -> int | None:
    """The axis of the weight along which products are summed, for blocks; None for other ops."""
    rank = len(weight.type.shape) if weight.type.shape is not None else None
    if op.is_type("Conv"):
        return 1
    if op.is_type("Gemm"):
        return 1 if op.attribute("transB", 0) else 0
    if op.is_type("MatMul") and rank is not None and rank >= 2:
        return rank - 2
    return None


def weighted_op(value: Value) -> Op | None:
    """The first op whose weight a value is; None if it is the weight of none."""
    return next((use.op for use in value.graph.uses(value) if weight_port(use.op) == use.port), None)


def kernel_axes(op: Op | None, weight: Value) -> tuple[int, ...]:
    """The axes of the kernel in the weight of a convolution; none for other ops."""
    rank = len(weight.type.shape or ())
    return tuple(range(2, rank)) if op is not None and op.is_type("Conv", "ConvTranspose") else ()
