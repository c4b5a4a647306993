"""Plugins: modules that bring passes, supergroups and targets of their own.

An installed distribution names its module by an entry point of the group ``qc.plugins``, and ``use_plugin``
takes one that is a file. Each room takes from that module what it knows: passes the subclasses of Pass,
metrics those of OutputMetric, patterns the supergroups, targets the TOML files.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeVar

from ..errors import UsageError
from .python_files import import_module

PLUGIN_GROUP = "qc.plugins"

T = TypeVar("T")


_used: list[Plugin] = []


class Plugin(NamedTuple):
    """A plugin: the name of its entry point or file, and its module."""

    name: str
    module: ModuleType


def plugins() -> tuple[Plugin, ...]:
    """All installed plugins in the order of their names, loaded once per process, then those of files.

    Raises:
        UsageError: one of them cannot be imported.
    """
    return (*installed_plugins(), *_used)


@functools.cache
def installed_plugins() -> tuple[Plugin, ...]:
    """Those with an entry point."""
    return load_plugins(entry_points(group=PLUGIN_GROUP))


def used_plugins() -> tuple[str, ...]:
    """What :func:`use_plugin` was given in this process."""
    return tuple(plugin.name for plugin in _used)


def use_plugin(name: str) -> ModuleType:
    """Makes a module a plugin of this process, from now on.

    Args:
        name: the path of a Python file or of the folder of a package, or the name of a module that can be
            imported from the current folder.

    Raises:
        UsageError: it cannot be imported, or is a folder that is no package.
    """
    for plugin in plugins():
        if _is_module(plugin.module, name):
            return plugin.module
    if name.endswith(".py") and not Path(name).is_file():
        raise UsageError(f"the Python file '{name}' of a plugin does not exist")
    package = Path(name) / "__init__.py"
    is_path = not all(part.isidentifier() for part in name.split("."))
    if is_path and Path(name).is_dir() and not package.is_file():
        raise UsageError(f"the folder '{name}' of a plugin has no __init__.py, which would make it a package")
    try:
        module = import_module(str(package) if package.is_file() else name)
    except Exception as error:  # a module may raise anything while it is imported
        raise UsageError(f"plugin '{name}' cannot be imported: {type(error).__name__}: {error}") from error
    _used.append(Plugin(name, module))
    return module


def _is_module(module: ModuleType, name: str) -> bool:
    """Whether a module has that name, or comes from that file, maybe without ``.py``, or that folder."""
    file = getattr(module, "__file__", None)  # modules in C and packages without __init__.py have none
    files = [Path(path).resolve() for path in (name, f"{name}.py", f"{name}/__init__.py")]
    return name == module.__name__ or (file is not None and Path(file).resolve() in files)


def cached_for_plugins(find: Callable[[], T]) -> Callable[[], T]:
    """Decorator of a function that looks into plugins: it is called again only when there are others."""
    found = functools.cache(lambda _: find())

    @functools.wraps(find)
    def call() -> T:
        return found(plugins())

    call.cache_clear = found.cache_clear  # type: ignore[attr-defined]
    return call


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

    Raises:
        UsageError: one of the modules cannot be imported.
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
        name = f"{module.__name__}.{info.name}"
        try:
            below = importlib.import_module(name)
        except Exception as error:  # a plugin may have loaded without it
            raise UsageError(
                f"module '{name}' cannot be imported: {type(error).__name__}: {error}"
            ) from error
        found += subclasses_below(below, base)
    return found
