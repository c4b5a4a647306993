"""Data made in Python: iterables of feeds, ONNX Runtime's data readers, and functions that return them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from qc.ir.base.python_files import import_module, line_of
from qc.ir.errors import DataError, QcError, a_type, nearest

from .source import Source


def iterable_source(data: object, origin: str) -> Source:
    """Feeds from an iterable, or from an object with ``get_next`` as ONNX Runtime's calibration has it.

    Raises:
        DataError: it is neither.
    """
    if hasattr(data, "get_next"):
        return Source(origin, _Reader(data, origin), None, is_read_once=not hasattr(data, "rewind"))
    if not isinstance(data, Iterable):
        raise DataError(
            f"{origin}: {a_type(data)} is no data; give a path, module:function, an iterable of "
            "dictionaries or a CalibrationDataReader"
        )
    if hasattr(data, "__next__"):
        return Source(origin, _Once(data, origin), None, is_read_once=True)
    at_hand = isinstance(data, list | tuple)
    return Source(origin, lambda: _numbered(data, origin), _length(data), skips=at_hand)


def callable_source(function: Callable[[], Any], origin: str) -> Source:
    """Feeds from a function without arguments, which is called anew for every reading."""

    def feeds() -> Iterator[tuple[str, object]]:
        try:
            yield from iterable_source(function(), origin).open()
        except QcError:
            raise
        except Exception as error:
            raise _failure(origin, error) from error

    return Source(origin, feeds, None)


def named_function(
    text: str, role: str = "data", error_type: type[QcError] = DataError
) -> Callable[..., Any]:
    """Imports the function that ``module:function`` or ``file.py:function`` names.

    The current folder is put on the search path first, as ``python -m`` does it.

    Args:
        role: what the function is for, in words.
        error_type: what to raise.

    Raises:
        QcError: of ``error_type``; the module cannot be imported or has no such function.
    """
    module_name, _, function_name = text.rpartition(":")
    if not function_name:
        raise error_type(f"{role} '{text}' names no function; give it as {module_name}:FUNCTION")
    if module_name.endswith(".py") and not Path(module_name).is_file():
        raise error_type(f"the Python file '{module_name}' for {role} does not exist")
    try:
        module = import_module(module_name)
    except Exception as error:  # a module may raise anything while it is imported
        sentence = f"cannot import '{module_name}' for {role}: {type(error).__name__}: {error}"
        raise error_type(sentence) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        known = [name for name, value in vars(module).items() if callable(value)]
        raise error_type(f"'{module_name}' has no function '{function_name}'{nearest(function_name, known)}")
    return function  # type: ignore[no-any-return]


class _Once:
    """Opens an iterator, which can be done once."""

    def __init__(self, iterator: Iterable[object], origin: str) -> None:
        self._iterator, self._origin, self._opened = iterator, origin, False

    def __call__(self) -> Iterator[tuple[str, object]]:
        if self._opened:
            raise DataError(
                f"{self._origin}: {a_type(self._iterator)} can be read only once and is needed "
                "again; give a list, or a function that makes a new one"
            )
        self._opened = True
        return _numbered(self._iterator, self._origin)


class _Reader:
    """Opens an ONNX Runtime data reader: again only if it can be rewound."""

    def __init__(self, reader: Any, origin: str) -> None:
        self._reader, self._origin, self._opened = reader, origin, False

    def __call__(self) -> Iterator[tuple[str, object]]:
        if self._opened:
            if not hasattr(self._reader, "rewind"):
                raise DataError(
                    f"{self._origin}: {a_type(self._reader)} can be read only once and is needed "
                    "again; give it a rewind() method, or pass a function that makes a new one"
                )
            self._reader.rewind()
        self._opened = True
        return _numbered(iter(self._reader.get_next, None), self._origin)


def _numbered(feeds: Iterable[object], origin: str) -> Iterator[tuple[str, object]]:
    left = iter(feeds)
    for index in count():
        place = f"{origin}, feed {index}"
        try:
            feed = next(left)
        except StopIteration:
            return
        except QcError:
            raise
        except Exception as error:  # whatever the code of a user raises
            raise _failure(place, error) from error
        yield place, feed


def _failure(place: str, error: Exception) -> DataError:
    """What the code of a user raised, and where; to be called where it was caught."""
    return DataError(f"{place} failed with {type(error).__name__}: {error}{line_of(error)}")


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        return None
