"""A constant as one op reads it, which can be given other numbers without changing what others read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qc.ir.facts.constants import is_default
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.arithmetic import fake_quantize
from qc.ir.quant.spec import Quantizer
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter


@dataclass(frozen=True)
class Constant:
    """An input of an op that is a constant, or left out."""

    model: Model
    op: Op
    port: int

    @classmethod
    def at(cls, model: Model, op: Op, port: int) -> Constant | None:
        """That of an input; None if something is computed there, or a caller may feed other numbers."""
        value = cls(model, op, port).value
        is_constant = value is None or (value.const is not None and not is_default(value))
        return cls(model, op, port) if is_constant else None

    @classmethod
    def of_floats(cls, model: Model, op: Op, port: int) -> Constant | None:
        """The same of an input that holds floats; None also if it is left out."""
        found = cls.at(model, op, port)
        return found if found is not None and found.value is not None and found.value.is_float else None

    @property
    def value(self) -> Value | None:
        """What the op reads there, by its original; None if the input is left out."""
        return self._read.original if self._read is not None else None

    @property
    def constant(self) -> Value:
        """What the op reads there; there must be something."""
        assert self._read is not None
        return self._read

    @property
    def is_own(self) -> bool:
        """Whether there is a constant that nothing but this op reads."""
        read = self._read
        return read is not None and read.captured is None and read.is_read_once

    @property
    def is_converted(self) -> bool:
        """Whether the numbers are stored in another type than the op reads them in."""
        return self.value is not None and self.value.const is not None and self.value.const.is_converted

    @property
    def array(self) -> np.ndarray:
        """The numbers; there must be some."""
        assert self.value is not None and self.value.const is not None
        return self.value.const.numpy()

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the numbers; there must be some."""
        assert self.value is not None and self.value.const is not None
        return self.value.const.shape

    @property
    def quantizer(self) -> Quantizer | None:
        """The quantizer that the op sees there."""
        read = self._read
        return self.model.quant.of_use(read, self.op, self.port) if read is not None else None

    def rounded(self, array: np.ndarray) -> np.ndarray:
        """What numbers become on the grid that the op sees; themselves if there is none."""
        quantizer = self.quantizer
        if quantizer is None or quantizer.encoding is None:
            return array
        return fake_quantize(array, quantizer.encoding).astype(array.dtype, copy=False)

    def set(self, rewriter: Rewriter, array: np.ndarray, in_float: bool = True) -> None:
        """Gives the op other numbers to read, in an action; the quantizer that it sees stays the same.

        A constant that others read too, or that has another shape, is left as it is. Without ``in_float`` the
        float model keeps the numbers that it has, if the constant is the op's own.
        """
        read, held = self._read, self.quantizer
        if read is not None and self.is_own and array.shape == self.shape:
            rewriter.set_constant(read, array.astype(self.array.dtype, copy=False), in_float)
            return
        (result, *_) = self.op.outputs
        name = read.name if read is not None else f"{result.name if result is not None else ''}_bias"
        own = rewriter.add_constant(self.op.graph, array, name)
        rewriter.set_input(self.op, self.port, own)
        quant = self.model.quant
        quant.drop_codes(own, "other numbers")
        if held is not None and quant.of_use(own, self.op, self.port) is None:
            quant.place(Site(own, self.op, self.port), held, f"{self.op.label} has numbers of its own")
        if read is not None:
            rewriter.drop_unread(read)

    @property
    def _read(self) -> Value | None:
        inputs = self.op.inputs
        return inputs[self.port] if self.port < len(inputs) else None
