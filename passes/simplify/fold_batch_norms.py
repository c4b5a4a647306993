"""Folds batch normalization, and its spellings by elementwise ops, into the weights of the op before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qc.ir.errors import listed
from qc.ir.facts.constants import initializer
from qc.ir.facts.op_traits import bias_port, measures_batch, weight_port
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .batch_norms.affine import Affine, affine_of, constant_of, set_constant
from .batch_norms.forward import fold_forward
from .batch_norms.movement import Channels, channels_of
from .batch_norms.products import become_gemm, matrix_of
from .batch_norms.rows import fold_into_rows

_LEAST_DIVISOR = 1e-30  # a weight that is divided by less may be infinite


@dataclass(frozen=True)
class FoldBatchNorms(Pass):
    """Folds a per-channel scale and shift into the weight and bias of the op before it.

    That op is a Conv, a ConvTranspose or, for a BatchNormalization only, a Gemm, or a MatMul by a matrix,
    which becomes a Gemm; a MatMul of more axes, whose columns the BatchNormalization has behind a Flatten,
    Reshape or Transpose, gets an Add. Constants may lie behind Identity, and the matrix behind a Transpose.

    The scale and shift may be a BatchNormalization, or a Mul, Div, Add or Sub with a constant per channel
    (for a Conv; Paddle and TensorFlow exporters write biases that way), perhaps behind a Transpose, Squeeze
    or Unsqueeze. An op whose result is read elsewhere or is a graph output keeps it, so nothing is folded
    there.

    A BatchNormalization for which there is no such op is folded into the one behind it, if that is a Conv of
    one group without padding, or a product by a matrix, perhaps of flattened data, and nothing else reads it.

    One that measures its batch, as in training, stays. A note says so, unless its parameters are computed, as
    those of a LayerNormalization that Keras writes so.
    """

    name = "fold-batch-norms"
    stage = Stage.FLOAT
    tolerance = 1e-5

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        for graph in model.graphs():
            for fold in (_fold, fold_into_rows):
                for op in graph.ops():
                    if op in graph:
                        fold(rewriter, op)
            for op in graph.ops():
                affine = affine_of(op) if op.is_type("BatchNormalization") else None
                if affine is not None:
                    fold_forward(rewriter, op, affine)
        _tell_of_training(model, context)


def _tell_of_training(model: Model, context: PassContext) -> None:
    trained = [
        op
        for graph in model.graphs()
        for op in graph.ops()
        if measures_batch(op)
        if all(constant_of(value) is not None for value in op.inputs[1:])
    ]
    if trained:
        named = f"{listed([op.label for op in trained], 1)} {'normalize' if trained[1:] else 'normalizes'}"
        text = f"{named} each batch by its own mean and variance, as in training"
        context.notes.append(f"{text}: export the model for inference (model.eval() in PyTorch)")


def _fold(rewriter: Rewriter, op: Op) -> None:
    data = _data_input(op)
    result = op.outputs[0] if data is not None else None
    if data is None or result is None or not data.is_read_once:
        return
    found = channels_of(data)
    producer = found.made.producer if found is not None else None
    channels = _channels(producer) if producer is not None else None
    if found is None or producer is None or not channels:
        return
    affine = _affine(op, data, producer, found, channels)
    if affine is None:
        return
    with rewriter.action("fold into weight", producer):
        _apply(rewriter, producer, affine)
        rewriter.replace_uses(result, data)
        rewriter.erase_op(op)


def _data_input(op: Op) -> Value | None:
    """The input of an affine op that is not constant; None if this is no affine op."""
    inputs = op.inputs
    if op.is_type("BatchNormalization"):
        return inputs[0]
    if op.is_type("Mul", "Div", "Add", "Sub"):
        varying = [value for value in inputs if value is not None and initializer(value) is None]
        is_divisor = op.is_type("Div") and varying[:1] != [inputs[0]]
        return varying[0] if len(varying) == 1 and not is_divisor else None
    return None


def _channels(op: Op) -> int | None:
    """The number of output channels of an op whose weight and bias are constants; None for any other op."""
    if op.is_type("MatMul"):
        matrix = matrix_of(op)
        return matrix.channels if matrix is not None else None
    if not op.is_type("Conv", "ConvTranspose", "Gemm"):
        return None
    weight, bias = _constant(op, weight_port(op)), _constant(op, bias_port(op))
    if weight is None or (bias is None and _is_given(op, bias_port(op))):
        return None
    channels = _weight_channels(op, weight.shape)
    fits = channels is None or bias is None or _bias_fits(op, bias.shape, channels)
    return channels if fits else None


def _weight_channels(op: Op, shape: tuple[int, ...]) -> int | None:
    """The number of output channels; None if the weight has a shape that no such op takes."""
    if op.is_type("Gemm"):
        return shape[0 if op.attribute("transB", 0) else 1] if len(shape) == 2 else None
    if len(shape) < 3:
        return None
    group = int(op.attribute("group", 1))
    if op.is_type("Conv"):
        return shape[0]
    return shape[1] * group if group > 0 and shape[0] % group == 0 else None


def _bias_fits(op: Op, shape: tuple[int, ...], channels: int) -> bool:
    if op.is_type("Gemm"):
        return len(shape) <= 2 and shape[-1:] in ((), (1,), (channels,))
    return shape == (channels,)


def _is_given(op: Op, port: int | None) -> bool:
    return port is not None and port < op.num_inputs and op.inputs[port] is not None


def _constant(op: Op, port: int | None) -> TensorRef | None:
    if port is None or not _is_given(op, port):
        return None
    return constant_of(op.inputs[port])


def _affine(op: Op, data: Value, producer: Op, found: Channels, channels: int) -> Affine | None:
    is_product, is_moved = producer.is_type("Gemm", "MatMul"), found.made is not data
    if op.is_type("BatchNormalization"):
        affine = affine_of(op) if found.axis == 1 and not (is_product and is_moved) else None
        return affine if affine is not None and affine.scale.shape == (channels,) else None
    if is_product:
        return None
    constant = next(initializer(value) for value in op.inputs if value is not None and value is not data)
    weight = _constant(producer, weight_port(producer))
    if constant is None or weight is None:
        return None
    numbers = _per_channel(constant, found, channels)
    return _elementwise(op, data, numbers) if numbers is not None else None


def _elementwise(op: Op, data: Value, numbers: np.ndarray) -> Affine | None:
    """What an op with one number for each channel does to its data; None for a division by next to zero."""
    ones, zeros = np.ones_like(numbers), np.zeros_like(numbers)
    if op.is_type("Mul"):
        return Affine(numbers, zeros)
    if op.is_type("Div"):
        is_sound = bool((np.abs(numbers) > _LEAST_DIVISOR).all())
        return Affine(1 / numbers, zeros) if is_sound else None
    if op.is_type("Add"):
        return Affine(ones, numbers)
    is_minuend = op.inputs[0] is data
    return Affine(ones, -numbers) if is_minuend else Affine(-ones, numbers)


def _per_channel(constant: TensorRef, found: Channels, channels: int) -> np.ndarray | None:
    """The numbers of a constant that broadcasts over all axes but that of the channels."""
    shape = (1,) * (found.rank - len(constant.shape)) + constant.shape
    if len(shape) != found.rank or any(size != 1 for axis, size in enumerate(shape) if axis != found.axis):
        return None
    if shape[found.axis] not in (1, channels):
        return None
    return np.broadcast_to(constant.numpy().astype(np.float64).reshape(-1), (channels,))


def _apply(rewriter: Rewriter, op: Op, affine: Affine) -> None:
    """Scales the weight and the bias of ``op`` and adds the shift to the bias; both become new constants."""
    if op.is_type("MatMul"):
        become_gemm(rewriter, op)
    port, bias_at = weight_port(op), bias_port(op)
    assert port is not None and bias_at is not None
    weight, bias = _constant(op, port), _constant(op, bias_at)
    assert weight is not None
    array = weight.numpy()
    scaled = array * _along_channels(op, affine.scale, array.shape)
    beta = float(op.attribute("beta", 1.0)) if op.is_type("Gemm") else 1.0
    old_bias = bias.numpy().astype(np.float64) * beta if bias is not None else 0.0
    new_bias = (old_bias * affine.scale + affine.shift).astype(array.dtype)
    set_constant(rewriter, op, port, scaled.astype(array.dtype))
    set_constant(rewriter, op, bias_at, new_bias)
    if beta != 1.0:
        rewriter.set_attribute(op, "beta", 1.0)


def _along_channels(op: Op, scale: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``scale`` broadcast over a weight of ``shape``."""
    if op.is_type("Gemm"):
        return scale[:, None] if op.attribute("transB", 0) else scale[None, :]
    spatial = (1,) * (len(shape) - 2)
    if op.is_type("Conv"):
        return scale.reshape(-1, 1, *spatial)
    group = int(op.attribute("group", 1))
    per_group = np.repeat(scale.reshape(group, shape[1]), shape[0] // group, axis=0)
    return per_group.reshape(shape[0], shape[1], *spatial)
