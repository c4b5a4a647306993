"""Pieces that the catalogue is written with: each covers the spellings of one small formula."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType

from qc.ir.facts.constants import constant_data
from qc.ir.graph import Value
from qc.ir.tensor_ref import TensorRef
from qc.ir.value_type import Shape

from .attributes import known_attributes, scalar_of
from .pattern import Attribute, Number, Pattern, as_pattern, attribute, constant, op

_Sides = tuple[tuple[Pattern, ...], tuple[Pattern, ...]]
_MOVES = ("Unsqueeze", "Squeeze", "Reshape", "Expand", "Tile")


def either(first: Pattern, *others: Pattern) -> Pattern:
    """The given patterns as alternatives, in order."""
    for other in others:
        first = first | other
    return first


def chain(*op_types: str) -> Pattern:
    """Ops that follow each other: ``chain("Conv", "BatchNormalization", "Relu")``.

    Each op reads the one before as its first input, or as any input if they can be swapped.
    """
    pattern: Pattern = op[op_types[0]](...)
    for op_type in op_types[1:]:
        pattern = op[op_type](pattern, ...)
    return pattern


# -- arithmetic --------------------------------------------------------------------------------------


def plus(a: Pattern, b: Pattern) -> Pattern:
    """The sum of two values, by Add or, as in the function bodies of ONNX, by Sum."""
    return op["Add", "Sum"](a, b)


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
    return x * fixed(factor) | x / fixed(1 / factor)


def scaled_product(a: Pattern, b: Pattern, factor: float) -> Pattern:
    """``a * b * factor`` in any bracketing, with the factor multiplied or its reciprocal divided by."""
    inverse = 1 / factor
    return either(product(a, b, fixed(factor)), (a * b) / inverse, a * (b / inverse), (a / inverse) * b)


def square(x: Pattern) -> Pattern:
    """``x * x`` or ``x ** 2``."""
    return x ** fixed(2) | x * x


def sqrt(x: Pattern) -> Pattern:
    """The square root."""
    return op.Sqrt(x) | x**0.5


def reciprocal(x: Pattern) -> Pattern:
    """``1 / x``."""
    return op.Reciprocal(x) | 1 / x | x**-1


def matmul(a: Pattern, b: Pattern) -> Pattern:
    """A product of matrices, by MatMul or by Einsum."""
    return op["MatMul", "Einsum"](a, b)


def limited(x: Pattern, low: Number, high: Number) -> Pattern:
    """``x`` kept between two numbers: by Clip, or by Min and Max in either order."""
    floored, capped = op.Max(x, fixed(low)), op.Min(x, fixed(high))
    spellings = [op.Clip(x, min=low, max=high), op.Min(floored, fixed(high)), op.Max(capped, fixed(low))]
    if low == 0:
        positive = op.Relu(x)
        spellings += [
            op.Min(positive, high),
            op.Clip(positive, min=attribute("low", where=is_no_limit), max=high),
            op.Relu(capped),
        ]
    return either(*spellings)


# -- means -------------------------------------------------------------------------------------------


def mean(x: Pattern, axes: Attribute) -> Pattern:
    """The mean over ``axes``, with the reduced dimensions kept or put back, possibly expanded.

    tf2onnx writes a mean over the last of three axes, among others, as a pool of all positions.
    """
    kept = op.ReduceMean(x, axes=axes, keepdims=1) | op.GlobalAveragePool(x, axes=axes)
    return either(kept, _divided(op.ReduceSum(x, axes=axes, keepdims=1)), restored(dropped_mean(x, axes)))


def dropped_mean(x: Pattern, axes: Attribute) -> Pattern:
    """The mean over ``axes`` without the reduced dimensions."""
    return op.ReduceMean(x, axes=axes, keepdims=0) | _divided(op.ReduceSum(x, axes=axes, keepdims=0))


def restored(x: Pattern) -> Pattern:
    """``x`` with dropped dimensions put back, possibly expanded and regrouped: up to four moves."""
    moved: Pattern = op[_MOVES](x)
    for _ in range(3):
        moved = op[_MOVES](x | moved)
    return moved


def _divided(total: Pattern) -> Pattern:
    """A sum divided by the number of its terms."""
    return total / constant(where=is_count) | total * constant(where=is_reciprocal_of_count)


# -- constants and types -----------------------------------------------------------------------------


def fixed(content: Number | str | None = None, where: Callable[[TensorRef], bool] | None = None) -> Pattern:
    """A constant, as it is or cast to the type of the data, as the function bodies of ONNX do.

    A number stands for one element close to it; a text captures the constant under that name.
    """
    data = constant(content, where=where)
    return data | op["Cast", "CastLike"](data, ...)


def parameter(name: str = "") -> Pattern:
    """A constant tensor as it is used, captured if it has a name.

    Some exporters cast and reshape it in the graph; the ops that do this belong to the match.
    """
    moves = op["Identity", "Cast", "CastLike", *_MOVES]
    return constant(name) | moves(constant() | moves(constant(), ...), ...).named(name)


def widened(x: Pattern) -> Pattern:
    """``x`` after a Cast or as it is: norms in half precision are computed in float32."""
    return op.Cast(x) | x


def in_newer_onnx(op_type: str, *inputs: Pattern | EllipsisType, **attributes: Number) -> tuple[Pattern, ...]:
    """The pattern of an op that older ``onnx`` packages do not know; nothing when this one does not."""
    return (op[op_type](*inputs, **attributes),) if known_attributes(op_type) is not None else ()


# -- conditions --------------------------------------------------------------------------------------


def is_count(data: TensorRef) -> bool:
    """One element, a whole number of at least one."""
    number = scalar_of(data)
    return number is not None and number >= 1 and float(number).is_integer()


def is_reciprocal_of_count(data: TensorRef) -> bool:
    """One element, the reciprocal of a whole number as float16 or float32 can hold it."""
    number = scalar_of(data)
    return number is not None and 1e-12 < number <= 1 and abs(round(1 / number) * number - 1) < 1e-3


def is_root_of_count(data: TensorRef) -> bool:
    """One element, the root of a whole number or of the reciprocal of one."""
    number = scalar_of(data)
    if number is None or not 1e-12 < number < 1e12:
        return False
    count = number**2 if number >= 1 else number**-2
    return abs(round(count) / count - 1) < 2e-3


def is_epsilon(data: TensorRef) -> bool:
    """One element that only keeps a division from failing."""
    number = scalar_of(data)
    return number is not None and 0 <= number <= 0.1001  # the tests of ONNX go as far as 0.1


def is_slope(data: TensorRef) -> bool:
    """One element that makes negative numbers smaller."""
    number = scalar_of(data)
    return number is not None and 0 <= number < 1


def is_scalar(data: TensorRef) -> bool:
    """One number."""
    return scalar_of(data) is not None


def is_no_limit(low: object) -> bool:
    """A lower limit of zero or less."""
    return isinstance(low, (int, float)) and low <= 0


def floating(candidate: Value) -> bool:
    """A float value, or one whose type is not known."""
    return candidate.is_float or candidate.type.elem_type == 0


def varying(candidate: Value) -> bool:
    """A value that is not constant."""
    return constant_data(candidate) is None


def varying_axes(shape: Shape) -> set[int]:
    """The axes, counted from the end, along which a tensor that is broadcast can vary."""
    return {index - len(shape) for index, size in enumerate(shape) if size != 1}
