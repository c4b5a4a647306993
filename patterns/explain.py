"""Puts into words why a pattern did not match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from qc.ir.graph import Op, Value

from .attributes import scalar_of
from .lookahead import View
from .mismatch import FailedTry, Mismatch, Reason
from .parameters import UNKNOWN
from .pattern import AnyValue, Attribute, Constant, OpPattern, Pattern
from .supergroup import Supergroup
from .term import term_of

_LISTED_TYPES = 6


def mismatch(pattern: Pattern | Supergroup, op: Op, failures: Iterable[FailedTry], view: View) -> Mismatch:
    """The failure that came nearest to success, in words.

    Args:
        pattern: what was to match.
        op: the op that the match started at.
        failures: what was tried there.
        view: the graph as the matcher saw it.
    """
    best = max(failures, key=lambda failure: failure.score, default=None)
    choices = dict(best.choices) if best is not None else {}
    name = pattern.name_of(choices) if isinstance(pattern, Supergroup) else ""
    if best is None:
        words = _Words("an op with an output", op.label, f"{op.label} has no output")
        return Mismatch(name, op, (), None, None, *words)
    ops = tuple(sorted(best.ops, key=view.positions.__getitem__))
    element = None if best.reason == Reason.CHECK else best.element
    return Mismatch(name, op, ops, element, best.value, *_WORDS[best.reason](best, view))


class _Words(NamedTuple):
    """What was expected and found, short, and the sentence that says both with the place."""

    expected: str
    found: str
    sentence: str


def _should(
    subject: str, verb: str, expected: str, has: str, found: str, *, role: str = "", elsewhere: bool = False
) -> _Words:
    how = f"{role} as elsewhere in the pattern" if elsewhere else ""
    return _Words(expected, found, f"{subject} should {verb} {expected}{how}, but {has} {found}")


# -- the things of a graph and of a pattern ------------------------------------------------------------


def _place(failure: FailedTry, view: View) -> str:
    """Where a value was tried: which input of which op."""
    if failure.user is None:
        return "the result"
    inputs = view.inputs[failure.user]
    ports = [str(port) for port, value in enumerate(inputs) if value is failure.value]
    which = f"input {' and '.join(ports)}" if ports and failure.value is not None else "an input"
    return f"{which} of {failure.user.label}"


def _described(value: Value | None, view: View) -> str:
    """A value with what computes it."""
    if value is None:
        return "left out"
    data, producer = view.constant[value], view.producer[value]
    if data is not None:
        number = scalar_of(data)
        content = f"= {number:.7g}" if number is not None else f"of shape {list(data.shape)}"
        return f"the constant '{value.name}' {content}"
    if producer is None:
        return f"'{value.name}', an input of the graph"
    return f"'{value.name}', which {_called(producer)} computes"


def _wanted(element: Pattern) -> str:
    """What an element of the pattern asks for."""
    named = f" ({element.name})" if element.name else ""
    if isinstance(element, Constant):
        if element.number is not None:
            return f"the constant {element.number:.7g}"
        return f"a constant{named}" + _condition(element.where)
    if isinstance(element, AnyValue):
        return f"a value{named}" + _condition(element.where)
    kinds = term_of(element).kinds
    types = sorted(kind[1] for kind in kinds if kind is not None and kind[1])
    others = ["a constant"] if ("", "") in kinds else []
    return _listed([*(each for each in types if each != "Constant" or not others), *others]) or "left out"


def _called(op: Op) -> str:
    return op.label if op.name else op.op_type


def _listed(words: Sequence[str]) -> str:
    shown = [*words[:_LISTED_TYPES], "others"] if len(words) > _LISTED_TYPES + 1 else list(words)
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _condition(where: Callable[..., bool] | None) -> str:
    """What a condition asks for: its docstring says it."""
    if where is None:
        return ""
    text = str(where.__doc__ or getattr(where, "__name__", "a condition"))
    first = text.strip().split("\n")[0].rstrip(".")
    return f": {first[:1].lower()}{first[1:]}"


def _shown(found: object) -> str:
    if found is UNKNOWN:
        return "unknown"
    if isinstance(found, float):
        return f"{found:.7g}"
    return str(list(found)) if isinstance(found, tuple) else repr(found)


# -- one function per reason ---------------------------------------------------------------------------


def _wrong_value(failure: FailedTry, view: View) -> _Words:
    """Another op, no constant, or another constant."""
    wanted = _wanted(failure.element)
    is_op = isinstance(failure.element, OpPattern) or failure.reason == Reason.WRONG_OP
    verb = "be computed by" if is_op and "constant" not in wanted and wanted != "left out" else "be"
    return _should(_place(failure, view), verb, wanted, "is", _described(failure.value, view))


def _other_value(failure: FailedTry, view: View) -> _Words:
    before = failure.detail[0]
    wanted = f"'{before.name}'" if isinstance(before, Value) else "left out"
    role = f" ({failure.element.name})" if failure.element.name else ""
    found = _described(failure.value, view)
    return _should(_place(failure, view), "be", wanted, "is", found, role=role, elsewhere=True)


def _wrong_attribute(failure: FailedTry, view: View) -> _Words:
    """An attribute that is not what the pattern wants, or not what it is elsewhere."""
    name, test = failure.detail
    op = view.producer[failure.value]
    assert op is not None
    if isinstance(test, Attribute):
        wanted = f"{name}{_condition(test.where) or ' that the model fixes'}"
    else:
        wanted = f"{name}={_shown(test)}"
    found = f"{name}={_shown(view.attribute[op, str(name)])}"
    return _should(op.label, "have", wanted, "has", found, elsewhere=failure.reason == Reason.OTHER_ATTRIBUTE)


def _wrong_ports(failure: FailedTry, view: View) -> _Words:
    op = view.producer[failure.value]
    assert op is not None and isinstance(failure.element, OpPattern)
    wanted, more = len(failure.element.inputs), " or more" if failure.element.open_ended else ""
    expected = f"{wanted}{more} input{'s' * (wanted != 1 or bool(more))}"
    return _should(op.label, "have", expected, "has", str(len(view.inputs[op])))


def _wrong_output(failure: FailedTry, view: View) -> _Words:
    expected, found = f"output {failure.detail[0]} of an op", _described(failure.value, view)
    return _should(_place(failure, view), "be", expected, "is", found)


def _no_result(failure: FailedTry, view: View) -> _Words:
    wanted, place = _wanted(failure.element), f"result {failure.detail[0]}"
    sentence = f"{place} should be computed by {wanted}, but no such op reads what has matched"
    return _Words(wanted, "no such op", sentence)


def _used_outside(failure: FailedTry, view: View) -> _Words:
    user, value = failure.detail[0], failure.value
    assert value is not None
    what = "is an output of the graph"
    if isinstance(user, Op):
        inside = all(each is not value for each in user.inputs)
        what = f"is also read by {'a subgraph of ' if inside else ''}{user.label}"
    producer = view.producer[value]
    made = f" (made by {_called(producer)})" if producer is not None else ""
    sentence = f"'{value.name}'{made} should be used inside only, but {what}"
    return _Words("used inside only", f"'{value.name}', which {what}", sentence)


def _detour(failure: FailedTry, view: View) -> _Words:
    found = "a way that leads from a result through other ops back in"
    sentence = f"the ops should be able to run as one, but there is {found}"
    return _Words("ops that can run as one", found, sentence)


def _check(failure: FailedTry, view: View) -> _Words:
    refusal = str(failure.detail[0])
    return _Words("what the supergroup demands", refusal, f"the structure fits, but there is {refusal}")


_WORDS: dict[Reason, Callable[[FailedTry, View], _Words]] = {
    Reason.NOT_CONSTANT: _wrong_value,
    Reason.WRONG_OP: _wrong_value,
    Reason.REFUSED_VALUE: _wrong_value,
    Reason.WRONG_PORTS: _wrong_ports,
    Reason.WRONG_OUTPUT: _wrong_output,
    Reason.OTHER_VALUE: _other_value,
    Reason.WRONG_ATTRIBUTE: _wrong_attribute,
    Reason.OTHER_ATTRIBUTE: _wrong_attribute,
    Reason.NO_RESULT: _no_result,
    Reason.USED_OUTSIDE: _used_outside,
    Reason.DETOUR: _detour,
    Reason.CHECK: _check,
}
