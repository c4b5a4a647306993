"""What ops that sum products cost, from their shapes alone: multiplications with accumulation.

Elementwise ops, normalizations and look-ups of rows are not among them, and cost next to nothing beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import prod
from typing import Any, NamedTuple

from ..value_type import KnownShape

_MICROSOFT = "com.microsoft"


class Shapes(NamedTuple):
    """What the cost of an op follows from; a shape that is not known, or an input left out, is None.

    Attributes:
        read: the shapes of the inputs.
        made: the shape of the first result.
        attribute: the value of an attribute by its name and a default.
    """

    read: Sequence[KnownShape | None]
    made: KnownShape | None
    attribute: Callable[[str, Any], Any]

    def at(self, port: int) -> KnownShape | None:
        """The shape of an input; None also beyond the last one."""
        return self.read[port] if port < len(self.read) else None


def is_product(op_type: str, domain: str = "") -> bool:
    """Whether an operator sums products, which is nearly all that models compute."""
    return (_plain(domain), op_type) in _COSTS


def multiplications(op_type: str, domain: str, shapes: Shapes) -> int | None:
    """How often such an op multiplies; None if a shape that it depends on is not known, and for other ops."""
    cost = _COSTS.get((_plain(domain), op_type))
    return cost(shapes) if cost is not None else None


# The limit that exporters give a loop with a condition alone is this one, or that of 64 bits.
_NO_LIMIT = 2**31 - 1


def trips(op_type: str, limit: int | None, scanned: KnownShape | None, axis: int = 0) -> int:
    """How often an op runs its body; 1 for an If, and where data decides when a loop ends.

    Args:
        limit: the most iterations of a Loop, if that is a constant.
        scanned: the shape of what a Scan goes over, along ``axis``.
    """
    if op_type == "Loop" and limit is not None:
        return max(limit, 1) if limit < _NO_LIMIT else 1
    return max(scanned[axis], 1) if op_type == "Scan" and scanned else 1


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _convolution(weight: int) -> Callable[[Shapes], int | None]:
    def cost(shapes: Shapes) -> int | None:
        kernel = shapes.at(weight)
        return prod(shapes.made) * prod(kernel[1:]) if shapes.made is not None and kernel else None

    return cost


def _transposed_convolution(shapes: Shapes) -> int | None:
    data, kernel = shapes.at(0), shapes.at(1)
    return prod(data) * prod(kernel[1:]) if data is not None and kernel else None


def _matrix(transposed: str = "") -> Callable[[Shapes], int | None]:
    def cost(shapes: Shapes) -> int | None:
        data, made = shapes.at(0), shapes.made
        if not data or made is None:
            return None
        turned = bool(transposed) and len(data) > 1 and shapes.attribute(transposed, 0)
        return prod(made) * data[-2 if turned else -1]

    return cost


def _recurrent(shapes: Shapes) -> int | None:
    data, weight, of_state = shapes.at(0), shapes.at(1), shapes.at(2)
    if data is None or weight is None or of_state is None:
        return None
    return prod(data[:-1]) * (prod(weight) + prod(of_state))


def _einsum(shapes: Shapes) -> int | None:
    """The product of all lengths: that of the sum when it is written out."""
    lengths: dict[str, int] = {}
    terms = shapes.attribute("equation", "").replace(" ", "").partition("->")[0].split(",")
    for term, shape in zip_longest(terms, shapes.read):
        if shape is None or term is None:
            return None
        before, dots, behind = term.partition("...")
        free = len(shape) - len(before) - len(behind)
        labels = [*before, *(f".{free - index}" for index in range(free)), *behind] if dots else [*term]
        for label, length in zip(labels, shape, strict=False):
            lengths[label] = max(length, lengths.get(label, 1))
    return prod(lengths.values())


def _attention(key: int | None, past: int | None) -> Callable[[Shapes], int | None]:
    """Scores, and sums of values by them; keys are as many as queries where ``key`` is left out."""

    def cost(shapes: Shapes) -> int | None:
        query, made = shapes.at(0), shapes.made
        if query is None or made is None or len(query) < 2 or len(made) < 2:
            return None
        keys = shapes.at(key) if key is not None else None
        before = shapes.at(past) if past is not None else None
        length = (keys[-2] if keys else made[-2]) + (before[-2] if before else 0)
        return 2 * prod(made) * length

    return cost


def _projected_attention(shapes: Shapes) -> int | None:
    data, weight, inside = shapes.at(0), shapes.at(1), _attention(None, None)(shapes)
    return prod(data[:-1]) * prod(weight) + inside if data and weight and inside is not None else None


_COSTS: dict[tuple[str, str], Callable[[Shapes], int | None]] = {
    ("", "Conv"): _convolution(1),
    ("", "ConvInteger"): _convolution(1),
    ("", "ConvTranspose"): _transposed_convolution,
    ("", "DeformConv"): _convolution(1),
    ("", "QLinearConv"): _convolution(3),
    ("", "Gemm"): _matrix("transA"),
    ("", "MatMul"): _matrix(),
    ("", "MatMulInteger"): _matrix(),
    ("", "QLinearMatMul"): _matrix(),
    ("", "Einsum"): _einsum,
    ("", "GRU"): _recurrent,
    ("", "LSTM"): _recurrent,
    ("", "RNN"): _recurrent,
    ("", "Attention"): _attention(1, 4),
    (_MICROSOFT, "Attention"): _projected_attention,
    (_MICROSOFT, "QAttention"): _projected_attention,
    (_MICROSOFT, "MultiHeadAttention"): _attention(1, 6),
    (_MICROSOFT, "GroupQueryAttention"): _attention(1, 3),
    (_MICROSOFT, "DynamicQuantizeLSTM"): _recurrent,
    (_MICROSOFT, "DynamicQuantizeMatMul"): _matrix(),
    (_MICROSOFT, "FusedConv"): _convolution(1),
    (_MICROSOFT, "FusedGemm"): _matrix("transA"),
    (_MICROSOFT, "FusedMatMul"): _matrix("transA"),
    (_MICROSOFT, "MatMulIntegerToFloat"): _matrix(),
    (_MICROSOFT, "MatMulNBits"): _matrix(),
    (_MICROSOFT, "QGemm"): _matrix("transA"),
}
