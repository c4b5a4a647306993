"""Logarithms of 16-bit codes, as a device computes them."""

from __future__ import annotations

import numpy as np

from qc.ir.graph import Op, Value

from .device_writer import Writer

_STEPS = np.float32(1 << 15)  # the device counts what it takes the logarithm of in so many steps for 1
_LEAST = np.float32(1 / (1 << 16))  # and takes half a step for none


def count_argument(writer: Writer, op: Op) -> None:
    """Lets a Log read its argument as the device counts it: in whole steps, rounded down.

    Seen on the emulator of QNN 2.7, on all codes of five grids. What is left differs by a code or two, and by
    four where the argument has hardly any steps.
    """
    (x,) = op.inputs
    assert x is not None

    def made(op_type: str, value: Value, number: np.float32 | None = None) -> Value:
        others = () if number is None else (writer.constant(np.asarray(number)),)
        return writer.made(op_type, (value, *others), x.type, domain="", name=x.name)

    steps = made("Floor", made("Mul", x, _STEPS))
    writer.rewriter.set_input(op, 0, made("Max", made("Mul", steps, 1 / _STEPS), _LEAST))
