"""Finds every pass: those in the modules of this package, and those that plugins bring.

Nothing is registered by hand: a new file below ``passes/`` with a subclass of ``Pass`` is enough, and so is
one below the module of a plugin (see :mod:`qc.ir.base.plugins`).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from itertools import chain

from qc.ir.base.plugins import cached_for_plugins, plugins, subclasses_below, use_plugin
from qc.ir.errors import UsageError, nearest

from .base import Pass
from .definition import check_definition
from .pipeline import COMBINATORS


class Registry:
    """Passes by name.

    Raises:
        UsageError: two passes have the same name, or a pass is not declared as it must be.
    """

    def __init__(self, classes: Iterable[type[Pass]]) -> None:
        found: dict[str, type[Pass]] = {}
        for cls in classes:
            check_definition(cls)
            other = found.setdefault(cls.name, cls)
            if other is not cls:
                raise UsageError(
                    f"two passes are named '{cls.name}': {_path(other)} and {_path(cls)}; rename one of them"
                )
        self._classes = dict(sorted(found.items()))

    def get(self, name: str, others: Iterable[str] = ()) -> type[Pass]:
        """The pass of that name; raises UsageError with the nearest name, or other name, if there is none."""
        if name not in self._classes:
            # A combinator is what was meant as often as a pass, so those names are suggested too.
            hint = nearest(name, [*self.names(), *COMBINATORS, *others])
            raise UsageError(f"unknown pass '{name}'{hint}; 'qc list-passes' shows all")
        return self._classes[name]

    def names(self) -> list[str]:
        """All names in alphabetical order."""
        return list(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._classes

    def __iter__(self) -> Iterator[type[Pass]]:
        return iter(self._classes.values())


@cached_for_plugins
def registry() -> Registry:
    """All passes of qc and of the plugins, found once per process."""
    package = importlib.import_module("qc.passes")
    modules = [package, *(plugin.module for plugin in plugins())]
    found = (subclasses_below(module, Pass) for module in modules)  # type: ignore[type-abstract]
    return Registry(chain.from_iterable(found))


def pass_class(text: str) -> type[Pass]:
    """The pass that ``mypass:Class`` or ``mypass.py:Class`` names; its module is a plugin from then on.

    Raises:
        UsageError: the module cannot be imported, or has no such pass.
    """
    module_name, _, class_name = text.rpartition(":")
    module = use_plugin(module_name)
    classes = {cls.__name__: cls for cls in subclasses_below(module, Pass)}  # type: ignore[type-abstract]
    if class_name not in classes:
        hint = f"{nearest(class_name, list(classes))}; its passes: {', '.join(classes) or 'none'}"
        raise UsageError(f"'{module_name}' has no pass '{class_name}'{hint}")
    return registry().get(classes[class_name].name)


def _path(cls: type[Pass]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
