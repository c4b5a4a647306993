"""What a layer does not have: one clear sentence instead of a missing name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from opcode import opmap
from typing import ClassVar, NoReturn

from qc.ir.errors import UsageError


class NotProvidedError(UsageError, ImportError):
    """Something of the other package that qc does not have.

    It is an ImportError too, so that ``from ... import NAME`` shows the sentence as it is.
    """


class MissingAttributesError(UsageError, AttributeError):
    """An attribute of a module or object of the other package that qc's does not have."""


def refuse(what: str, advice: str = "") -> NoReturn:
    """Raises NotProvidedError.

    Args:
        what: what was asked for.
        advice: what to do instead.
    """
    raise NotProvidedError(_sentence(what, advice))


def refuse_name(what: str, advice: str = "") -> NoReturn:
    """As :func:`refuse`, for the ``__getattr__`` of a module that calls it.

    ``hasattr`` knows AttributeError alone, in whose place ``from ... import NAME`` puts an error of its own.
    So which of the two it is goes by the statement that asks for the name.

    Raises:
        NotProvidedError: it is imported.
        MissingAttributesError: it is read as an attribute.
    """
    asking = sys._getframe(2)  # behind the module's __getattr__, which is called from C
    if asking.f_code.co_code[asking.f_lasti] == opmap["IMPORT_FROM"]:
        refuse(what, advice)
    raise MissingAttributesError(_sentence(what, advice))


def missing_names(module: str, names: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """A ``__getattr__`` for a module.

    Args:
        module: how the user calls the module.
        names: what the other package has there and qc has not, each with what to do instead.
    """

    def getattr_of_module(name: str) -> NoReturn:
        if name in names:
            refuse_name(f"'{module}.{name}'", names[name])
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return getattr_of_module


def _sentence(what: str, advice: str) -> str:
    return f"{what} is not part of qc's compatibility layer{'; ' + advice if advice else ''}"


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
