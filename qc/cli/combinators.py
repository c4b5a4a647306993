"""What there is to know about a combinator, as :func:`qc.passes.framework.describe` has it for a pass."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from qc.passes import Combinator, OptionDescription
from qc.passes.framework.notation import format_value
from qc.passes.framework.option_types import phrase
from qc.passes.framework.options import defaults, option_types, plain


@dataclass(frozen=True)
class CombinatorDescription:
    """A combinator in words; ``docstring`` is without indentation and starts with the summary."""

    name: str
    summary: str
    docstring: str
    options: tuple[OptionDescription, ...]


def describe_combinator(cls: type[Combinator]) -> CombinatorDescription:
    """Describes a combinator from its class."""
    docstring = inspect.getdoc(cls) or ""
    values = defaults(cls)
    options = tuple(
        OptionDescription(
            option.name, phrase(option.annotation), format_value(plain(values[option.name])), option.help
        )
        for option in option_types(cls).values()
    )
    return CombinatorDescription(cls.name, docstring.partition("\n")[0], docstring, options)
