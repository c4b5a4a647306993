"""Imports of AIMET's names: every path of AIMET 2.42 below ``aimet_onnx`` and ``aimet_common`` is this layer.

``names.toml`` lists AIMET's modules and what they define. A module that the layer has as a file is that file;
any other gets its names from where the layer has them. What the layer does not have at all is a sentence that
says what to use instead.
"""

from __future__ import annotations

import logging
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from ..missing import refuse, refuse_name

_LAYER = __name__.rpartition(".")[0]
_NAMES = Path(__file__).with_name("names.toml")
_IMPORTED = ("libpymo", "libquant_info")  # by many modules of AIMET, from which scripts take them
_ALIASES = {"aimet_onnx": "", "aimet_common": "common"}  # packages of AIMET, and where they lie in the layer


def install() -> None:
    """Lets ``aimet_onnx`` and ``aimet_common`` be this layer for whatever is imported or run afterwards.

    Raises:
        ImportError: AIMET itself was imported before.
    """
    for name in _ALIASES:
        module = sys.modules.get(name)
        if module is not None and module.__name__.partition(".")[0] != _LAYER.partition(".")[0]:
            raise ImportError(f"'{name}' is imported already; call install() before")
    _FINDER.aliases = _ALIASES


def names_of(module: str) -> frozenset[str]:
    """What a module of AIMET defines, named by its path below ``aimet_onnx``; empty if there is none."""
    return _tables()[2].get(module, frozenset())


def modules() -> list[str]:
    """The modules of AIMET, by their paths below ``aimet_onnx``."""
    return list(_tables()[2])


def provided(module: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module: names that the layer has elsewhere, and the sentences of all others.

    Args:
        module: its path below ``aimet_onnx``; empty for the package itself.
    """

    def getattr_of_module(name: str) -> Any:
        path = f"{module}.{name}" if module else name
        if path in _tables()[2]:
            if not is_provided(path):
                refuse_name(f"'{_called(path)}'", _instead(path))
            return import_module(f"{_LAYER}.{path}")
        if name in _IMPORTED:
            return import_module(f"{_LAYER}.common.{name}")
        if name == "logger":
            return logging.getLogger(_called(module))
        owner = module if name in names_of(module) else _owner(name)
        if owner is None or name.startswith("_"):
            raise AttributeError(f"module '{_called(module)}' has no attribute '{name}'")
        for place in (owner, *_tables()[0].get(owner, ())):
            found = vars(_file(place)).get(name) if _exists(place) else None
            if found is not None:
                return found
        refuse_name(f"'{_called(owner)}.{name}'", _instead(f"{owner}.{name}"))

    return getattr_of_module


@cache
def _tables() -> tuple[dict[str, list[str]], dict[str, str], dict[str, frozenset[str]]]:
    with _NAMES.open("rb") as file:
        tables = tomllib.load(file)
    defined = {module: frozenset(names.split()) for module, names in tables["modules"].items()}
    return tables["places"], tables["instead"], defined


@cache
def _owner(name: str) -> str | None:
    """The module that defines a name which others of AIMET import from it: one that the layer has, if any."""
    owners = [module for module, names in _tables()[2].items() if name in names]
    return next((one for one in owners if _exists(one)), owners[0] if owners else None)


@cache
def _exists(module: str) -> bool:
    """Whether the layer has a file of this path."""
    path = Path(__file__).parent.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _file(module: str) -> ModuleType:
    return import_module(f"{_LAYER}.{module}")


def _called(module: str) -> str:
    return f"aimet_onnx.{module}" if module else "aimet_onnx"


def _instead(path: str) -> str:
    """The advice for a module or a name, or for what it lies in."""
    advice = _tables()[1]
    while path and path not in advice:
        path = path.rpartition(".")[0]
    return advice.get(path, "")


def is_provided(module: str) -> bool:
    """Whether the layer has anything that a module of AIMET defines, or a module below it does."""
    places, _, defined = _tables()
    below = [one for one in defined if one == module or one.startswith(f"{module}.")]
    return any(_exists(place) for one in below for place in (one, *places.get(one, ())))


class _Completed(SourceFileLoader):
    """Loads a file of the layer, and adds what AIMET has there and the layer elsewhere."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.__dict__.setdefault("__getattr__", provided(module.__name__.removeprefix(f"{_LAYER}.")))


class _Table(Loader):
    """Makes a module that the layer has no file for."""

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = provided(module.__name__.removeprefix(f"{_LAYER}."))  # type: ignore[method-assign]


class _Alias(Loader):
    """Gives a module of the layer under AIMET's name: the same object, so that its types are the same."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the alias there


class _Finder(MetaPathFinder):
    """Finds the modules below the layer and, once installed, those of AIMET.

    Attributes:
        aliases: packages of AIMET, and the modules of the layer that they are.
    """

    def __init__(self) -> None:
        self.aliases: dict[str, str] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, below = fullname.partition(".")
        if root in self.aliases:
            module = ".".join(filter(None, (self.aliases[root], below)))
            if module and module not in _tables()[2]:
                raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)
            found = import_module(f"{_LAYER}.{module}" if module else _LAYER)
            return ModuleSpec(fullname, _Alias(found), is_package=hasattr(found, "__path__"))
        if not fullname.startswith(f"{_LAYER}."):
            return None
        module = fullname.removeprefix(f"{_LAYER}.")
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Completed(fullname, spec.origin)
            return spec
        if module not in _tables()[2]:
            return None
        if not is_provided(module):
            refuse(f"'{_called(module)}'", _instead(module))
        made = ModuleSpec(fullname, _Table(), origin=str(_NAMES), is_package=True)
        made.has_location = True
        return made


_FINDER = _Finder()
sys.meta_path.insert(0, _FINDER)
