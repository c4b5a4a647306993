"""Folds a batch normalization into the op behind it."""

from __future__ import annotations

import numpy as np

from qc.ir.facts.constants import initializer
from qc.ir.facts.op_traits import bias_port, weight_port
from qc.ir.graph import Op
from qc.ir.rewriter import Rewriter

from .affine import Affine, set_constant
from .products import become_gemm, matrix_of

FORWARD = "fold into weight of the op behind"


def reader_to_fold_into(norm: Op) -> Op | None:
    """The only op that reads what a normalization makes, if that can take its scale and shift.

    That is a Conv of one group without padding, since padded zeros are not shifted, a Gemm, or a MatMul by a
    matrix. In front of a product the channels may be flattened.
    """
    op = _only_reader(norm)
    if op is not None and _flattens(op):
        op = _only_reader(op)
        op = op if op is not None and op.is_type("Gemm", "MatMul") else None
    if op is None or not op.is_type("Conv", "Gemm", "MatMul"):
        return None
    if op.is_type("MatMul"):
        return op if matrix_of(op) is not None else None
    if any(initializer(value) is None for value in op.inputs[1:] if value):
        return None
    if op.is_type("Gemm"):
        return op if not op.attribute("transA", 0) else None
    padded = any(op.attribute("pads", [])) or op.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    return op if op.attribute("group", 1) == 1 and not padded else None


def _only_reader(op: Op) -> Op | None:
    """What alone reads the first result of an op, as data."""
    use = op.only_use
    return use.op if use is not None and use.port == 0 else None


def _flattens(op: Op) -> bool:
    """Whether an op makes rows of samples: all numbers of one channel of a sample stay together."""
    if op.is_type("Flatten"):
        return bool(op.attribute("axis", 1) == 1)
    read, made = op.inputs[0], op.outputs[0]
    before, after = (value.type.shape if value is not None else None for value in (read, made))
    return (
        op.is_type("Reshape")
        and before is not None
        and after is not None
        and len(after) == 2
        and before[0] == after[0]
        and isinstance(before[0], int)
    )


def folded_forward(op: Op, affine: Affine) -> tuple[np.ndarray, np.ndarray] | None:
    """The weight and bias of ``op`` as they are for an input that is not scaled and shifted before.

    Returns:
        None if the number of channels does not fit. A bias of a Gemm is for ``beta = 1``.
    """
    inputs = op.inputs
    matrix = matrix_of(op) if op.is_type("MatMul") else None
    constant = initializer(matrix.value if matrix is not None else inputs[1])
    given = initializer(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else None
    if constant is None:
        return None
    weight = constant.numpy()
    transposed = matrix.transposed if matrix is not None else op.attribute("transB", 0)
    axis = 1 if op.is_type("Conv") or transposed else 0
    if weight.ndim < 2 or weight.shape[axis] % affine.scale.size:
        return None
    each = weight.shape[axis] // affine.scale.size
    if each > 1 and op.is_type("Conv"):
        return None
    along = [-1 if i == axis else 1 for i in range(weight.ndim)]
    others = tuple(i for i in range(weight.ndim) if i != (0 if axis == 1 else 1))
    shift = np.sum(weight * np.repeat(affine.shift, each).reshape(along), axis=others)
    bias = given.numpy().astype(np.float64) if given is not None else 0.0
    if op.is_type("Gemm"):
        shift, bias = shift * op.attribute("alpha", 1.0), bias * op.attribute("beta", 1.0)
    scaled = (weight * np.repeat(affine.scale, each).reshape(along)).astype(weight.dtype)
    return scaled, np.asarray(shift + bias).astype(weight.dtype)


def fold_forward(rewriter: Rewriter, norm: Op, affine: Affine) -> None:
    """Folds a normalization into its reader where that is possible."""
    op = reader_to_fold_into(norm)
    numbers = folded_forward(op, affine) if op is not None else None
    data, result = norm.inputs[0], norm.outputs[0]
    if op is None or numbers is None or data is None or result is None:
        return
    with rewriter.action(FORWARD, op):
        if op.is_type("MatMul"):
            become_gemm(rewriter, op)
        for port, array in zip((weight_port(op), bias_port(op)), numbers, strict=True):
            assert port is not None
            set_constant(rewriter, op, port, array)
        if op.is_type("Gemm") and op.attribute("beta", 1.0) != 1.0:
            rewriter.set_attribute(op, "beta", 1.0)
        rewriter.replace_uses(result, data)
        rewriter.erase_op(norm)
