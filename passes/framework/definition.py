"""Checks that a pass class is declared as every tool around passes expects it."""

from __future__ import annotations

import dataclasses
import re

from qc.ir.errors import UsageError

from .base import Pass, Stage
from .context import NEEDS
from .option_types import accepts_none
from .options import OptionType, defaults, option_types
from .pipeline import COMBINATORS

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Keys of a [[pass]] table in TOML that are not options.
_RESERVED = ("name", "pass", "passes")


def check_definition(cls: type[Pass]) -> None:
    """Raises UsageError, addressed to the author of the pass, if its declaration is incomplete."""
    fault = _fault_of_class(cls) or _fault_of_options(cls)
    if fault:
        raise UsageError(f"pass class {cls.__module__}.{cls.__qualname__} {fault}")


def _fault_of_class(cls: type[Pass]) -> str | None:
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"needs a class attribute 'name' of lower-case words joined by dashes, not {name!r}"
    if name in COMBINATORS:
        return f"may not be named '{name}', which is a combinator of pipelines"
    if not isinstance(getattr(cls, "stage", None), Stage):
        return "needs a class attribute 'stage', one of Stage.FLOAT, Stage.ANNOTATE, Stage.LOWER"
    if "__dataclass_params__" not in vars(cls):
        return "must be decorated with @dataclass(frozen=True)"
    # A dataclass without a docstring gets its signature as one.
    if (cls.__doc__ or "").startswith(f"{cls.__name__}("):
        return "needs a docstring whose first line says what it does"
    unknown = sorted(set(cls.needs) - set(NEEDS))
    return f"needs {unknown[0]!r}, but a pass can only need {', '.join(NEEDS)}" if unknown else None


def _fault_of_options(cls: type[Pass]) -> str | None:
    try:
        declared = option_types(cls)
    except (TypeError, NameError) as error:
        return f"has an option whose type has no text form: {error}"
    without = [field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING]
    if without:
        return f"must give option '{without[0]}' a default"
    try:
        values = defaults(cls)
    except UsageError as error:
        return f"has a default that does not fit: {error}"
    faults = (_fault_of_option(option, values[option.name]) for option in declared.values())
    return next((fault for fault in faults if fault), None)


def _fault_of_option(option: OptionType, default: object) -> str | None:
    if option.name in _RESERVED:
        return f"may not call an option '{option.name}', which has another meaning in TOML"
    if not option.help:
        return f"must explain option '{option.name}': declare it with option(default, help)"
    if accepts_none(option.annotation) and default is not None:
        return f"must have None as default of option '{option.name}', which is how None is written"
    return None
