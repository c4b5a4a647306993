"""Folds a batch normalization into the product of rows that its data was moved from, and its bias."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from qc.ir.graph import Op, Value
from qc.ir.rewriter import Rewriter

from .affine import Affine, affine_of, constant_of, set_constant
from .movement import channels_of
from .products import Matrix, stored_matrix


class _Linear(NamedTuple):
    """A product of rows by a matrix, and the Add of its bias with the port of that, if there is one."""

    product: Op
    matrix: Matrix
    add: Op | None = None
    port: int = 0


def fold_into_rows(rewriter: Rewriter, norm: Op) -> None:
    """Folds a normalization of the columns of a product of any rank, where nothing else reads that."""
    affine = affine_of(norm) if norm.is_type("BatchNormalization") else None
    if affine is None:
        return
    data, result = norm.inputs[0], norm.outputs[0]
    if data is None or result is None or not data.is_read_once:
        return
    found = channels_of(data)
    linear = _linear_of(found.made) if found is not None and found.axis == 1 else None
    if found is None or linear is None or affine.scale.shape != (linear.matrix.channels,):
        return
    with rewriter.action("fold into weight", linear.product):
        _apply(rewriter, linear, affine, found.made)
        rewriter.replace_uses(result, norm.inputs[0] or data)
        rewriter.erase_op(norm)


def _linear_of(made: Value) -> _Linear | None:
    op = made.producer
    if op is not None and op.is_type("MatMul"):
        matrix = stored_matrix(op)
        return _Linear(op, matrix) if matrix is not None else None
    inputs = op.inputs if op is not None and op.is_type("Add") else []
    for port, (bias, product) in enumerate(zip(inputs, reversed(inputs), strict=True)):
        const = constant_of(bias)
        maker = product.producer if product is not None and product.is_read_once else None
        if const is None or maker is None or not maker.is_type("MatMul"):
            continue
        matrix = stored_matrix(maker)
        if matrix is not None and const.shape == (matrix.channels,):
            return _Linear(maker, matrix, op, port)
    return None


def _apply(rewriter: Rewriter, linear: _Linear, affine: Affine, made: Value) -> None:
    """Scales the columns of the matrix and the bias, and adds the shift, by a new Add if there is no bias."""
    product, matrix, add, port = linear
    read, stored = product.inputs[1], matrix.value.const
    assert stored is not None
    weight = stored.numpy().T if matrix.transposed else stored.numpy()
    rewriter.set_input(product, 1, matrix.value)
    rewriter.erase_unread(read)
    set_constant(rewriter, product, 1, (weight * affine.scale).astype(weight.dtype))
    given = constant_of(add.inputs[port]) if add is not None else None
    before = given.numpy().astype(np.float64) if given is not None else 0.0
    bias = (before * affine.scale + affine.shift).astype(weight.dtype)
    if add is not None:
        set_constant(rewriter, add, port, bias)
        return
    shifted = rewriter.add_value(made.graph, made.name, made.type)
    rewriter.replace_uses(made, shifted)
    name = f"{product.name or product.op_type}.bias"
    rewriter.add_op(made.graph, "Add", [made, rewriter.add_constant(made.graph, bias, name)], [shifted])
