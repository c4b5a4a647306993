"""Patterns as text: the Python expression that builds them, with a line per shared element."""

from __future__ import annotations

from .pattern import (
    DEFAULT_TOLERANCE,
    Absent,
    Alternatives,
    AnyValue,
    Attribute,
    Constant,
    OpPattern,
    Output,
    Pattern,
)

_INFIX = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Pow": "**", "MatMul": "@"}
_STRENGTH = {"|": 0, "+": 1, "-": 1, "*": 2, "/": 2, "@": 2, "**": 4}
_ATOM = 9


def text_of(root: Pattern) -> str:
    """The text that builds ``root``: one expression, after a line for each element that is used twice."""
    return _Writer(root).text()


class _Writer:
    def __init__(self, root: Pattern) -> None:
        self._root = root
        self._variables: dict[object, str] = {}
        self._lines: list[str] = []
        self._shared = _shared(root)

    def text(self) -> str:
        expression, _ = self._expression(self._root)
        return "\n".join([*self._lines, expression])

    def _operand(self, element: Pattern, strength: int) -> str:
        text, own = self._expression(element)
        return text if own >= strength else f"({text})"

    def _expression(self, element: Pattern) -> tuple[str, int]:
        """The text of an element and how strongly it binds."""
        if element in self._variables:
            return self._variables[element], _ATOM
        text, strength = self._definition(element)
        if element not in self._shared:
            return text, strength
        name = self._fresh(element.name or f"p{len(self._variables)}")
        self._variables[element] = name
        self._lines.append(f"{name} = {text}")
        return name, _ATOM

    def _fresh(self, hint: str) -> str:
        name, count = hint, 1
        while name in self._variables.values():
            count += 1
            name = f"{hint}{count}"
        return name

    def _definition(self, element: Pattern) -> tuple[str, int]:
        if isinstance(element, Alternatives):
            return self._alternatives(element)
        if isinstance(element, OpPattern):
            text, strength = self._op(element)
        elif isinstance(element, Output):
            text, strength = f"{self._operand(element.source, _ATOM)}[{element.index}]", _ATOM
        else:
            return _leaf(element), _ATOM
        return self._with_name(element, text, strength)

    def _with_name(self, element: Pattern, text: str, strength: int) -> tuple[str, int]:
        if not element.name:
            return text, strength
        return (text if strength == _ATOM else f"({text})") + f'.named("{element.name}")', _ATOM

    def _alternatives(self, element: Alternatives) -> tuple[str, int]:
        if element.labels:
            pairs = zip(element.labels, element.options, strict=True)
            inside = ", ".join(f'"{label}": {self._expression(option)[0]}' for label, option in pairs)
            return f'choice("{element.name}", {{{inside}}})', _ATOM
        first, *rest = element.options
        if len(rest) == 1 and isinstance(rest[0], Absent):
            return self._with_name(element, f"optional({self._expression(first)[0]})", _ATOM)
        operands = [self._operand(first, _STRENGTH["|"])]
        operands += [self._operand(option, _STRENGTH["|"] + 1) for option in rest]
        return self._with_name(element, " | ".join(operands), _STRENGTH["|"])

    def _op(self, element: OpPattern) -> tuple[str, int]:
        symbol = (
            _INFIX.get(element.op_types[0]) if len(element.op_types) == 1 and not element.domain else None
        )
        plain = len(element.inputs) == 2 and not element.attributes and not element.open_ended
        if symbol and plain and not all(_is_number(item) for item in element.inputs):
            strength = _STRENGTH[symbol]
            left, right = element.inputs
            on_left, on_right = (strength + 1, strength) if symbol == "**" else (strength, strength + 1)
            return f"{self._operand(left, on_left)} {symbol} {self._operand(right, on_right)}", strength
        arguments = [self._expression(item)[0] for item in element.inputs]
        arguments += ["..."] * element.open_ended
        arguments += [f"{name}={self._test(test)}" for name, test in element.attributes]
        return f"{_callee(element)}({', '.join(arguments)})", _ATOM

    def _test(self, test: object) -> str:
        if not isinstance(test, Attribute):
            return repr(test)
        if test not in self._variables:
            self._variables[test] = self._fresh(test.name)
            condition = f", where={_name_of(test.where)}" if test.where else ""
            self._lines.append(f'{self._variables[test]} = attribute("{test.name}"{condition})')
        return self._variables[test]


def _shared(root: Pattern) -> set[Pattern]:
    counts: dict[Pattern, int] = {}
    pending = [root]
    while pending:
        for child in pending.pop().children:
            counts[child] = counts.get(child, 0) + 1
            if counts[child] == 1:
                pending.append(child)
    return {element for element, count in counts.items() if count > 1 and not _is_plain(element)}


def _is_plain(element: Pattern) -> bool:
    return isinstance(element, Absent) or _is_number(element)


def _is_number(element: Pattern) -> bool:
    return (
        isinstance(element, Constant)
        and element.number is not None
        and not element.name
        and element.where is None
        and element.tolerance == DEFAULT_TOLERANCE
    )


def _callee(element: OpPattern) -> str:
    vocabulary = f'op.of("{element.domain}")' if element.domain else "op"
    if len(element.op_types) == 1:
        return f"{vocabulary}.{element.op_types[0]}"
    return f"{vocabulary}[{', '.join(repr(name) for name in element.op_types)}]"


def _leaf(element: Pattern) -> str:
    if isinstance(element, AnyValue):
        arguments = [f'"{element.name}"'] if element.name else []
        arguments += [f"where={_name_of(element.where)}"] if element.where else []
        return f"value({', '.join(arguments)})"
    if isinstance(element, Constant):
        return _constant(element)
    return "None"


def _constant(element: Constant) -> str:
    if _is_number(element):
        return repr(element.number)
    arguments = [repr(element.number)] if element.number is not None else []
    if element.number is None and element.name:
        arguments.append(f'"{element.name}"')
    if element.tolerance != DEFAULT_TOLERANCE:
        arguments.append(f"tolerance={element.tolerance}")
    if element.where:
        arguments.append(f"where={_name_of(element.where)}")
    named = f'.named("{element.name}")' if element.name and element.number is not None else ""
    return f"constant({', '.join(arguments)}){named}"


def _name_of(condition: object) -> str:
    return getattr(condition, "__name__", type(condition).__name__)
