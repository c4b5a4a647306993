"""A scale and a shift of each channel, and the constants that they are folded into."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qc.ir.errors import ModelError
from qc.ir.facts.constants import initializer
from qc.ir.facts.op_traits import measures_batch
from qc.ir.graph import Op, Value
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef


@dataclass(frozen=True)
class Affine:
    """``y = x * scale + shift`` with one scale and shift (float64, shape ``(channels,)``) per channel."""

    scale: np.ndarray
    shift: np.ndarray


def stored(value: Value | None) -> Value | None:
    """The constant that a value is, or that Identity ops hand on to it."""
    while value is not None and initializer(value) is None:
        producer = value.producer
        value = producer.inputs[0] if producer is not None and producer.is_type("Identity") else None
    return value


def constant_of(value: Value | None) -> TensorRef | None:
    """The data of :func:`stored`."""
    found = stored(value)
    return initializer(found)


def set_constant(rewriter: Rewriter, op: Op, port: int, array: np.ndarray) -> None:
    """Lets an op read other numbers: in its constant, or in a new one if others read that, too."""
    read = op.inputs[port] if port < op.num_inputs else None
    old = stored(read)
    const = old.const if old is not None else None  # not of the graph around
    if old is not None and const is not None and const.shape == array.shape and _is_alone(read):
        if old.is_input:
            rewriter.fix_default(old)
        rewriter.set_constant(old, array)
        rewriter.set_input(op, port, old)
    else:
        name = f"{old.name}_folded" if old is not None else f"{op.name or op.op_type}.bias"
        rewriter.set_input(op, port, rewriter.add_constant(op.graph, array, name))
    rewriter.erase_unread(read)


def _is_alone(value: Value | None) -> bool:
    """Whether a constant, and all that hands it on up to a value, is read once."""
    while value is not None:
        if not value.is_read_once:
            return False
        producer = value.producer
        value = producer.inputs[0] if producer is not None else None
    return True


def affine_of(op: Op) -> Affine | None:
    """What a BatchNormalization with constant parameters does; None for one that is being trained.

    Raises:
        ModelError: it makes NaN or infinity of finite data.
    """
    parameters = [constant_of(value) for value in op.inputs[1:5]]
    if measures_batch(op):
        return None
    shapes = {parameter.shape if parameter is not None else None for parameter in parameters}
    if len(parameters) != 4 or len(shapes) != 1 or None in shapes:
        return None
    gamma, beta, mean, variance = (p.numpy().astype(np.float64) for p in parameters if p is not None)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = gamma / np.sqrt(variance + op.attribute("epsilon", 1e-5))
    affine = Affine(scale, beta - mean * scale)
    if not np.isfinite(affine.scale).all() or not np.isfinite(affine.shift).all():
        raise ModelError(f"{op.label} makes NaN or infinity of finite data: {_cause(op)}; mend the model")
    return affine


def _cause(op: Op) -> str:
    """Which parameter of a batch normalization has no finite scale and shift, and why."""
    values = [value for value in op.inputs[1:5] if value is not None]
    for name, value in zip(("scale", "bias", "mean", "variance"), values, strict=True):
        data = constant_of(value)
        low, high = data.extremes() if data is not None else (0.0, 0.0)
        if not np.isfinite((low, high)).all():
            return f"its {name} '{value.name}' holds NaN or infinity"
        if name == "variance":
            return (
                f"its variance '{value.name}' holds {low:g}, and with epsilon there is no root to divide by"
            )
    return "its parameters are too large"
