"""Tanh, in a form that a device computes rightly."""

from __future__ import annotations

from math import prod

from qc.ir.graph import Op, Value

from .builder import Builder, Lengths, Writer, lengths_of

_WRONG = 16  # places


def tangent(op: Op) -> Writer | None:
    """A Tanh of 16 places in a row as one of a single place.

    Behind a product or a convolution the HTP computes other numbers altogether of them in 16 bits: of 16 rows
    of a matrix, and of a picture that is 1 high and 16 wide.
    """
    data, shape = op.inputs[0], lengths_of(op.outputs[0])
    if data is None or shape is None or not _is_row_of(shape, _WRONG):
        return None
    flat = (1, prod(shape))

    def write(build: Builder) -> list[Value | None]:
        return [build.reshape(build.op("Tanh", build.reshape(data, flat), shape=flat), shape)]

    return write


def _is_row_of(shape: Lengths, places: int) -> bool:
    """Whether channels lie last and nothing else is longer than 1, or second and the last axis alone is."""
    last, second = shape[:-1], (*shape[:1], *shape[2:])
    return any(ones[-1:] == (places,) and set(ones[:-1]) <= {1} for ones in (last, second))
