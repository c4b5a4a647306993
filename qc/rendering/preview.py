"""The first samples of data as a model sees them: in numbers, and drawn for the browser."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from qc.ir.executor import Feed
from qc.runtime import Data
from qc.runtime.data.extras import extra
from qc.runtime.data.text import read_tokenizer

from .html import page
from .table import Column, Table, text
from .words import count

_MOST_LISTED = 64  # numbers of a sample in words
_MOST_POINTS = 400  # of a curve


def preview_table(feeds: Sequence[Feed]) -> Table:
    """What each input gets in these feeds; of floats the mean and standard deviation over all elements."""
    table = Table([text("input"), text("shape"), text("type"), *(Column(name, ".4g") for name in _NUMBERS)])
    for name in feeds[0]:
        arrays = [np.asarray(feed[name]) for feed in feeds if name in feed]
        shapes = dict.fromkeys(str(array.shape) for array in arrays)
        shown = (
            next(iter(shapes)) if len(shapes) == 1 else f"{count(len(shapes), 'shape')}, {next(iter(shapes))}"
        )
        table.add(name, shown, str(arrays[0].dtype), *_numbers(arrays))
    return table


_NUMBERS = ("least", "greatest", "mean", "deviation")


def _numbers(arrays: Sequence[np.ndarray]) -> tuple[float | None, ...]:
    if arrays[0].dtype.kind not in "biufV" or not any(array.size for array in arrays):
        return (None,) * len(_NUMBERS)
    every = np.concatenate([array.ravel().astype(np.float64) for array in arrays])
    return every.min(), every.max(), every.mean(), every.std()


@dataclass(frozen=True)
class Drawing:
    """One input of a sample: a picture, a curve, or numbers in words.

    Attributes:
        caption: the input, and its least and greatest number.
        pictures: PNG files as URIs.
        curve: points for an SVG polyline in a box of 400 by 100.
        words: the first numbers, behind the text that token ids stand for.
    """

    caption: str
    pictures: tuple[str, ...] = ()
    curve: str = ""
    words: str = ""


def preview_page(title: str, data: Data, feeds: Sequence[Feed]) -> str:
    """A self-contained page.

    Raises:
        DataError: there are pictures, and Pillow is not installed.
    """
    labels = data.labels
    how = data.source.spec
    tokenizer = read_tokenizer(Path(how.tokenizer)) if how is not None and how.tokenizer is not None else None
    samples = [
        (
            f"sample {index}" + (f", label {labels[index]}" if labels is not None else ""),
            [
                _drawing(name, np.asarray(array), _text_of(feed, name, tokenizer))
                for name, array in feed.items()
            ],
        )
        for index, feed in enumerate(feeds)
    ]
    subtitle = f"the first {count(len(feeds), 'sample')} of {data.origin}"
    return page(
        "rendering/preview.html", title=title, subtitle=subtitle, table=preview_table(feeds), samples=samples
    )


def _text_of(feed: Feed, name: str, tokenizer: Any) -> str:
    """The text behind the token ids of an input, in quotes; empty for others."""
    if tokenizer is None or (name != "input_ids" and len(feed) > 1):
        return ""
    return f"“{tokenizer.decode(np.asarray(feed[name]).reshape(-1).tolist())}”: "


def _drawing(name: str, array: np.ndarray, read: str = "") -> Drawing:
    least, greatest, _, _ = _numbers([array])
    within = "" if least is None else f", {least:.4g} to {greatest:.4g}"
    caption = f"{name} {array.shape}{within}"
    flat = array.reshape(-1)
    if array.dtype.kind in "fV" or array.dtype == np.uint8:
        pictures = _pictures(array)
        if pictures is not None:
            return Drawing(caption, tuple(map(_png, pictures)))
        if flat.size > _MOST_LISTED:
            return Drawing(caption, curve=_curve(flat.astype(np.float64)))
    more = ", ..." if flat.size > _MOST_LISTED else ""
    listed = ", ".join(str(one) for one in flat[:_MOST_LISTED].tolist())
    return Drawing(caption, words=f"{read}{listed}{more}")


def _pictures(array: np.ndarray) -> list[np.ndarray] | None:
    """The pictures in an array, with the channels last; None if its shape is not that of pictures.

    What is one pixel high or wide is a signal, such as audio.
    """
    if array.ndim == 3:
        array = array[np.newaxis]
    if array.ndim != 4 or not array.size:
        return None
    if array.shape[1] in (1, 3):
        array = array.transpose(0, 2, 3, 1)
    is_picture = array.shape[-1] in (1, 3) and 1 not in array.shape[1:3]
    return list(array) if is_picture else None


def _png(picture: np.ndarray) -> str:
    """A picture, from black for its least number to white for its greatest, as a URI."""
    image = extra("PIL.Image", "pictures", "drawing samples")
    numbers = picture.astype(np.float64)
    span = numbers.max() - numbers.min()
    pixels = np.round((numbers - numbers.min()) * (255 / span if span else 0)).astype(np.uint8)
    content = BytesIO()
    image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(content, "PNG")
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def _curve(numbers: np.ndarray) -> str:
    """The least and the greatest number of each stretch, as points."""
    stretches = np.array_split(numbers, min(len(numbers), _MOST_POINTS // 2))
    ends = np.array([end for stretch in stretches for end in (stretch.min(), stretch.max())])
    span = ends.max() - ends.min() or 1.0
    heights = 100 - 100 * (ends - ends.min()) / span
    step = 400 / max(len(ends) - 1, 1)
    return " ".join(f"{index * step:.1f},{height:.1f}" for index, height in enumerate(heights))
