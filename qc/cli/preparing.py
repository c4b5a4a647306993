"""The options that say how files of data become the inputs of a model. Imports nothing that takes time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from qc.options import option

if TYPE_CHECKING:
    from qc.runtime import DataFiles


def picture_size(text: str) -> int | tuple[int, int]:
    """``256``, or ``256x192``: height and width."""
    parts = text.split("x")
    if len(parts) > 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise ValueError(f"{text!r} is not a size such as 256, or 256x192 for height and width")
    return int(parts[0]) if len(parts) == 1 else (int(parts[0]), int(parts[1]))


def numbers(text: str) -> tuple[float, ...]:
    """``0.485,0.456,0.406``."""
    return tuple(number(part) for part in text.split(","))


def number(text: str) -> float:
    """``0.5`` or ``1/255``."""
    try:
        over, slash, under = text.partition("/")
        found = float(over) / float(under) if slash else float(over)
    except (ValueError, ZeroDivisionError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"{text!r} is not a number such as 0.5 or 1/255")
    return found


def names(text: str) -> tuple[str, ...]:
    """``age,height``."""
    found = tuple(name.strip() for name in text.split(","))
    if not all(found):
        raise ValueError(f"{text!r} is not a list of names such as age,height")
    return found


@dataclass(frozen=True, kw_only=True)
class Preparing:
    """How data is prepared: the options of :class:`qc.runtime.DataFiles`, by their names there."""

    preset: str | None = option(
        None,
        "Prepare pictures as for imagenet, inception, clip, caffe or mnist; the options below change single "
        "steps.",
        metavar="NAME",
    )
    resize: object = option(
        None, "Resize pictures: the shorter side to N, or to HxW.", metavar="N|HxW", parse=picture_size
    )
    crop: object = option(
        None, "Cut a square of N, or HxW, from the middle.", metavar="N|HxW", parse=picture_size
    )
    scale: float | None = option(
        None, "Multiply pixels of 0 to 255, by 1/255 unless said.", metavar="X", parse=number
    )
    mean: tuple[float, ...] | None = option(
        None, "Then subtract one number, or one for each channel.", metavar="X,X,X", parse=numbers
    )
    std: tuple[float, ...] | None = option(None, "Then divide, likewise.", metavar="X,X,X", parse=numbers)
    color: str | None = option(None, "Order of channels: rgb, bgr or gray.", metavar="NAME")
    layout: str | None = option(
        None,
        "Layout that the model takes, nchw or nhwc; arrays in the other one are transposed.",
        metavar="NAME",
    )
    tokenizer: str | None = option(None, "Make token ids of text by a tokenizer.json.", metavar="FILE")
    length: Annotated[int, Ge(1)] | None = option(None, "Cut or fill up text to N tokens.", metavar="N")
    rate: Annotated[int, Ge(1)] | None = option(
        None, "Samples in a second of the audio, such as 16000.", metavar="N"
    )
    columns: tuple[str, ...] | None = option(
        None, "Columns of a table that the model takes, in this order.", metavar="NAME,NAME", parse=names
    )

    def of(self, source: str) -> str | DataFiles:
        """The data that ``source`` names, with what is to be done to it.

        Raises:
            UsageError: an option has no such value.
        """
        if not self.given:
            return source
        from qc.runtime import DataFiles

        return DataFiles(source, **self.given)

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given."""
        return {name: value for name, value in vars(self).items() if value not in (None, ())}
