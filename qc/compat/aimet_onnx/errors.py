"""Errors as scripts for AIMET catch them."""

from collections.abc import Iterator
from contextlib import contextmanager

from qc.ir.errors import DataError, UsageError


class ArgumentError(UsageError, ValueError, AssertionError):
    """An argument that is wrong: of all the types that AIMET raises for one, here or there."""


class FormatError(ArgumentError, NotImplementedError):
    """A number format that something cannot be said of."""


class MissingOptionError(ArgumentError, AttributeError):
    """An attribute of session options that there is not."""


class MissingFileError(ArgumentError, FileNotFoundError):
    """A file that is not there."""


class FeedError(DataError, ValueError):
    """Data that does not fit the model."""


@contextmanager
def raised_as_in_aimet() -> Iterator[None]:
    """Lets errors about arguments and data be of AIMET's types, too; a decorator as well."""
    try:
        yield
    except UsageError as error:
        if isinstance(error, ValueError):
            raise
        raise ArgumentError(str(error)) from error
    except DataError as error:
        raise FeedError(str(error)) from error
