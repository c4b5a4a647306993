"""Pieces that the catalogue is written with: each covers the spellings of one small formula."""

from __future__ import annotations

from qc.ir.graph import Value
from qc.ir.tensor_ref import TensorRef

from .attributes import known_attributes, scalar_of
from .conditions import COMMUTATIVE
from .pattern import Attribute, Number, Pattern, as_pattern, constant, op, value

_Sides = tuple[tuple[Pattern, ...], tuple[Pattern, ...]]


def either(first: Pattern, *others: Pattern) -> Pattern:
    """The given patterns as alternatives, in order."""
    for other in others:
        first = first | other
    return first


def chain(*op_types: str) -> Pattern:
    """Ops that follow each other: ``chain("Conv", "BatchNormalization", "Relu")``.

    Each op reads the one before as its first input, or as either input if they can be swapped.
    """
    pattern: Pattern = op[op_types[0]](...)
    for op_type in op_types[1:]:
        pattern = op[op_type](pattern, value()) if op_type in COMMUTATIVE else op[op_type](pattern, ...)
    return pattern


def product(*factors: Pattern | Number) -> Pattern:
    """A product in any order and any bracketing: ``(a*b)*c``, ``a*(b*c)``, ``(a*c)*b`` and so on."""
    return _product(tuple(as_pattern(factor) for factor in factors))


def _product(factors: tuple[Pattern, ...]) -> Pattern:
    if len(factors) == 1:
        return factors[0]
    return either(*(_product(left) * _product(right) for left, right in _splits(factors)))


def _splits(factors: tuple[Pattern, ...]) -> list[_Sides]:
    """All ways to part the factors in two, without regard to order; equal factors are not told apart."""
    found: dict[frozenset[tuple[int, ...]], _Sides] = {}
    for mask in range(1, 2 ** (len(factors) - 1)):
        left = tuple(factor for index, factor in enumerate(factors) if mask >> index & 1)
        right = tuple(factor for index, factor in enumerate(factors) if not mask >> index & 1)
        key = frozenset(tuple(sorted(id(factor) for factor in side)) for side in (left, right))
        found.setdefault(key, (left, right))
    return list(found.values())


def scaled(x: Pattern, factor: float) -> Pattern:
    """``x`` times a number, or divided by its reciprocal."""
    return x * factor | x / (1 / factor)


def scaled_product(a: Pattern, b: Pattern, factor: float) -> Pattern:
    """``a * b * factor`` in any bracketing, with the factor multiplied or its reciprocal divided by."""
    inverse = 1 / factor
    return either(product(a, b, factor), (a * b) / inverse, a * (b / inverse), (a / inverse) * b)


def square(x: Pattern) -> Pattern:
    """``x * x`` or ``x ** 2``."""
    return x**2 | x * x


def sqrt(x: Pattern) -> Pattern:
    """The square root."""
    return op.Sqrt(x) | x**0.5


def reciprocal(x: Pattern) -> Pattern:
    """``1 / x``."""
    return op.Reciprocal(x) | 1 / x | x**-1


def widened(x: Pattern) -> Pattern:
    """``x`` after a Cast or as it is: norms in half precision are computed in float32."""
    return op.Cast(x) | x


def mean(x: Pattern, axes: Attribute) -> Pattern:
    """The mean over ``axes``, with the reduced dimensions kept or put back, possibly expanded."""
    kept = op.ReduceMean(x, axes=axes, keepdims=1) | _divided(op.ReduceSum(x, axes=axes, keepdims=1))
    return kept | restored(dropped_mean(x, axes))


def dropped_mean(x: Pattern, axes: Attribute) -> Pattern:
    """The mean over ``axes`` without the reduced dimensions."""
    return op.ReduceMean(x, axes=axes, keepdims=0) | _divided(op.ReduceSum(x, axes=axes, keepdims=0))


def restored(x: Pattern) -> Pattern:
    """``x`` with dropped dimensions put back, possibly expanded to the full shape."""
    back = op.Unsqueeze(x) | op.Reshape(x)
    return back | op.Expand(back)


def _divided(total: Pattern) -> Pattern:
    """A sum divided by the number of its terms."""
    return total / constant(where=is_count) | total * constant(where=is_reciprocal_of_count)


def in_newer_onnx(op_type: str, *inputs: Pattern, **attributes: Number) -> tuple[Pattern, ...]:
    """The pattern of an op that older ``onnx`` packages do not know; nothing when this one does not."""
    return (op[op_type](*inputs, **attributes),) if known_attributes(op_type) is not None else ()


def is_count(data: TensorRef) -> bool:
    """One element, a whole number of at least one."""
    number = scalar_of(data)
    return number is not None and number >= 1 and number == round(number)


def is_reciprocal_of_count(data: TensorRef) -> bool:
    """One element, the reciprocal of a whole number as float16 or float32 can hold it."""
    number = scalar_of(data)
    return number is not None and 0 < number <= 1 and abs(round(1 / number) * number - 1) < 1e-3


def is_epsilon(data: TensorRef) -> bool:
    """One element that only keeps a division from failing."""
    number = scalar_of(data)
    return number is not None and 0 <= number < 0.1


def floating(candidate: Value) -> bool:
    """A float value, or one whose type is not known."""
    return candidate.is_float or candidate.type.elem_type == 0
