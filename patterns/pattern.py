"""The pattern language: patterns are immutable values, built with Python operators and ``op.Name(...)``.

A pattern describes one value of a graph and how it is computed::

    x = value("x")
    silu = x * op.Sigmoid(x)

* **Sharing** is reusing the Python object: both ``x`` above must be the same value of the graph. Two
  separate objects may match two values or the same one.
* A name stands for one value: two parts of the same name must match the same value.
* **Commutative** ops (Add, Mul, Max, ...) match in any operand order.
* ``a | b`` tries alternatives in order, anywhere, also at the root; the earlier one is preferred.
* Numbers stand for constants: ``x * 0.5`` accepts any one-element constant close to 0.5. They are
  predicates, so reusing one does not tie two constants together.
* Attributes are compared after the defaults of the model's opset are filled in. Parameters that were
  attributes once and are inputs now (``axes``, ``min``, ``shape``...) are attributes in patterns, for
  every opset. Axes are compared without regard to their sign when the rank is known.
* A last argument ``...`` allows further inputs; those given may then be any inputs of a commutative op.
  ``optional(p)`` also accepts an input that is left out.
* ``p[k]`` is output ``k`` of the op that ``p`` describes; ``results(p, q)`` has several results.

``repr`` of a pattern is the text that builds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from types import EllipsisType
from typing import TypeVar

from qc.ir.errors import UsageError
from qc.ir.graph import Value
from qc.ir.tensor_ref import TensorRef

from .attributes import check_names, plain_number, plain_test
from .notation import Writer, call, text_of

Number = int | float
P = TypeVar("P", bound="Pattern")

DEFAULT_TOLERANCE = 1e-3
"""Relative tolerance of constants: wide enough for half precision and for 1.4142 in place of sqrt(2)."""


def _infix(op_type: str) -> Callable[[Pattern, Pattern | Number], OpPattern]:
    return lambda self, other: op[op_type](self, other)


def _reflected(op_type: str) -> Callable[[Pattern, Number], OpPattern]:
    return lambda self, other: op[op_type](other, self)


class Pattern:
    """Base of all patterns. Identity is the object: the same object means the same value of the graph."""

    name: str
    __array_ufunc__ = None  # or numbers of numpy would take it for one of theirs

    __add__, __radd__ = _infix("Add"), _reflected("Add")
    __sub__, __rsub__ = _infix("Sub"), _reflected("Sub")
    __mul__, __rmul__ = _infix("Mul"), _reflected("Mul")
    __truediv__, __rtruediv__ = _infix("Div"), _reflected("Div")
    __pow__, __matmul__ = _infix("Pow"), _infix("MatMul")

    def __neg__(self) -> OpPattern:
        return op.Neg(self)

    def __or__(self, other: Pattern | Number) -> Alternatives:
        return Alternatives((self, as_pattern(other)))

    def __ror__(self, other: Number) -> Alternatives:
        return Alternatives((as_pattern(other), self))

    def named(self: P, name: str) -> P:
        """The same pattern with its value captured as ``name``. A new object: name it where it is made."""
        return replace(self, name=name)  # type: ignore[type-var]

    @property
    def children(self) -> tuple[Pattern, ...]:
        """The patterns this one is made of, in order."""
        return ()

    @property
    def variables(self) -> tuple[Attribute, ...]:
        """The variables for attributes of its own."""
        return ()

    @property
    def parts(self) -> tuple[Pattern | Attribute, ...]:
        """All that it is made of."""
        return (*self.children, *self.variables)

    @property
    def is_predicate(self) -> bool:
        """Whether it only says what a value must be, so that using it twice does not mean one value."""
        return False

    def written(self, write: Writer) -> str:
        """The expression that builds it, with its name."""
        return self._written(write) + (f'.named("{self.name}")' if self.name else "")

    def _written(self, write: Writer) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return text_of(self)


@dataclass(frozen=True, eq=False, repr=False)
class AnyValue(Pattern):
    """Any value at all, or any that ``where`` accepts."""

    name: str = ""
    where: Callable[[Value], bool] | None = None

    def written(self, write: Writer) -> str:
        return call("value", *([f'"{self.name}"'] if self.name else []), where=self.where)


@dataclass(frozen=True, eq=False, repr=False)
class Absent(Pattern):
    """An optional input that is left out."""

    name: str = ""
    is_predicate = True

    def _written(self, write: Writer) -> str:
        return "None"


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Pattern):
    """An initializer or the output of a Constant op.

    Attributes:
        number: what the only element must be close to; None accepts any data.
        tolerance: allowed difference, relative to ``number``.
        where: a further condition on the data; it should look at no more than shape and type unless
            the tensor is small.
    """

    name: str = ""
    number: Number | None = None
    tolerance: float = DEFAULT_TOLERANCE
    where: Callable[[TensorRef], bool] | None = None

    @property
    def is_predicate(self) -> bool:
        return self.number is not None

    def _written(self, write: Writer) -> str:
        number = [] if self.number is None else [repr(self.number)]
        tolerance = self.tolerance if self.tolerance != DEFAULT_TOLERANCE else None
        is_plain = number and not self.name and self.where is None and tolerance is None
        return number[0] if is_plain else call("constant", *number, tolerance=tolerance, where=self.where)


@dataclass(frozen=True, eq=False)
class Attribute:
    """A variable for an attribute: using the same object twice demands equal attributes.

    Attributes:
        name: the key under which a match reports it.
        where: a condition on the (normalized) Python value.
    """

    name: str
    where: Callable[[object], bool] | None = None
    parts = ()
    is_predicate = False

    def written(self, write: Writer) -> str:
        """The expression that builds it."""
        return call("attribute", f'"{self.name}"', where=self.where)


AttributeTest = Attribute | int | float | str | tuple[int | float, ...]


@dataclass(frozen=True, eq=False, repr=False)
class OpPattern(Pattern):
    """The first output of an op, of those that are not left out; ``pattern[k]`` is output ``k``.

    Attributes:
        op_types: the accepted types, all of one domain.
        inputs: one pattern per input.
        open_ended: whether the op may have inputs beyond these.
        attributes: required attributes by name.
    """

    op_types: tuple[str, ...]
    inputs: tuple[Pattern, ...] = ()
    open_ended: bool = False
    attributes: tuple[tuple[str, AttributeTest], ...] = ()
    domain: str = ""
    name: str = ""

    @property
    def children(self) -> tuple[Pattern, ...]:
        return self.inputs

    @property
    def variables(self) -> tuple[Attribute, ...]:
        return tuple(test for _, test in self.attributes if isinstance(test, Attribute))

    def __getitem__(self, index: int) -> Output:
        """Output ``index`` of the same op."""
        if not isinstance(index, Integral) or index < 0:
            raise UsageError(f"outputs of a pattern are counted from 0, and {index!r} is none")
        return Output(self, int(index))

    __iter__ = None  # or Python would take outputs for the items of an endless sequence

    def _written(self, write: Writer) -> str:
        words = f'op.of("{self.domain}")' if self.domain else "op"
        alone = len(self.op_types) == 1
        function = f"{words}.{self.op_types[0]}" if alone else f"{words}[{str(self.op_types)[1:-1]}]"
        arguments = [write(item) for item in self.inputs] + ["..."] * self.open_ended
        for name, test in self.attributes:
            arguments.append(f"{name}={write(test) if isinstance(test, Attribute) else repr(test)}")
        return call(function, *arguments)


@dataclass(frozen=True, eq=False, repr=False)
class Output(Pattern):
    """Output ``index`` of the op that ``source`` describes; the same ``source`` means the same op."""

    source: OpPattern
    index: int
    name: str = ""

    @property
    def children(self) -> tuple[Pattern, ...]:
        return (self.source,)

    def _written(self, write: Writer) -> str:
        return f"{write(self.source)}[{self.index}]"


@dataclass(frozen=True, eq=False, repr=False)
class Alternatives(Pattern):
    """Any one of several patterns, tried in order.

    Attributes:
        labels: a word per option; a match reports the taken one under ``name`` in ``choices``.
    """

    options: tuple[Pattern, ...]
    labels: tuple[str, ...] = ()
    name: str = ""

    @property
    def children(self) -> tuple[Pattern, ...]:
        return self.options

    def written(self, write: Writer) -> str:
        if not self.labels:
            return super().written(write)
        pairs = zip(self.labels, self.options, strict=True)
        options = ", ".join(f'"{label}": {write(option)}' for label, option in pairs)
        return call("choice", f'"{self.name}"', f"{{{options}}}")

    def _written(self, write: Writer) -> str:
        if len(self.options) == 2 and isinstance(self.options[1], Absent):
            return call("optional", write(self.options[0]))
        return f"({' | '.join(write(option) for option in self.options)})"


@dataclass(frozen=True, eq=False, repr=False)
class Results(Pattern):
    """Several values at once; only the whole of a pattern can be this.

    Attributes:
        values: the main result, at which matching starts, and the others.
    """

    values: tuple[Pattern, ...]
    name: str = ""

    @property
    def children(self) -> tuple[Pattern, ...]:
        return self.values

    def _written(self, write: Writer) -> str:
        return call("results", *(write(each) for each in self.values))


def value(name: str = "", where: Callable[[Value], bool] | None = None) -> AnyValue:
    """Any value; captured when it has a name."""
    return AnyValue(name, where)


def constant(
    content: Number | str | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    where: Callable[[TensorRef], bool] | None = None,
) -> Constant:
    """A constant: with a number, one element close to it (of any rank); with a name, captured."""
    if isinstance(content, str):
        return Constant(content, None, tolerance, where)
    number = plain_number(content)
    if number is None and content is not None:
        raise UsageError(f"a constant has a number or a name in a pattern, not {content!r}")
    return Constant("", number, tolerance, where)


def optional(pattern: Pattern | Number) -> Alternatives:
    """An input that matches ``pattern`` or is left out."""
    return Alternatives((as_pattern(pattern), Absent()))


def choice(name: str, options: Mapping[str, Pattern]) -> Alternatives:
    """Alternatives with names: a match says under ``choices[name]`` which one it took."""
    if not options:
        raise UsageError(f"the choice '{name}' has no options")
    return Alternatives(tuple(options.values()), tuple(options), name)


def results(main: Pattern, *others: Pattern) -> Results:
    """A pattern with several results, which are different values and may all be used outside.

    A match is looked for at the main result. The others are found from there, by following the uses of
    values that are bound already: each must share a part with the results before it.
    """
    return Results((main, *others))


def attribute(name: str, where: Callable[[object], bool] | None = None) -> Attribute:
    """A variable for an attribute, reported by the match under ``name``."""
    return Attribute(name, where)


def as_pattern(item: Pattern | Number | None) -> Pattern:
    """A pattern as it is, a number as a constant, None as an input that is left out."""
    if isinstance(item, Results):
        raise UsageError("several results are the whole of a pattern, and no part of one")
    if isinstance(item, Pattern):
        return item
    if item is None:
        return Absent()
    number = plain_number(item)
    if number is None:
        raise UsageError(f"a pattern, a number or None was expected in a pattern, not {item!r}")
    return Constant("", number)


class Vocabulary:
    """Makes op patterns: ``op.Relu(x)``, ``op["Conv", "ConvTranspose"](x, w, ...)``.

    ``op.of("com.microsoft")`` is the vocabulary of another domain.

    Raises:
        UsageError: ONNX has no op of that name, or the op no attribute of that name, in any version
            (checked for the standard domain only).
    """

    def __init__(self, domain: str = "") -> None:
        self._domain = domain

    def of(self, domain: str) -> Vocabulary:
        """The ops of another domain."""
        return Vocabulary(domain)

    def __getattr__(self, op_type: str) -> Callable[..., OpPattern]:
        if op_type.startswith("__"):
            raise AttributeError(op_type)
        return self[op_type]

    def __getitem__(self, op_types: str | tuple[str, ...]) -> Callable[..., OpPattern]:
        types = (op_types,) if isinstance(op_types, str) else tuple(op_types)

        def make(*inputs: Pattern | Number | EllipsisType | None, **attributes: AttributeTest) -> OpPattern:
            return _make(types, self._domain, inputs, attributes)

        return make


def _make(
    op_types: tuple[str, ...],
    domain: str,
    inputs: tuple[Pattern | Number | EllipsisType | None, ...],
    attributes: Mapping[str, AttributeTest],
) -> OpPattern:
    open_ended = bool(inputs) and inputs[-1] is ...
    given = inputs[:-1] if open_ended else inputs
    check_names(op_types, domain, attributes)
    tests = tuple(
        (name, test if isinstance(test, Attribute) else plain_test(name, test))
        for name, test in attributes.items()
    )
    patterns = tuple(as_pattern(item) for item in given if item is not ...)
    if len(patterns) != len(given):
        raise UsageError(f"'...' must be the last input of the pattern of {op_types[0]}")
    return OpPattern(op_types, patterns, open_ended, tests, domain)


op = Vocabulary()
"""The ops of the standard ONNX domain."""
