"""One step of an LSTM or a GRU, written out."""

from __future__ import annotations

from ..fragments import either, fixed
from ..pattern import Pattern, op, results, value
from ..supergroup import BLOCK, supergroup
from .activations import sigmoid


@supergroup(BLOCK)
def lstm_cell() -> Pattern:
    """the gates of an LSTM: f * c + i * g, o * tanh(c).

    The gates are made of sums that stay outside. Both the cell and the output are results.
    """
    forget, keep, output = (_gate(value(name)) for name in ("f", "i", "o"))
    cell = forget * value("c") + keep * op.Tanh(value("g"))
    return results(output * op.Tanh(cell), cell)


@supergroup(BLOCK)
def gru_cell() -> Pattern:
    """the gates of a GRU: (1 - z) * n + z * h.

    The reset gate is inside where it is applied to a product.
    """
    h, z = value("h"), _gate(value("z")) | value("z")
    reset = _gate(value("r")) * value()
    n = op.Tanh(reset + value() | value("n"))
    kept = fixed(1) - z
    return either(
        kept * n + z * h,
        kept * h + z * n,
        n + z * (h - n),
        h + z * (n - h),
        h - z * (h - n),
        n - z * (n - h),
        n - z * n + z * h,
        h - z * h + z * n,
    )


def _gate(x: Pattern) -> Pattern:
    return sigmoid(x) | op.HardSigmoid(x)
