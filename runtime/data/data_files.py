"""Files of data, and how they become the inputs of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
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
        for name in ("mean", "std"):
            value = getattr(self, name)
            if value is not None:
                numbers = (value,) if isinstance(value, int | float) else tuple(value)
                object.__setattr__(self, name, tuple(map(float, numbers)))
        object.__setattr__(self, "columns", tuple(self.columns))
        _one_of("preset", self.preset, tuple(PRESETS))
        _one_of("color", self.color, COLORS)
        _one_of("layout", self.layout, LAYOUTS)
        for name in ("resize", "crop", "length", "rate"):
            value = getattr(self, name)
            if value is not None and min(pair(value)) < 1:
                raise UsageError(f"{name}={value!r} is not at least 1")
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


def _one_of(name: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise UsageError(f"unknown {name} '{value}'{nearest(value, list(known))}; known: {', '.join(known)}")
