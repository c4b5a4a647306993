"""Reads JSON objects field by field: whatever is wrong names the file, the tensor and the key."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from qc.ir.errors import UsageError, nearest

_LARGEST_NESTING = 16
_MOST_STEPS = 2**31  # of a channel's scale in that of a block
_LONGEST_NUMBER = 24  # digits of a number that errors show in full


class Fields:
    """One JSON object, and where it stands.

    Every method that reads raises UsageError if the field is missing or wrong. :meth:`finish` raises it if a
    field was not read.
    """

    def __init__(self, content: object, place: str) -> None:
        if not isinstance(content, Mapping):
            raise UsageError(f"{place} must be an object, not {_kind(content)}")
        self._content = content
        self.place = place
        self._read: set[str] = set()

    def error(self, key: str, said: str) -> UsageError:
        """An error about a field."""
        return UsageError(f"{self.place}: '{key}' {said}")

    def __contains__(self, key: object) -> bool:
        return key in self._content

    def __iter__(self) -> Iterator[str]:
        return iter([str(key) for key in self._content])

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a field as it is, or ``default``."""
        self._read.add(key)
        return self._content.get(key, default)

    def required(self, key: str) -> Any:
        """The value of a field that must be there."""
        if key not in self._content:
            raise UsageError(f"{self.place}: '{key}' is missing{nearest(key, self._unread())}")
        return self.get(key)

    def objects(self, key: str) -> Iterator[Fields]:
        """The objects of a list with one for each tensor; ``finish`` is left to the caller."""
        entries = self.required(key)
        if not isinstance(entries, list):
            raise self.error(key, "must be a list with one entry for each tensor")
        for number, content in enumerate(entries):
            yield Fields(content, f"{self.place}, {key}[{number}]")

    def text(self, key: str, choices: Sequence[str] = ()) -> str:
        """A text, one of ``choices`` if there are any."""
        value = self.required(key)
        if not isinstance(value, str):
            raise self.error(key, f"must be a text, not {_kind(value)}")
        if choices and value not in choices:
            raise self.error(key, f"is '{value}'{nearest(value, list(choices))}; use {', '.join(choices)}")
        return value

    def integer(self, key: str, lowest: int, highest: int) -> int:
        """An integer within limits; a number such as 8.0 counts."""
        value = self.required(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1:
            raise self.error(key, f"must be an integer, not {_kind(value)}")
        if not lowest <= value <= highest:
            raise self.error(key, f"is {_shown(value)}; it must be {lowest} to {highest}")
        return int(value)

    def boolean(self, key: str) -> bool:
        """True or false, or the texts ``True`` and ``False`` that version 0.6.1 has."""
        value = self.required(key)
        if value in ("True", "False"):
            return bool(value == "True")
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {_kind(value)}")
        return value

    def array(self, key: str, single: bool = False) -> np.ndarray:
        """A number, or unless ``single`` lists in lists of equal length, all finite: float64."""
        value = self.required(key)
        if single and isinstance(value, list):
            raise self.error(key, "must be one number, not a list")
        _check_numbers(self, key, value, 0)
        try:
            return np.asarray(value, np.float64)
        except ValueError as error:
            raise self.error(key, "holds lists of different length") from error

    def scales(self, key: str, single: bool = False) -> np.ndarray:
        """Like :meth:`array`; all numbers above zero, in float32 as well."""
        found = self.array(key, single)
        smallest, largest = found.min(), found.max()
        if not smallest > 0:
            raise self.error(key, f"holds {smallest:g}; every scale must be above zero")
        with np.errstate(over="ignore", under="ignore"):
            too_small, too_large = not np.float32(smallest) > 0, not np.isfinite(np.float32(largest))
        if too_small or too_large:
            said = f"{smallest:g}, which is 0" if too_small else f"{largest:g}, which is infinite"
            raise self.error(key, f"holds {said} in float32, the type of scales")
        return found

    def block_scales(self, key: str) -> np.ndarray:
        """Like :meth:`scales`, whole numbers of a block's scale in steps of its channel's: int64."""
        found = self.scales(key)
        if np.any(found != np.rint(found)) or found.max() >= _MOST_STEPS:
            raise self.error(key, f"must hold whole numbers from 1 to {_MOST_STEPS - 1}")
        return found.astype(np.int64)

    def finish(self) -> None:
        """Raises UsageError if there is a field that nobody read."""
        unread = self._unread()
        if unread:
            known = sorted(self._read)
            raise UsageError(
                f"{self.place}: there is no field '{unread[0]}'{nearest(unread[0], known)}; "
                f"known here: {', '.join(known)}"
            )

    def _unread(self) -> list[str]:
        return [str(key) for key in self._content if key not in self._read]


def _check_numbers(fields: Fields, key: str, value: object, depth: int) -> None:
    if isinstance(value, list) and depth < _LARGEST_NESTING:
        if not value:
            raise fields.error(key, "is an empty list")
        for item in value:
            _check_numbers(fields, key, item, depth + 1)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise fields.error(key, f"must hold numbers, not {_kind(value)}")
    elif not abs(value) <= sys.float_info.max:
        raise fields.error(key, f"holds {_shown(value)}, which is not finite in float64")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: f"the text '{value}'", bool: str(value).lower()}
    return names.get(type(value), "nothing" if value is None else f"the number {_shown(value)}")


def _shown(value: object) -> str:
    """A number as errors show it: of a very long one the first digits, and how many there are."""
    text = str(value)
    return text if len(text) <= _LONGEST_NUMBER else f"{text[:8]}... ({len(text)} digits)"
