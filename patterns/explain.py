"""Puts into words why a pattern did not match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from qc.ir.graph import Op, Value

from .attributes import scalar_of
from .lookahead import View
from .mismatch import Failure, Mismatch, Reason
from .parameters import UNKNOWN
from .pattern import AnyValue, Attribute, Constant, OpPattern, Pattern
from .program import program_of
from .supergroup import Supergroup, pattern_of

_LISTED_TYPES = 6


class _Words(NamedTuple):
    """What was expected and found, short, and the sentence that says both with the place."""

    expected: str
    found: str
    sentence: str


def mismatch(pattern: Pattern | Supergroup, op: Op, failures: Iterable[Failure], view: View) -> Mismatch:
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
    return Mismatch(name, op, ops, element, best.value, *in_words(best, pattern, view))


def in_words(failure: Failure, pattern: Pattern | Supergroup, view: View) -> _Words:
    """A failure in words."""
    return _WORDS[failure.reason](failure, _Speaker(pattern, view))


class _Speaker:
    """Names the things of a graph and of a pattern."""

    def __init__(self, pattern: Pattern | Supergroup, view: View) -> None:
        self.root = pattern_of(pattern)
        self.view = view

    def place(self, failure: Failure) -> str:
        """Where a value was tried: which input of which op."""
        if failure.reader is None:
            return "the result"
        inputs = self.view.inputs(failure.reader)
        ports = [str(port) for port, value in enumerate(inputs) if value is failure.value]
        which = f"input {' and '.join(ports)}" if ports and failure.value is not None else "an input"
        return f"{which} of {failure.reader.label}"

    def described(self, value: Value | None) -> str:
        """A value with what computes it."""
        if value is None:
            return "left out"
        data = self.view.constant(value)
        if data is not None:
            number = scalar_of(data)
            content = f"= {number:.7g}" if number is not None else f"of shape {list(data.shape)}"
            return f"the constant '{value.name}' {content}"
        producer = self.view.producer(value)
        if producer is not None:
            return f"'{value.name}', which {_called(producer)} computes"
        return f"'{value.name}', an input of the graph"

    def wanted(self, element: Pattern) -> str:
        """What an element of the pattern asks for."""
        named = f" ({element.name})" if element.name else ""
        if isinstance(element, Constant):
            if element.number is not None:
                return f"the constant {element.number:.7g}"
            return f"a constant{named}" + _condition(element.where)
        if isinstance(element, AnyValue):
            return f"a value{named}" + _condition(element.where)
        kinds = program_of(self.root).shape_of(element).kinds
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
    said = str(where.__doc__ or getattr(where, "__name__", "a condition"))
    first = said.strip().split("\n")[0].rstrip(".")
    return f": {first[:1].lower()}{first[1:]}"


def _shown(found: object) -> str:
    if found is UNKNOWN:
        return "unknown"
    if isinstance(found, float):
        return f"{found:.7g}"
    return str(list(found)) if isinstance(found, tuple) else repr(found)


# -- one function per reason ---------------------------------------------------------------------------


def _wrong_value(failure: Failure, speaker: _Speaker) -> _Words:
    """Another op, no constant, or another constant."""
    wanted, found = speaker.wanted(failure.element), speaker.described(failure.value)
    is_op = isinstance(failure.element, OpPattern) or failure.reason == Reason.WRONG_OP
    verb = "be computed by " if is_op and "constant" not in wanted and wanted != "left out" else "be "
    return _Words(wanted, found, f"{speaker.place(failure)} should {verb}{wanted}, but is {found}")


def _other_value(failure: Failure, speaker: _Speaker) -> _Words:
    before = failure.detail[0]
    wanted = f"'{before.name}'" if isinstance(before, Value) else "left out"
    found = speaker.described(failure.value)
    role = f" ({failure.element.name})" if failure.element.name else ""
    sentence = (
        f"{speaker.place(failure)} should be {wanted}{role} as elsewhere in the pattern, but is {found}"
    )
    return _Words(wanted, found, sentence)


def _wrong_attribute(failure: Failure, speaker: _Speaker) -> _Words:
    name, test = failure.detail
    op, found = _attribute(failure, str(name), speaker)
    if isinstance(test, Attribute):
        wanted = f"{name}{_condition(test.where) or ' that the model fixes'}"
    else:
        wanted = f"{name}={_shown(test)}"
    return _Words(wanted, found, f"{op} should have {wanted}, but has {found}")


def _other_attribute(failure: Failure, speaker: _Speaker) -> _Words:
    name, before = failure.detail
    assert isinstance(before, tuple)
    op, found = _attribute(failure, str(name), speaker)
    wanted = f"{name}={_shown(before[0])}"
    return _Words(wanted, found, f"{op} should have {wanted} as elsewhere in the pattern, but has {found}")


def _attribute(failure: Failure, name: str, speaker: _Speaker) -> tuple[str, str]:
    """The op whose attribute is wrong, and what it has."""
    op = speaker.view.producer(failure.value)
    assert op is not None
    found = speaker.view.attribute(op, name)
    return op.label, f"{name}={_shown(found)}"


def _wrong_ports(failure: Failure, speaker: _Speaker) -> _Words:
    op = speaker.view.producer(failure.value)
    assert op is not None and isinstance(failure.element, OpPattern)
    wanted, given = len(failure.element.inputs), len(speaker.view.inputs(op))
    more = " or more" if failure.element.open_ended else ""
    expected = f"{wanted}{more} input{'s' * (wanted != 1 or bool(more))}"
    return _Words(expected, f"{given}", f"{op.label} should have {expected}, but has {given}")


def _wrong_output(failure: Failure, speaker: _Speaker) -> _Words:
    expected, found = f"output {failure.detail[0]} of an op", speaker.described(failure.value)
    return _Words(expected, found, f"{speaker.place(failure)} should be {expected}, but is {found}")


def _no_result(failure: Failure, speaker: _Speaker) -> _Words:
    wanted = speaker.wanted(failure.element)
    sentence = (
        f"result {failure.detail[0]} should be computed by {wanted}, but no such op reads what has matched"
    )
    return _Words(wanted, "no such op", sentence)


def _used_outside(failure: Failure, speaker: _Speaker) -> _Words:
    reader = failure.detail[0]
    assert failure.value is not None
    if isinstance(reader, Op):
        inside = all(value is not failure.value for value in speaker.view.graph.op_inputs(reader))
        who = f"a subgraph of {reader.label}" if inside else reader.label
        found = f"'{failure.value.name}', which is also read by {who}"
    else:
        found = f"'{failure.value.name}', which is an output of the graph"
    wanted = "used inside only"
    name, _, what = found.partition(", which ")
    producer = speaker.view.producer(failure.value)
    maker = f" (made by {_called(producer)})" if producer is not None else ""
    return _Words(wanted, found, f"{name}{maker} should be {wanted}, but {what}")


def _detour(failure: Failure, speaker: _Speaker) -> _Words:
    found = "a way that leads from a result through other ops back in"
    return _Words(
        "ops that can run as one", found, f"the ops should be able to run as one, but there is {found}"
    )


def _check(failure: Failure, speaker: _Speaker) -> _Words:
    refusal = str(failure.detail[0])
    return _Words("what the supergroup demands", refusal, f"the structure fits, but there is {refusal}")


_WORDS: dict[Reason, Callable[[Failure, _Speaker], _Words]] = {
    Reason.NOT_CONSTANT: _wrong_value,
    Reason.WRONG_OP: _wrong_value,
    Reason.REFUSED_VALUE: _wrong_value,
    Reason.WRONG_PORTS: _wrong_ports,
    Reason.WRONG_OUTPUT: _wrong_output,
    Reason.OTHER_VALUE: _other_value,
    Reason.WRONG_ATTRIBUTE: _wrong_attribute,
    Reason.OTHER_ATTRIBUTE: _other_attribute,
    Reason.NO_RESULT: _no_result,
    Reason.USED_OUTSIDE: _used_outside,
    Reason.DETOUR: _detour,
    Reason.CHECK: _check,
}
