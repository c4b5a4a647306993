"""The types of numbers among the options."""

from __future__ import annotations

import math
from typing import Any

import click

MOST = 2**31 - 1
MOST_WORKERS = 1024  # threads or processes: more than any machine has use for


class CountType(click.ParamType):
    """A whole number within limits."""

    name = "N"

    def __init__(self, least: int = 1, most: int = MOST) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if not str(value).isdecimal() or int(value) < self.least:
            self.fail(f"{str(value)!r} is not a number of at least {self.least}", param, ctx)
        if int(value) > self.most:
            self.fail(f"{value} is more than {self.most}", param, ctx)
        return int(value)


class SecondsType(click.ParamType):
    """A time in seconds: at least 0, or above 0."""

    name = "S"

    def __init__(self, none: bool) -> None:
        """``none`` allows 0."""
        self.none = none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The time."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not self.none):
            least = "of at least 0" if self.none else "above 0"
            self.fail(f"{str(value)!r} is not a number of seconds {least}", param, ctx)
        return seconds


class SizeType(click.ParamType):
    """``NAME=N``: the length of a free dimension."""

    name = "NAME=N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """The name and the length."""
        name, _, number = str(value).partition("=")
        if not name or not number.isdecimal() or int(number) < 1:
            self.fail(f"{value!r} is not of the form NAME=N with N at least 1", param, ctx)
        return name, int(number)
