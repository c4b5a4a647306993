"""What is given to a compilation beside plain options: checked and made alike, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from qc.ir.errors import UsageError, a_type

_METHODS = {
    "executor": (("observe", "run"), "runs models, such as qc.runtime.OrtExecutor()"),
    "progress": (("start",), "shows progress, see qc.passes.Progress"),
    "pool": (("submit",), "runs functions elsewhere, as a concurrent.futures.Executor does"),
    "on_trial": (("__call__",), "can be called with a trial"),
    "on_failure": (("__call__",), "can be called with a failure"),
}
_HOOKS = ("before_pass", "after_pass", "failed")


def normalized(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a compilation that may be given as any iterable, as tuples: they are read more than once.

    Raises:
        UsageError: a path is empty, which would stand for the current folder, or a field holds what is none.
    """
    for name in ("model", "data"):
        if isinstance(fields[name], str) and not fields[name]:
            raise UsageError(f"{name}='' is empty; it is the path of a file")
    check_services(fields)
    precision = fields["precision"]
    if isinstance(precision, Mapping):
        from qc.passes.quantize.precision.rules import rule_texts

        precision = rule_texts(precision)
    is_several = precision is None or (isinstance(precision, Iterable) and not isinstance(precision, str))
    return {
        "precision": listed(precision) if is_several else precision,
        "instruments": _instruments(fields["instruments"]),
        **{name: _texts(name, fields[name]) for name in ("fix_shapes", "fix_inputs")},
    }


def check_services(fields: Mapping[str, Any]) -> None:
    """Raises UsageError for what is given as a service, such as ``progress``, and is none."""
    for name, (methods, what) in _METHODS.items():
        given = fields.get(name)
        if given is not None and not _has(given, methods):
            raise UsageError(f"{name}= takes what {what}, not {a_type(given)}")


def _instruments(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    for one in found:
        if not _has(one, _HOOKS):
            raise UsageError(f"instruments= takes a list of qc.passes.Instrument, not {a_type(one)}")
    return found


def _texts(name: str, given: Any) -> tuple[str, ...]:
    """Several texts, none of which is empty."""
    found = listed(given)
    for one in found:
        if not isinstance(one, str):
            raise UsageError(f"{name}= takes text such as 'NAME=1', or a list of it, not {one!r}")
        if not one.strip():
            raise UsageError(f"{name}= takes text such as 'NAME=1', which {one!r} is not: leave it out")
    return found


def listed(given: Any) -> tuple[Any, ...]:
    """Several things; a lone one is a tuple of one, a mapping one of NAME=VALUE, and None is empty."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return tuple(f"{key}={value}" if isinstance(key, str) else key for key, value in given.items())
    is_several = isinstance(given, Iterable) and not isinstance(given, str | bytes | bytearray)
    return tuple(given) if is_several else (given,)


def check_names(targets: Sequence[str]) -> None:
    """Raises UsageError if there is no target, or two have one name."""
    if not targets:
        raise UsageError("there is no target to compile for: name at least one")
    for name in targets:
        if targets.count(name) > 1:
            raise UsageError(f"two targets are named '{name}'; results are known by that name")


def _has(given: object, methods: Iterable[str]) -> bool:
    """Whether these are methods of a thing; a class is none, but can be called."""
    if methods == ("__call__",):
        return callable(given)
    return not isinstance(given, type) and all(callable(getattr(given, name, None)) for name in methods)
