"""Errors as scripts and tools for ONNX Runtime's quantizer catch them, which raises ValueError for most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qc.coverage import CoverageError
from qc.ir.errors import DataError, ModelError, QcError, QuantizedError, UsageError

from ..missing import NotProvidedError


class ArgumentError(UsageError, ValueError):
    """An argument that is wrong."""


class MissingArgumentError(NotProvidedError, ValueError):
    """An argument, or a value of one, that qc does not provide."""


class FeedError(DataError, ValueError):
    """Data that does not fit the model."""


class WrongModelError(ModelError, ValueError):
    """A model that cannot be read, or is not valid."""


class QuantizedModelError(QuantizedError, WrongModelError):
    """A model that is quantized already."""


class NothingQuantizedError(CoverageError, ValueError):
    """A model of which nothing was quantized."""


_TYPES: dict[type[QcError], type[QcError]] = {
    NotProvidedError: MissingArgumentError,
    UsageError: ArgumentError,
    DataError: FeedError,
    ModelError: WrongModelError,
    QuantizedError: QuantizedModelError,
    CoverageError: NothingQuantizedError,
}


@contextmanager
def raised_as_in_onnxruntime() -> Iterator[None]:
    """Lets errors about arguments, data, models and results be ValueErrors, too; a decorator as well."""
    try:
        yield
    except tuple(_TYPES) as error:
        if type(error) not in _TYPES:
            raise
        own = _TYPES[type(error)]
        raised = own.__new__(own, *error.args)
        vars(raised).update(vars(error))  # what else it tells, such as the coverage
        raise raised from error
