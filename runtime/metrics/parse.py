"""Which metric a text means.

``sqnr``, ``cosine``, ``max-error``, ``top-5`` and others of this folder or of a plugin
    A metric of the worst output, or of one, as in ``sqnr(logits)``. Dashes can be underscores.
``module:name`` or ``file.py:name``
    A function or class of the user's, see :mod:`qc.runtime.metrics.user`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import partial

from qc.ir.base.plugins import cached_for_plugins, plugins, subclasses_below
from qc.ir.errors import UsageError, nearest

from .metric import Metric, OutputMetric, WorstOutput
from .user import user_metric

_NAME = re.compile(r"([\w-]+?)\s*(?:\((.*)\))?", re.DOTALL)


def parse_metric(text: str, has_labels: bool = False) -> Metric:
    """Makes a metric from its text; what the forms are is in the text of this module.

    Args:
        has_labels: whether there are labels for the feeds.

    Raises:
        UsageError: there is no such metric or function, or the function takes other arguments.
    """
    match = _NAME.fullmatch(text)
    start = _find(match[1]) if match else None
    if match is None or start is None:
        return _unnamed_metric(text, has_labels)
    output = match[2].strip() if match[2] is not None else None
    if output == "":
        raise UsageError(f"'{text}': name an output in the parentheses, or leave them out for the worst one")
    kind = type(start())  # made once, so that a number that does not fit is refused before any work
    tally = partial(WorstOutput, text, start, output)
    return Metric(text, tally, kind.higher_is_better, kind.form, kind.takes_floats, output)


def _unnamed_metric(text: str, has_labels: bool) -> Metric:
    if ":" in text:
        return user_metric(text, has_labels)
    names = metric_names()
    hint = nearest(text.partition("(")[0], names)
    raise UsageError(
        f"unknown metric '{text}'{hint}; known: {', '.join(names)} (K is a number), module:function or "
        "file.py:function"
    )


def metric_names() -> list[str]:
    """The metrics that have names, in alphabetical order."""
    return sorted(known_metrics())


def is_metric_name(text: str) -> bool:
    """Whether a text is the name of a metric, without an output."""
    return _find(text) is not None


def _find(name: str) -> Callable[[], OutputMetric] | None:
    """What begins the metric of that name, with its number if it has one."""
    for known, cls in known_metrics().items():
        found = re.fullmatch(known.replace("-K", r"-(\d{1,9})"), name.replace("_", "-"))
        if found is not None:
            return partial(cls, *map(int, found.groups()))
    return None


@cached_for_plugins
def known_metrics() -> dict[str, type[OutputMetric]]:
    """The metrics of this folder and of plugins by name.

    Raises:
        UsageError: two have the same name.
    """
    found: dict[str, type[OutputMetric]] = {}
    for module in (importlib.import_module(__package__), *(plugin.module for plugin in plugins())):
        for cls in subclasses_below(module, OutputMetric):  # type: ignore[type-abstract]
            other = found.setdefault(cls.name, cls)
            if other is not cls:
                raise UsageError(
                    f"two metrics are named '{cls.name}', in {other.__module__} and {cls.__module__}; "
                    "rename one of them"
                )
    return found
