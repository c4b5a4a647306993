"""Errors as scripts and tools for ONNX Runtime's quantizer catch them, which raises ValueError for most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qc.ir.errors import DataError, ModelError, UsageError

from ..missing import NotProvidedError


class ArgumentError(UsageError, ValueError):
    """An argument that is wrong."""


class MissingArgumentError(NotProvidedError, ValueError):
    """An argument, or a value of one, that qc does not provide."""


class FeedError(DataError, ValueError):
    """Data that does not fit the model."""


class WrongModelError(ModelError, ValueError):
    """A model that cannot be read, is not valid, or is quantized already."""


_TYPES: tuple[tuple[type[Exception], type[Exception]], ...] = (
    (NotProvidedError, MissingArgumentError),
    (UsageError, ArgumentError),
    (DataError, FeedError),
    (ModelError, WrongModelError),
)


@contextmanager
def raised_as_in_onnxruntime() -> Iterator[None]:
    """Lets errors about arguments, data and models be ValueErrors, too; a decorator as well."""
    try:
        yield
    except (UsageError, DataError, ModelError) as error:
        for own, type_of_both in _TYPES:
            if type(error) is own:
                raise type_of_both(str(error)) from error
        raise
