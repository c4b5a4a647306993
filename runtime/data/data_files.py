"""Files of data, and how they become the inputs of a model."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from qc.ir.errors import UsageError, nearest

LAYOUTS = ("nchw", "nhwc")
COLORS = ("rgb", "bgr", "gray")

Size = int | tuple[int, int]


@dataclass(frozen=True)
class Preset:
    """How the pictures were prepared that a family of models was trained on.

    Attributes:
        mean, std: of each channel, after pixels were multiplied by ``scale``.
        crop_share: the side of the crop as a share of the shorter side that it is cut from.
        is_bicubic: whether pictures are resized by a bicubic filter; else by a bilinear one.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 1 / 255
    color: str = "rgb"
    crop_share: float = 0.875
    is_bicubic: bool = False


# Of torchvision's classifiers; Inception, MobileNet and ViT; CLIP; Caffe's VGG and ResNet; and MNIST.
PRESETS: Mapping[str, Preset] = {
    "imagenet": Preset((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "inception": Preset((0.5,), (0.5,)),
    "clip": Preset(
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
        crop_share=1.0,
        is_bicubic=True,
    ),
    "caffe": Preset((103.939, 116.779, 123.68), (1.0,), scale=1.0, color="bgr"),
    "mnist": Preset((0.1307,), (0.3081,), color="gray", crop_share=1.0),
}

OPTIONS = {
    "arrays": ("layout",),
    "pictures": ("preset", "resize", "crop", "scale", "mean", "std", "color", "layout"),
    "text": ("tokenizer", "length"),
    "audio": ("rate",),
}
OPTIONS["tables"] = ("columns", *OPTIONS["pictures"], *OPTIONS["text"])


@dataclass(frozen=True)
class DataFiles:
    """A file or folder of data, and what is done with it until it fits a model.

    ``qc.compile("model.onnx", data=qc.DataFiles("photos", preset="imagenet"))`` is what ``qc model.onnx
    --data photos --preset imagenet`` does. Anything that takes data takes this. An option that the kind of
    data has no use for is an error.

    Args:
        path: as for :func:`qc.runtime.load_data`.
        preset: how pictures are prepared, by the name of a family of models: one of ``PRESETS``; the
            options below change single things.
        resize: length of the shorter side of pictures, or (height, width).
        crop: side of the square, or (height, width), that is cut from the middle of pictures.
        scale: what pixels of 0 to 255 are multiplied by; 1/255 unless the preset says otherwise.
        mean: what is then subtracted, one number or one for each channel.
        std: what the difference is then divided by, likewise.
        color: order of the channels: ``rgb``, ``bgr`` or ``gray``.
        layout: layout that the model takes, ``nchw`` or ``nhwc``: pictures are laid out so, and arrays in the
            other layout are transposed.
        tokenizer: a ``tokenizer.json``, which makes token ids of text.
        length: number of tokens that text is cut or filled up to; default: what the model asks for, if any.
        rate: samples in a second that audio has.
        columns: columns of a table that are used, in this order.

    Raises:
        UsageError: an option has no such value.
    """

    path: str | Path
    _: KW_ONLY
    preset: str | None = None
    resize: Size | None = None
    crop: Size | None = None
    scale: float | None = None
    mean: Sequence[float] | float | None = None
    std: Sequence[float] | float | None = None
    color: str | None = None
    layout: str | None = None
    tokenizer: str | Path | None = None
    length: int | None = None
    rate: int | None = None
    columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not str(self.path):
            raise UsageError(f"path={self.path!r} is not the path of a file or folder")
        for name, read in _READ.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, read(name, value))
        if self.std is not None and not all(self.std):  # type: ignore[arg-type]
            raise UsageError("std holds 0, which nothing can be divided by")

    def given(self) -> dict[str, Any]:
        """The options that were given."""
        fields = {field.name: field.default for field in dataclasses.fields(self) if field.name != "path"}
        return {name: getattr(self, name) for name, left in fields.items() if getattr(self, name) != left}

    def check_options(self, kind: str) -> None:
        """Raises UsageError for an option that this kind of data has no use for."""
        for name in self.given():
            if name not in OPTIONS[kind]:
                others = " and ".join(other for other, names in OPTIONS.items() if name in names)
                raise UsageError(f"'{name}' is an option for {others}, and '{self.path}' holds {kind}")


def pair(size: Size) -> tuple[int, int]:
    """Height and width of a size."""
    return (size, size) if isinstance(size, int) else size


def _size(name: str, value: object) -> Size:
    sides = value if isinstance(value, tuple | list) else (value, value)
    if len(sides) != 2 or not all(isinstance(side, Integral) and int(side) > 0 for side in sides):
        raise UsageError(f"{name}={value!r} is neither a whole number of at least 1 nor (height, width)")
    height, width = map(int, sides)
    return (height, width) if isinstance(value, tuple | list) else height


def _whole(name: str, value: object) -> int:
    if not isinstance(value, Integral) or int(value) < 1:
        raise UsageError(f"{name}={value!r} is not a whole number of at least 1")
    return int(value)


def _number(name: str, value: object) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise UsageError(f"{name}={value!r} is not a number")
    return float(value)


def _numbers(name: str, value: object) -> tuple[float, ...]:
    one_or_many = isinstance(value, Iterable) and not isinstance(value, str)
    return tuple(_number(name, one) for one in (value if one_or_many else (value,)))  # type: ignore[attr-defined]


def _names(name: str, value: object) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (None,)
    if not all(isinstance(one, str) for one in names):
        raise UsageError(f"{name}={value!r} is not a list of names")
    return names  # type: ignore[return-value]


def _one_of(known: Sequence[str], name: str, value: object) -> str:
    if value not in known:
        hint = nearest(str(value), list(known))
        raise UsageError(f"unknown {name} '{value}'{hint}; known: {', '.join(known)}")
    return str(value)


# How what was given for an option is checked, and kept.
_READ: Mapping[str, Callable[[str, Any], object]] = {
    "preset": partial(_one_of, tuple(PRESETS)),
    "color": partial(_one_of, COLORS),
    "layout": partial(_one_of, LAYOUTS),
    **dict.fromkeys(("resize", "crop"), _size),
    **dict.fromkeys(("length", "rate"), _whole),
    **dict.fromkeys(("mean", "std"), _numbers),
    "scale": _number,
    "columns": _names,
}
