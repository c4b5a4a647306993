"""Pictures become the arrays that models were trained on, and what cannot be known is asked for."""

from __future__ import annotations

import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from PIL import Image

from qc.ir.errors import DataError, UsageError
from qc.runtime import DataFiles, InputInfo, load_data

NCHW = InputInfo("x", TensorProto.FLOAT, (1, 3, 4, 4))
NHWC = InputInfo("x", TensorProto.FLOAT, ("n", 4, 4, 3))
BYTES = InputInfo("x", TensorProto.UINT8, ("n", 3, 4, 4))
GRAY = InputInfo("x", TensorProto.FLOAT, ("n", 1, "h", "w"))
FREE = InputInfo("x", TensorProto.FLOAT, ("n", 3, "h", "w"))


def pixels(height: int = 4, width: int = 4) -> np.ndarray:
    """A picture with another color in every pixel."""
    return np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)


def save(path: Path, array: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)
    return path


def read(path: Path, info: InputInfo, **options: object) -> np.ndarray:
    (feed,) = load_data(DataFiles(path, **options), [info])  # type: ignore[arg-type]
    return feed["x"]


def test_what_pixels_become(tmp_path: Path) -> None:
    path, array = save(tmp_path / "a.png", pixels()), pixels()
    assert np.array_equal(read(path, BYTES), array.transpose(2, 0, 1)[None])
    assert np.array_equal(read(path, NHWC, scale=1), array[None].astype(np.float32))
    assert np.array_equal(read(path, NHWC, scale=1, color="bgr"), array[None, ..., ::-1].astype(np.float32))
    unit = array / 255
    by_hand = ((unit - [0.1, 0.2, 0.3]) / [0.5, 0.6, 0.7]).astype(np.float32)
    assert np.array_equal(read(path, NHWC, mean=[0.1, 0.2, 0.3], std=[0.5, 0.6, 0.7]), by_hand[None])
    imagenet = (unit - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    found = read(path, NCHW, preset="imagenet", crop=4)
    assert found.dtype == np.float32 and np.allclose(found[0], imagenet.transpose(2, 0, 1), atol=1e-6)
    caffe = array[..., ::-1].astype(float) - [103.939, 116.779, 123.68]
    assert np.allclose(read(path, NHWC, preset="caffe", crop=4)[0], caffe, atol=1e-4)
    half = InputInfo("x", TensorProto.FLOAT16, (1, 3, 4, 4))
    assert read(path, half, scale=1).dtype == np.float16


def test_an_input_with_one_channel_gets_gray(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", np.full((2, 2, 3), (255, 0, 0), np.uint8))
    assert np.array_equal(read(path, GRAY, scale=1), np.full((1, 1, 2, 2), 76, np.float32))  # luma of red


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"resize": 8}, (8, 16)),
        ({"resize": (6, 10)}, (6, 10)),
        ({"crop": (8, 4)}, (8, 4)),
        ({"resize": 16, "crop": 12}, (12, 12)),
        ({"preset": "imagenet"}, (224, 224)),
    ],
)
def test_resize_and_crop(options: dict[str, object], size: tuple[int, int], tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", pixels(10, 20))
    assert read(path, FREE, scale=1, **options).shape == (1, 3, *size)


def test_a_preset_resizes_and_crops_to_what_the_model_takes(tmp_path: Path) -> None:
    """Left half black, right half white: what is cut from the middle keeps the edge in the middle."""
    array = np.zeros((100, 200, 3), np.uint8)
    array[:, 100:] = 255
    info = InputInfo("x", TensorProto.FLOAT, (1, 3, 28, 28))
    found = read(save(tmp_path / "a.png", array), info, preset="inception")
    assert (found[..., :13] == -1).all() and (found[..., 15:] == 1).all()


def test_a_folder_in_natural_order_with_the_numbers_of_classes(tmp_path: Path) -> None:
    for index, name in enumerate(("dog/10.png", "dog/9.PNG", "cat/1.jpg")):
        save(tmp_path / name, np.full((2, 2, 3), index, np.uint8))
    (tmp_path / "dog" / "notes.txt").write_text("not a picture")
    data = load_data(DataFiles(tmp_path, scale=1), [FREE])
    assert [int(feed["x"][0, 0, 0, 0]) for feed in data] == [2, 1, 0]
    assert data.length == 3 and data.labels is not None and data.labels.tolist() == [0, 1, 1]
    assert data.shard(1, 2).labels.tolist() == [1]  # type: ignore[union-attr]
    (tmp_path / "cat" / "._1.jpg").write_bytes(b"what a file manager keeps of a picture")
    save(tmp_path / ".cache" / "1.png", pixels())
    assert load_data(DataFiles(tmp_path, scale=1), [FREE]).length == 3
    save(tmp_path / "loose.png", pixels())
    assert load_data(DataFiles(tmp_path, scale=1), [FREE]).labels is None


def test_a_model_with_a_batch_gets_as_many_pictures(tmp_path: Path) -> None:
    for index in range(4):
        save(tmp_path / f"{index}.png", np.full((2, 2, 3), index, np.uint8))
    batch = InputInfo("x", TensorProto.FLOAT, (2, 3, 2, 2))
    first, second = load_data(DataFiles(tmp_path, scale=1), [batch])
    assert first["x"][:, 0, 0, 0].tolist() == [0, 1] and second["x"][:, 0, 0, 0].tolist() == [2, 3]
    (tmp_path / "0.png").unlink()
    with pytest.raises(DataError, match="holds 3 pictures, which is no multiple of the 2 the model takes"):
        load_data(DataFiles(tmp_path, scale=1), [batch])


def test_another_process_prepares_pictures_likewise(tmp_path: Path) -> None:
    save(tmp_path / "a.png", pixels())
    data = load_data(DataFiles(tmp_path, preset="inception"), [NCHW])
    again = load_data(pickle.loads(pickle.dumps(data.source.spec)), [NCHW])
    assert np.array_equal(next(iter(data))["x"], next(iter(again))["x"])


@pytest.mark.parametrize(
    ("info", "options", "error", "message"),
    [
        (NCHW, {}, DataError, "nothing says how pixels of 0 to 255 become .*--preset imagenet, .*--mean"),
        (
            FREE,
            {"scale": 1, "color": "gray"},
            DataError,
            "in gray have 1 channel, and in nchw the input 'x' has 3",
        ),
        (NCHW, {"scale": 1, "resize": 5}, DataError, r"picture is 5x5 \(height x width\).*takes 4x4.*--crop"),
        (NCHW, {"scale": 1, "crop": 9}, DataError, "a crop of 9x9 does not fit the picture of 6x6"),
        (
            NCHW,
            {"mean": [1, 2]},
            UsageError,
            "mean has 2 numbers, and there are 3 channels: give one number, or 3, such as --mean 0.5, as",
        ),
        (
            GRAY,
            {"preset": "imagenet"},
            UsageError,
            "the mean of preset 'imagenet' has 3 numbers, and pictures in gray have 1 channel: give one "
            "number, such as --mean 0.5 --std 0.5, as",
        ),
        (NCHW, {"std": 0}, UsageError, "std holds 0"),
        (NCHW, {"preset": "imagnet"}, UsageError, r"unknown preset 'imagnet' \(did you mean 'imagenet'"),
        (NCHW, {"resize": 0}, UsageError, "resize=0 is neither a whole number of at least 1"),
        (
            InputInfo("x", TensorProto.INT8, (1, 3, 6, 6)),
            {},
            DataError,
            r"pixels of 0 to 255 do not fit the input 'x' \(int8",
        ),
        (BYTES, {"mean": 0.5}, UsageError, "'mean' would make fractions of pixels, .* takes uint8"),
        (
            InputInfo("x", TensorProto.FLOAT, ("n", "a", "b", "c")),
            {"scale": 1},
            DataError,
            "does not show where its channels are .*--layout nchw",
        ),
        (
            InputInfo("x", TensorProto.INT64, (1, 8)),
            {},
            DataError,
            "holds pictures; the model needs one input",
        ),
    ],
)
def test_careless_pictures(
    info: InputInfo, options: dict, error: type[Exception], message: str, tmp_path: Path
) -> None:
    save(tmp_path / "a.png", pixels(6, 6))
    with pytest.raises(error, match=message):
        read(tmp_path, info, **options)


def _huge_png() -> bytes:
    """A PNG that says it has 60,000 by 60,000 pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "content",
    [b"", b"no picture", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", _huge_png()],
    ids=["empty", "text", "a program", "huge"],
)
def test_hostile_pictures(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(DataError, match=r"'.*a\.png' cannot be read as a picture: "):
        read(tmp_path, NCHW, scale=1)


def test_a_damaged_picture_and_one_of_16_bits(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", pixels(64, 64))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"cannot be read as a picture: .*; remove or replace it"):
        read(path, FREE, scale=1)
    Image.fromarray(np.full((4, 4), 40000, np.uint16)).save(path)
    with pytest.raises(DataError, match="more than 8 bits in a channel"):
        read(path, FREE, scale=1)


def test_options_for_another_kind_of_data(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 4, 4), np.float32))
    with pytest.raises(
        UsageError, match=r"'mean' is an option for pictures and tables, and '.*x.npy' holds arrays"
    ):
        load_data(DataFiles(tmp_path / "x.npy", mean=0), [NCHW])
