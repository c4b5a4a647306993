"""Pictures in files, resized, cropped and normalized as a model takes them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from qc.ir.errors import DataError, UsageError, reason_of
from qc.ir.value_type import Dimension

from .data_files import PRESETS, DataFiles, Size, pair
from .extras import extra
from .inputs import InputInfo
from .source import Source, Unread

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # Pillow knows more, which run other programs
_BRIGHTEST = 255  # value of a pixel
_SIDE = 224  # that of presets where the model leaves it free


def picture_source(files: Sequence[Path], how: DataFiles, inputs: Sequence[InputInfo]) -> Source:
    """A source with a picture in each feed, or with as many as the first axis of the input demands.

    Pictures in one folder for each class have the numbers of their classes as labels, in the order of names.

    Raises:
        DataError: pictures do not fit the model, or nothing says how they are to be prepared.
    """
    extra("PIL", "pictures", "reading pictures")
    info = picture_input(inputs, how)
    preparation = Preparation.of(how, info)
    first = info.shape[0] if info.shape is not None and len(info.shape) == 4 else None
    length = first if isinstance(first, int) else 1
    if length < 1 or len(files) % length:
        raise DataError(
            f"'{how.path}' holds {len(files)} pictures, which is no multiple of the {length} the model takes"
        )
    has_batch_axis = info.shape is None or len(info.shape) == 4

    def load(chunk: Sequence[Path]) -> object:
        arrays = [preparation.array(read_picture(file, f"'{file}'"), f"'{file}'") for file in chunk]
        return {info.name: np.stack(arrays) if has_batch_axis else arrays[0]}

    def feeds() -> Iterator[tuple[str, object]]:
        for start in range(0, len(files), length):
            chunk = files[start : start + length]
            yield f"'{chunk[0]}'", Unread(partial(load, chunk))

    labels = _class_labels(Path(how.path), files) if length == 1 else None
    return Source(f"'{how.path}'", feeds, len(files) // length, labels=labels)


def _class_labels(folder: Path, files: Sequence[Path]) -> Callable[[], np.ndarray] | None:
    """The number of the class of each file, if each lies in the folder of a class; else None."""
    if not folder.is_dir():
        return None
    names = [file.relative_to(folder).parts[0] for file in files if file.parent != folder]
    if not files or len(names) < len(files):
        return None
    classes = sorted(set(names))
    return lambda: np.array([classes.index(name) for name in names])


@dataclass(frozen=True)
class Preparation:
    """How a picture becomes an array for an input.

    Attributes:
        info: the input.
        layout: ``nchw`` or ``nhwc``.
        color: ``rgb``, ``bgr`` or ``gray``.
        resize: length of the shorter side, or (height, width); None to leave the size alone.
        crop: (height, width) of what is cut from the middle; None for all.
        scale, mean, std: the numbers are (pixel * scale - mean) / std; ``scale`` is None if pixels stay.
    """

    info: InputInfo
    layout: str
    color: str
    resize: Size | None
    crop: tuple[int, int] | None
    is_bicubic: bool
    scale: float | None
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, how: DataFiles, info: InputInfo) -> Preparation:
        """What the options ask for, filled up by the preset and by the shape of the input.

        Raises:
            DataError: it is not known how pixels become the numbers of the input, or how they lie.
            UsageError: there are not as many means as channels.
        """
        preset = PRESETS[how.preset] if how.preset is not None else None
        layout = how.layout or _layout_of(info)
        channels, height, width = _axes(info, layout)
        color = how.color or ("gray" if channels == 1 else preset.color if preset else "rgb")
        count = 1 if color == "gray" else 3
        if isinstance(channels, int) and channels != count:
            raise DataError(
                f"'{how.path}': pictures in {color} have {count} channel{'s' if count > 1 else ''}, and in "
                f"{layout} the input '{info.name}' has {channels} ({info}); --color and --layout change that"
            )
        resize, crop = how.resize, None if how.crop is None else pair(how.crop)
        if preset is not None and resize is None and crop is None:
            crop = (
                height if isinstance(height, int) else _SIDE,
                width if isinstance(width, int) else _SIDE,
            )
            resize = crop if crop[0] != crop[1] else round(crop[0] / preset.crop_share)
        scale, mean, std = _normalization(how, info)
        return cls(
            info=info,
            layout=layout,
            color=color,
            resize=resize,
            crop=crop,
            is_bicubic=preset is not None and preset.is_bicubic,
            scale=scale,
            mean=_per_channel("mean", mean, count, how),
            std=_per_channel("std", std, count, how),
        )

    def array(self, picture: Image, place: str) -> np.ndarray:
        """The picture for the input, without a batch axis.

        Raises:
            DataError: it has not the size that the model takes.
        """
        picture = self._cropped(self._resized(picture), place)
        pixels = np.asarray(picture.convert("L" if self.color == "gray" else "RGB"))
        pixels = pixels.reshape(*pixels.shape[:2], -1)
        _, *sizes = _axes(self.info, self.layout)
        if any(isinstance(size, int) and size != got for size, got in zip(sizes, pixels.shape, strict=False)):
            raise DataError(
                f"{place}: the picture is {pixels.shape[0]}x{pixels.shape[1]} (height x width), the model "
                f"takes {sizes[0]}x{sizes[1]}; --resize HxW gives it that size, --crop cuts it out of a "
                "larger one, and a --preset alone does both"
            )
        if self.color == "bgr":
            pixels = pixels[..., ::-1]
        if self.scale is not None:
            pixels = (pixels * self.scale - self.mean) / self.std
        if self.layout == "nchw":
            pixels = pixels.transpose(2, 0, 1)
        return np.ascontiguousarray(pixels, self.info.dtype)

    def _resized(self, picture: Image) -> Image:
        if self.resize is None:
            return picture
        from PIL.Image import Resampling

        width, height = picture.size
        if isinstance(self.resize, int):  # as torchvision's Resize: the longer side is rounded down
            shorter = min(width, height)
            size = (width * self.resize // shorter, height * self.resize // shorter)
        else:
            size = (self.resize[1], self.resize[0])
        mode = picture.mode if picture.mode in ("L", "RGB") else "RGB"  # palettes cannot be interpolated
        return picture.convert(mode).resize(
            size, Resampling.BICUBIC if self.is_bicubic else Resampling.BILINEAR
        )

    def _cropped(self, picture: Image, place: str) -> Image:
        if self.crop is None:
            return picture
        (width, height), (crop_height, crop_width) = picture.size, self.crop
        if crop_height > height or crop_width > width:
            raise DataError(
                f"{place}: a crop of {crop_height}x{crop_width} does not fit the picture of "
                f"{height}x{width}; make pictures larger with --resize"
            )
        left, top = round((width - crop_width) / 2), round((height - crop_height) / 2)
        return picture.crop((left, top, left + crop_width, top + crop_height))


def read_picture(file: Path | IO[bytes], place: str) -> Image:
    """A picture with 8 bits in each channel, decoded.

    Raises:
        DataError: it is none that can be read, or larger than any picture should be.
    """
    from PIL import Image

    failures = OSError, ValueError, SyntaxError, Image.DecompressionBombWarning, Image.DecompressionBombError
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            picture = Image.open(file, formats=_FORMATS)
            picture.load()
    except failures as error:
        raise DataError(
            f"{place} cannot be read as a picture: {reason_of(error)}; remove or replace it"
        ) from error
    if picture.mode.startswith(("I", "F")):
        raise DataError(f"{place} has more than 8 bits in a channel; give pictures with 8, or arrays")
    return picture


def picture_input(inputs: Sequence[InputInfo], how: DataFiles) -> InputInfo:
    """The input that takes pictures: the only one with the axes of one."""
    fits = [
        info for info in inputs if not info.optional and (info.shape is None or len(info.shape) in (3, 4))
    ]
    if len(fits) != 1 or fits[0].dtype is None:
        listed = ", ".join(f"'{info.name}' {info}" for info in inputs if not info.optional)
        raise DataError(f"'{how.path}' holds pictures; the model needs one input for them, and has {listed}")
    return fits[0]


def _layout_of(info: InputInfo) -> str:
    """The layout that the shape of an input shows."""
    shape = info.shape[-3:] if info.shape is not None else (None, None, None)
    is_first, is_last = shape[0] in (1, 3), shape[2] in (1, 3)
    if is_first == is_last:
        raise DataError(
            f"the shape of the input '{info.name}' does not show where its channels are ({info}); "
            "give --layout nchw or --layout nhwc"
        )
    return "nchw" if is_first else "nhwc"


def _axes(info: InputInfo, layout: str) -> tuple[Dimension, Dimension, Dimension]:
    """Channels, height and width of an input; None for what is free."""
    shape = info.shape[-3:] if info.shape is not None else (None, None, None)
    return shape if layout == "nchw" else (shape[2], shape[0], shape[1])  # type: ignore[return-value]


def _normalization(how: DataFiles, info: InputInfo) -> tuple[float | None, Sequence[float], Sequence[float]]:
    """Scale, mean and standard deviation; the scale is None where pixels are fed as they are."""
    asked = [name for name in ("scale", "mean", "std") if getattr(how, name) is not None]
    assert info.dtype is not None
    if info.dtype.kind in "iu":
        if asked:
            raise UsageError(
                f"'{asked[0]}' would make fractions of pixels, and the input '{info.name}' takes {info}"
            )
        if np.iinfo(info.dtype).max < _BRIGHTEST:
            raise DataError(f"pixels of 0 to 255 do not fit the input '{info.name}' ({info}); give arrays")
        return None, (0.0,), (1.0,)
    if how.preset is None and not asked:
        raise DataError(
            f"nothing says how pixels of 0 to 255 become the numbers that the model was trained on: give "
            f"--preset {', '.join(list(PRESETS)[:-1])} or {list(PRESETS)[-1]}, or --mean and --std, "
            "or --scale (1/255 for numbers of 0 to 1, 1 for pixels as they are)"
        )
    preset = PRESETS[how.preset] if how.preset is not None else None
    scale = how.scale if how.scale is not None else preset.scale if preset else 1 / 255
    mean = how.mean if how.mean is not None else preset.mean if preset else (0.0,)
    std = how.std if how.std is not None else preset.std if preset else (1.0,)
    return scale, mean, std  # type: ignore[return-value]


def _per_channel(name: str, numbers: Sequence[float], channels: int, how: DataFiles) -> np.ndarray:
    if len(numbers) not in (1, channels):
        owner = f" of preset '{how.preset}'" if getattr(how, name) is None else ""
        pictures = "pictures in gray have 1 channel" if channels == 1 else f"there are {channels} channels"
        one_each = "" if channels == 1 else f", or {channels}"
        example = "--mean 0.5 --std 0.5" if owner else f"--{name} 0.5"
        raise UsageError(
            f"the {name}{owner} has {len(numbers)} numbers, and {pictures}: give one number{one_each}, "
            f"such as {example}, as the model was trained with"
        )
    return np.array(numbers)
