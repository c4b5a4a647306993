"""Plugins: installed distributions that bring passes, supergroups and targets of their own.

A plugin has an entry point of the group ``qc.plugins`` that names a module. Each room takes from that module
what it knows: passes the subclasses of Pass, metrics those of OutputMetric, patterns the supergroups,
targets the TOML files.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import NamedTuple, TypeVar

from ..errors import UsageError

PLUGIN_GROUP = "qc.plugins"

T = TypeVar("T")


class Plugin(NamedTuple):
    """An installed plugin: the name of its entry point, and its module."""

    name: str
    module: ModuleType


@functools.cache
def plugins() -> tuple[Plugin, ...]:
    """All installed plugins in the order of their names, loaded once per process.

    Raises:
        UsageError: one of them cannot be imported.
    """
    return load_plugins(entry_points(group=PLUGIN_GROUP))


def load_plugins(points: Iterable[EntryPoint]) -> tuple[Plugin, ...]:
    """The plugins that entry points name, in the order of their names.

    Raises:
        UsageError: an entry point cannot be imported, or is no module.
    """
    found = []
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        try:
            loaded = point.load()
        except Exception as error:
            raise UsageError(
                f"plugin '{point.name}' ({point.value}) cannot be imported: {error}; mend or uninstall it"
            ) from error
        if not isinstance(loaded, ModuleType):
            raise UsageError(f"plugin '{point.name}' ({point.value}) is not a module")
        found.append(Plugin(point.name, loaded))
    return tuple(found)


def subclasses_below(module: ModuleType, base: type[T]) -> list[type[T]]:
    """The subclasses defined in a module, or in all modules of a package and its folders, in a fixed order.

    Abstract and underscored classes are building blocks and left out.
    """
    found = [
        item
        for name, item in sorted(vars(module).items())
        if isinstance(item, type)
        and issubclass(item, base)
        and item.__module__ == module.__name__
        and not inspect.isabstract(item)
        and not name.startswith("_")
    ]
    for info in sorted(pkgutil.iter_modules(getattr(module, "__path__", [])), key=lambda info: info.name):
        found += subclasses_below(importlib.import_module(f"{module.__name__}.{info.name}"), base)
    return found
