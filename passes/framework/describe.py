"""What there is to know about a pass, for ``qc help PASS`` and the documentation."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from .base import Pass, Stage
from .notation import format_value
from .option_types import phrase
from .options import defaults, option_types, plain


@dataclass(frozen=True)
class OptionDescription:
    """One option in words.

    Attributes:
        type: what it accepts: ``an integer, at least 1``.
        default: as it is written in a pipeline; ``none`` if the option is left out by default.
    """

    name: str
    type: str
    default: str
    help: str


@dataclass(frozen=True)
class PassDescription:
    """A pass in words; ``docstring`` is without indentation and starts with the summary."""

    name: str
    stage: Stage
    needs: tuple[str, ...]
    summary: str
    docstring: str
    options: tuple[OptionDescription, ...]


def describe(cls: type[Pass]) -> PassDescription:
    """Describes a pass from its class: docstring, stage, needs and options."""
    values = defaults(cls)
    options = (
        OptionDescription(option.name, phrase(option.annotation), _shown(values[option.name]), option.help)
        for option in option_types(cls).values()
    )
    return PassDescription(
        name=cls.name,
        stage=cls.stage,
        needs=tuple(sorted(cls.needs)),
        summary=cls.summary(),
        docstring=inspect.getdoc(cls) or "",
        options=tuple(options),
    )


def _shown(default: object) -> str:
    return "none" if default is None else format_value(plain(default))
