"""Products by a constant matrix, which have a bias once they are Gemm ops."""

from __future__ import annotations

from typing import NamedTuple

from qc.ir.graph import Op, Value
from qc.ir.rewriter import Rewriter

from .affine import stored


class Matrix(NamedTuple):
    """The matrix that a MatMul multiplies rows by.

    Attributes:
        value: the constant, as it is stored.
        transposed: whether a Transpose lies between it and the op.
    """

    value: Value
    transposed: bool

    @property
    def channels(self) -> int:
        """Columns of the product."""
        assert self.value.const is not None
        return self.value.const.shape[0 if self.transposed else 1]


def matrix_of(op: Op) -> Matrix | None:
    """The constant matrix of a MatMul whose data has two axes; None if there is none."""
    data = op.inputs[0]
    if data is None or data.type.rank != 2:
        return None
    return stored_matrix(op)


def stored_matrix(op: Op) -> Matrix | None:
    """The constant matrix of a MatMul of data of any rank; None if there is none."""
    read = op.inputs[1]
    turned = read.producer if read is not None else None
    transposed = turned is not None and turned.is_type("Transpose")
    if transposed:
        assert turned is not None
        read = turned.inputs[0]
    found = stored(read)
    if found is None or found.const is None or len(found.const.shape) != 2:
        return None
    if transposed and turned is not None and tuple(turned.attribute("perm", (1, 0))) != (1, 0):
        return None
    return Matrix(found, transposed)


def become_gemm(rewriter: Rewriter, op: Op) -> None:
    """Makes a Gemm without bias of a MatMul that has a matrix."""
    matrix, read = matrix_of(op), op.inputs[1]
    assert matrix is not None
    rewriter.set_type_of_op(op, "Gemm")
    rewriter.set_input(op, 1, matrix.value)
    if matrix.transposed:
        rewriter.set_attribute(op, "transB", 1)
    rewriter.erase_unread(read)
