"""What the operators of ONNX mean for one op of a graph: weights, channel axes, and what keeps a grid."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import onnx

from ..graph import Op, Use, Value
from .constants import fixed_constant
from .op_table import OpTraits, traits_of

RANDOM = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
)


def traits(op: Op) -> OpTraits:
    """The facts about the operator of ``op``."""
    return traits_of(op.op_type, op.domain)


@cache
def axes_by_input(op_type: str, opset: int) -> bool:
    """Whether an operator along axes, such as ReduceMean, takes them as an input, as newer opsets do."""
    return "axes" not in onnx.defs.get_schema(op_type, opset).attributes


def weight_port(op: Op) -> int | None:
    """The input port of the weight of ``op``; None if it is not an op with a weight."""
    found = traits(op)
    return found.trained["weight"] if found.product else None


def weight_ports(op: Op) -> tuple[int, ...]:
    """The input ports of all its weights: a recurrent op has two, for its data and for its state."""
    found = traits(op)
    weights = (port for kind, port in found.trained.items() if kind.startswith("weight"))
    return tuple(weights) if found.product else ()


def bias_port(op: Op) -> int | None:
    """The input port of the bias of ``op``; None if it has none by definition."""
    found = traits(op)
    return found.trained.get("bias") if found.product else None


def is_parameter(op: Op, port: int) -> bool:
    """Whether input ``port`` is a parameter of the operation and not data (a Clip limit, a Resize scale)."""
    found = traits(op)
    if port in found.settings or port in found.parameters.values():
        return True
    return not found.product and port in found.trained.values()


def is_trained(value: Value) -> bool:
    """Whether a constant is a trained parameter of an op, read directly or behind Identity or Transpose.

    The op may be in a body that captures the constant. Scale and bias of a region that counts as one op are
    trained too.
    """
    if value.const is None:
        return False
    pending = [value]
    for read in pending:
        for op, port in read.uses:
            if port in traits(op).trained.values():
                return True
            region = op.region
            if region is not None and any(region.captures.get(name) is value for name in ("scale", "bias")):
                return True
            if op.is_type("Identity", "Transpose"):
                pending += [moved for moved in op.outputs if moved is not None]
            elif not isinstance(port, int):
                inside = (held for body in op.subgraphs.values() for held in body.values())
                pending += [held for held in inside if held.captured is read]
    return False


def is_grid_preserving(op: Op) -> bool:
    """Whether every output value is a value of input 0 (MaxPool, Reshape, nearest Resize and so on)."""
    return traits(op).grid == "keeps" or _repeats_nearest(op)


def stays_within(op: Op) -> bool:
    """Whether every output value lies between values of input 0, as what a Resize interpolates linearly."""
    return _is_resize(op) and op.attribute("mode", "nearest") == "linear"


def joins_grids(op: Op) -> bool:
    """Whether the results hold only numbers of several inputs (Concat, ScatterND and so on)."""
    return traits(op).grid == "joins"


def reads_shape_only(op: Op) -> bool:
    """Whether ``op`` reads the shape of a tensor and not its numbers."""
    return traits(op).reads_shape


def _repeats_nearest(op: Op) -> bool:
    """Whether a Resize only repeats or leaves out elements; cropped, it can put in a number of its own."""
    return _is_resize(op) and op.attribute("mode", "nearest") == "nearest"


def _is_resize(op: Op) -> bool:
    """Whether it makes other lengths of a whole picture."""
    crops = op.attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    return op.is_type("Resize", "Upsample") and not crops


def channel_axis(op: Op, weight: Value) -> int | None:
    """The output-channel axis of the weight of ``op``; None if it has none that all devices agree on."""
    rank = weight.type.rank
    if op.is_type("Conv"):
        return 0
    if op.is_type("ConvTranspose"):
        return 1 if op.attribute("group", 1) == 1 else None
    if op.is_type("Gemm"):
        return 0 if op.attribute("transB", 0) else 1
    if op.is_type("MatMul") and rank == 2:  # no device takes scales per channel of a stack of matrices
        return 1
    if traits(op).product == "recurrent":  # the gates, after the directions
        return 1
    return None


def input_channel_axis(op: Op, weight: Value) -> int | None:
    """The axis of the weight along which products are summed, for blocks; None for other ops."""
    rank = weight.type.rank
    if op.is_type("Conv"):
        return 1
    if op.is_type("Gemm"):
        return 1 if op.attribute("transB", 0) else 0
    if op.is_type("MatMul") and rank is not None and rank >= 2:
        return rank - 2
    return None


class WeightAxes(NamedTuple):
    """The axes along which a weight may have several scales; None where there is no such axis.

    Attributes:
        channel: that of the outputs.
        block: that of the inputs, along which products are summed.
    """

    channel: int | None
    block: int | None


def weight_axes(use: Use, value: Value) -> WeightAxes | None:
    """The axes of a constant as one op reads it; None if it is no weight there.

    Weights are also the matrices that Gather looks rows up in, as an embedding does, and those that are
    transposed on their way to a product. Where both read one matrix, as tied embeddings do, the axes agree.
    """
    op, port = use
    if port in weight_ports(op):
        return WeightAxes(channel_axis(op, value), input_channel_axis(op, value))
    if port != 0 or value.type.rank != 2:
        return None
    if op.is_type("Gather"):
        rows = op.attribute("axis", 0) % 2
        return WeightAxes(rows, 1 - rows)
    (result, *_) = op.outputs
    if not op.is_type("Transpose") or result is None or result.is_output:
        return None
    found = {weight_axes(reader, result) for reader in result.uses}
    axes = found.pop() if len(found) == 1 else None
    if axes is None or op.attribute("perm", [1, 0]) != [1, 0]:
        return axes
    return WeightAxes(*(1 - axis if axis is not None else None for axis in axes))


def weighted_op(value: Value) -> Op | None:
    """The first op whose weight a value is; None if it is the weight of none."""
    return next((use.op for use in value.uses if weight_port(use.op) == use.port), None)


def kernel_axes(op: Op | None, weight: Value) -> tuple[int, ...]:
    """The axes of the kernel in the weight of a convolution; none for other ops."""
    rank = len(weight.type.shape or ())
    return tuple(range(2, rank)) if op is not None and traits(op).product == "convolution" else ()


def is_depthwise(op: Op) -> bool:
    """Whether an op is a Conv of several channels, each of which has filters of its own."""
    weight, group = op.inputs[1] if op.is_type("Conv") else None, op.attribute("group", 1)
    shape = weight.type.shape if weight is not None else None
    return shape is not None and group > 1 and shape[:2] == (group, 1)


def measures_batch(op: Op) -> bool:
    """Whether an op is a BatchNormalization that trains; before opset 14 further outputs say so."""
    further = any(value is not None for value in op.outputs[1:])
    return op.is_type("BatchNormalization") and (further or bool(op.attribute("training_mode", 0)))


def is_random(op: Op) -> bool:
    """Whether an op makes other numbers in every run, as a Dropout does that trains."""
    return op.is_type(*RANDOM) or (op.is_type("Dropout") and trains(op))


def trains(op: Op) -> bool:
    """Whether a Dropout may drop numbers, which it does from opset 12 on where its third input says so."""
    _, ratio, training = (*op.inputs, None, None)[:3]
    share, said = fixed_constant(ratio), fixed_constant(training)
    if share is not None and share.size == 1 and not share.numpy().item():
        return False
    return training is not None and (said is None or bool(said.numpy().item()))
