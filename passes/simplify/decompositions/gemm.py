"""A Gemm in the form that kernels for integers have: no factors, and a bias of one number for each column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value
from qc.ir.value_type import Shape

from .builder import Builder, Writer, result_shape


def gemm(op: Op, by_data: bool) -> Writer | None:
    """A Gemm whose weight and bias hold the factors, and an Add of what is no bias; None if it is such.

    Without ``by_data``, where the target has none, one whose weight is computed is a MatMul.
    """
    parts = Gemm(op)
    if parts.columns is None:
        return None
    if not by_data and parts.multiplies_data:
        return lambda build: [parts.write(build, is_matmul=True)]
    return None if parts.is_plain else lambda build: [parts.write(build)]


@dataclass(frozen=True)
class Gemm:
    """A Gemm, or what has its inputs and attributes."""

    op: Op

    @property
    def columns(self) -> int | None:
        """How many the result has, if that is known."""
        last = self._shape[-1] if self._shape else None
        return last if isinstance(last, int) else None

    @property
    def is_plain(self) -> bool:
        """Whether it is such a Gemm already."""
        bias, addend = self._bias, fixed_constant(self._addend)
        is_bias = bias is not None and addend is not None and addend.size == bias.size
        return self._factor("alpha") == 1 and (
            not self._reads_addend or (is_bias and self._factor("beta") == 1)
        )

    @property
    def multiplies_data(self) -> bool:
        """Whether the weight is computed."""
        return fixed_constant(self.op.inputs[1]) is None

    def write(self, build: Builder, is_matmul: bool = False) -> Value:
        """The plain Gemm, with a product by ``alpha`` and an Add behind it where these are not constants.

        A MatMul in its place, which transposes nothing, has the bias behind it.
        """
        data, weight = self.op.inputs[:2]
        shape, alpha, constant = self._shape, self._factor("alpha"), fixed_constant(weight)
        if constant is not None and alpha != 1:
            weight = build.constant(constant.numpy() * alpha, "weight")
        is_scaled = constant is not None or alpha == 1
        takes_bias = is_scaled and not is_matmul
        bias = build.constant(self._bias, "bias") if self._bias is not None and takes_bias else None
        turned = {name: self.op.attribute(name, 0) for name in ("transA", "transB")}
        if is_matmul:
            pairs = zip((data, weight), turned.values(), strict=True)
            made = build.op(
                "MatMul", *(_turned(build, one) if turn else one for one, turn in pairs), shape=shape
            )
        else:
            made = build.gemm(data, weight, bias, shape=shape, **turned)
        if not is_scaled:
            made = build.op("Mul", made, build.constant(alpha, "alpha"), shape=shape)
        if bias is None and self._addend is not None:
            made = build.op("Add", made, self._scaled(build, self._addend), shape=shape)
        return made

    def _factor(self, name: str) -> np.ndarray:
        return np.array(self.op.attribute(name, 1.0), np.float32)

    @property
    def _shape(self) -> Shape | None:
        return result_shape(self.op)

    @property
    def _reads_addend(self) -> bool:
        return any(value is not None for value in self.op.inputs[2:])

    @property
    def _addend(self) -> Value | None:
        """What is added, if it is anything."""
        return self.op.inputs[2] if self._reads_addend and self._factor("beta") else None

    @property
    def _bias(self) -> np.ndarray | None:
        """One number for each column, if that is what is added."""
        addend, columns = fixed_constant(self._addend), self.columns
        if addend is None or columns is None or addend.size not in (1, columns):
            return None
        if addend.size != 1 and addend.shape[-1] != columns:  # one for each row
            return None
        numbers = addend.numpy().ravel() * self._factor("beta")
        return np.broadcast_to(numbers, columns)

    def _scaled(self, build: Builder, addend: Value) -> Value:
        beta = self._factor("beta")
        if beta == 1:
            return addend
        return build.op("Mul", addend, build.constant(beta, "beta"), shape=addend.type.shape)


def _turned(build: Builder, matrix: Value | None) -> Value:
    shape = matrix.type.shape if matrix is not None else None
    return build.op("Transpose", matrix, shape=shape[::-1] if shape else None, perm=[1, 0])
