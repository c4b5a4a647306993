"""Data as people have it in Python and in archives: tensors, tuples with labels, more arrays than inputs."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from support.data import IMAGE, LENGTH, equal, images

from qc.ir.errors import DataError
from qc.runtime import DataFiles, InputInfo, load_data

PICTURE = InputInfo("picture", TensorProto.FLOAT, ("n", 3, 4, 5))


class Tensor:
    """An array of another library, as numpy sees it."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._array


class DlpackTensor:
    """An array that can be had by DLPack only."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class OnGpu:
    """An array that cannot be had as it is."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


@pytest.mark.parametrize("wrap", [np.asarray, Tensor, DlpackTensor])
def test_samples_of_one_input(wrap: Any) -> None:
    expected = [{"image": images(2)[i : i + 1]} for i in range(2)]
    batches = [wrap(images(2)[i : i + 1]) for i in range(2)]
    forms: list[Any] = [
        batches,
        [wrap(one) for one in images(2)],
        [(batch, wrap(np.array([7]))) for batch in batches],  # with a label, as a DataLoader gives it
        [[batch] for batch in batches],
        [{"image": batch, "labels": wrap(np.array([7]))} for batch in batches],
        [UserDict(image=batch) for batch in batches],
        lambda: (batch for batch in batches),
        wrap(images(2)),
        {"image": wrap(images(2)), "labels": wrap(np.array([7, 8]))},
    ]
    for form in forms:
        assert equal(load_data(form, [IMAGE]), expected)


def test_tuples_for_several_inputs() -> None:
    samples = [(images(1), np.array(3)), (images(1)[0], Tensor(np.array(4)), 9)]
    data = load_data(samples, [IMAGE, LENGTH])
    assert equal(data, [{"image": images(1), "length": np.array(length)} for length in (3, 4)])
    assert list(data.unused) == ["label"]


def test_a_generator_is_read_once() -> None:
    def samples() -> Iterator[np.ndarray]:
        yield from images(3)

    assert len(list(load_data(samples(), [IMAGE]))) == 3


def test_an_array_that_cannot_be_had() -> None:
    for data in ([{"image": OnGpu()}], {"image": OnGpu()}):
        with pytest.raises(
            DataError, match="input 'image': an 'OnGpu' cannot be read as a numpy array: can't"
        ):
            list(load_data(data, [IMAGE]))


@pytest.mark.parametrize("name", ["label", "labels"])
def test_an_archive_with_more_arrays_than_inputs(name: str, tmp_path: Path) -> None:
    more: dict[str, np.ndarray] = {"image": images(3), name: np.array([4, 5, 6]), "id": np.arange(9)}
    np.savez(tmp_path / "a.npz", **more)  # type: ignore[arg-type]
    for source in (tmp_path / "a.npz", more):
        data = load_data(source, [IMAGE])
        assert len(list(data)) == 3 and data.labels is not None and data.labels.tolist() == [4, 5, 6]
        assert list(data.unused) == ["id"]
    np.savez(tmp_path / "a.npz", image=images(3), labels=np.array([1, 2]))
    with pytest.raises(DataError, match=r"'labels' has shape \(2,\), and there are 3 samples"):
        load_data(tmp_path / "a.npz", [IMAGE])


def test_labels_of_feeds_in_files_of_their_own(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=images(1), labels=np.array([4]))
    data = load_data(tmp_path, [IMAGE])
    assert equal(data, [{"image": images(1)}]) and list(data.unused) == ["labels"]


def test_the_other_layout_is_noticed_and_transposed(tmp_path: Path) -> None:
    right = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    other = np.ascontiguousarray(right.transpose(0, 2, 3, 1))
    np.savez(tmp_path / "a.npz", picture=other)
    advice = r"your data is NHWC: --layout nchw transposes files, array\.transpose\(0, 3, 1, 2\) an array"
    for source in (other, tmp_path / "a.npz", [{"picture": other}]):
        with pytest.raises(DataError, match=advice):
            list(load_data(source, [PICTURE]))
    files = load_data(DataFiles(tmp_path / "a.npz", layout="nchw"), [PICTURE])
    assert equal(files, [{"picture": right[i : i + 1]} for i in range(2)])
    np.savez(tmp_path / "a.npz", picture=right)  # what fits as it is, is left
    assert equal(files := load_data(DataFiles(tmp_path, layout="nchw"), [PICTURE]), [{"picture": right}])
    assert files.idle_layout == "nchw"
    np.savez(tmp_path / "0.npz", picture=other)  # read before the other
    both = load_data(DataFiles(tmp_path, layout="nchw"), [PICTURE])
    assert len(list(both)) == 2 and both.idle_layout is None, "one that was transposed is enough"
    last = InputInfo("picture", TensorProto.FLOAT, (1, "h", "w", 3))
    with pytest.raises(DataError, match="your data is NCHW: --layout nhwc"):
        list(load_data(right, [last]))


def test_no_advice_where_no_layout_would_help() -> None:
    with pytest.raises(DataError) as caught:
        list(load_data(np.zeros((1, 3, 4, 6), np.float32), [PICTURE]))
    assert "layout" not in str(caught.value)


@pytest.mark.parametrize(
    ("offsets", "number", "message"),
    [((6, 8), 1, "is encrypted"), ((8, 10), 97, "compression method is not supported")],
)
def test_archives_that_cannot_be_opened(
    offsets: tuple[int, int], number: int, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, image=images(1))
    content = bytearray(path.read_bytes())
    for start, offset in zip((b"PK\x03\x04", b"PK\x01\x02"), offsets, strict=True):
        content[content.find(start) + offset] = number  # of the file, and in the directory of the archive
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"cannot read data from '.*a.npz': .*{message}"):
        load_data(path, [IMAGE])
