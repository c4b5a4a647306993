"""What a layer does not have: one clear sentence instead of a missing name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, NoReturn

from qc.ir.errors import UsageError


class NotProvidedError(UsageError, ImportError):
    """Something of the other package that qc does not have.

    It is an ImportError too, so that ``from ... import NAME`` shows the sentence as it is.
    """


def refuse(what: str, advice: str = "") -> NoReturn:
    """Raises NotProvidedError.

    Args:
        what: what was asked for.
        advice: what to do instead.
    """
    raise NotProvidedError(f"{what} is not part of qc's compatibility layer{'; ' + advice if advice else ''}")


def missing_names(module: str, names: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """A ``__getattr__`` for a module.

    Args:
        module: how the user calls the module.
        names: what the other package has there and qc has not, each with what to do instead.
    """

    def getattr_of_module(name: str) -> NoReturn:
        if name in names:
            refuse(f"'{module}.{name}'", names[name])
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return getattr_of_module


class MissingAttributesError(UsageError, AttributeError):
    """An attribute of an object of the other package that qc's object does not have."""


class PartlyProvided:
    """An object of the other package of which qc has some attributes; the others are told by a sentence.

    Attributes:
        instead: what to use instead of attributes that are missing.
    """

    instead: ClassVar[Mapping[str, str]] = {}

    def __getattr__(self, name: str) -> NoReturn:
        advice = f"; {self.instead[name]}" if name in self.instead else ""
        said = f"{type(self).__name__}.{name} is not part of qc's compatibility layer"
        raise MissingAttributesError(said + advice)
