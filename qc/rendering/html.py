"""Pages for the browser: self-contained, with one frame and one set of colours, light and dark."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .words import decibels, printable

_FOLDER = Path(__file__).parents[1]


def page(template: str, **values: Any) -> str:
    """An HTML page; nothing is loaded from elsewhere.

    Args:
        template: a file for Jinja below ``qc/``, such as ``view/page.html``.
        values: what it puts in. All text is escaped, control characters too; tables (:class:`.table.Table`)
            are for its macro ``table`` of ``rendering/table.html``.
    """
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.globals["verbatim"] = _verbatim
    environment.filters.update(decibels=decibels, script_data=_script_data)
    return environment


def _verbatim(name: str) -> Markup:
    """A style sheet or a script of qc, as it is."""
    return Markup((_FOLDER / name).read_text(encoding="utf-8"))


def _script_data(data: dict[str, Any]) -> Markup:
    """JSON that cannot end the script element that it stands in."""
    return Markup(json.dumps(data, allow_nan=False).replace("<", "\\u003c"))
