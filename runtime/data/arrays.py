"""Arrays in files: numpy's formats, read piece by piece, and the test data of ONNX."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.lib import format as npy
from onnx import TensorProto, numpy_helper

from qc.ir.errors import DataError, QcError, reason_of

from .inputs import InputInfo, the_only_input
from .source import Rows, Source, Unread, stacked_source, with_batch_axis

_ZIP_START = b"PK"
_ZIP_ERRORS = zipfile.BadZipFile, zlib.error  # and RuntimeErrors for encryption and unknown compression


def array_source(path: Path, inputs: Sequence[InputInfo]) -> Source | None:
    """A source that reads a file or folder of arrays; the forms are listed in :mod:`qc.runtime.data.load`.

    Returns:
        None if the path has none of these forms.

    Raises:
        DataError: files are damaged or do not fit the model.
    """
    if path.is_dir():
        return _folder_source(path, inputs)
    if path.suffix == ".npz":
        return stacked_source(f"'{path}'", _npz_rows(path), inputs)
    if path.suffix == ".npy":
        return stacked_source(f"'{path}'", _load_npy(path, mapped=True), inputs)
    return None


def load_labels(path: str | Path) -> np.ndarray:
    """The array of an ``.npy`` file with an element for each feed along its first axis.

    Raises:
        DataError: it is not such a file, or the array is a single number.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"labels '{path}' do not exist")
    if not path.is_file() or path.suffix != ".npy":
        raise DataError(f"labels '{path}' are not an .npy file; save them with numpy.save")
    labels = _load_npy(path)
    if not labels.ndim:
        raise DataError(f"labels '{path}' hold a single number; give one for each feed")
    return labels


def _folder_source(path: Path, inputs: Sequence[InputInfo]) -> Source | None:
    visible = (child for child in path.iterdir() if not child.name.startswith("."))
    children = sorted(visible, key=natural_order)
    sets = [child for child in children if child.name.startswith("test_data_set_") and child.is_dir()]
    npz = [child for child in children if child.suffix == ".npz"]
    arrays = [child for child in children if child.suffix == ".npy"]
    if any(re.fullmatch(r"input_\d+\.pb", child.name) for child in children):
        sets = [path]
    per_input = {info.name: path / info.name for info in inputs if (path / info.name).is_dir()}
    found = [kind for kind in (sets, npz, arrays, per_input) if kind]
    if not found:
        return None
    if len(found) > 1:
        raise DataError(f"the folder '{path}' holds data of several kinds; keep one kind to a folder")
    if sets:
        return _one_per_file(path, sets, lambda folder: _test_data_set(folder, inputs))
    if npz:
        return _one_per_file(path, npz, lambda file: _npz_feed(file, inputs))
    if arrays:
        info = the_only_input(inputs, f"'{path}'")
        return _one_per_file(path, arrays, lambda file: {info.name: with_batch_axis(_load_npy(file), info)})
    return _folder_per_input(path, per_input, inputs)


def _one_per_file(path: Path, files: Sequence[Path], load: Callable[[Path], object]) -> Source:
    def feeds() -> Iterator[tuple[str, object]]:
        for file in files:
            yield f"'{file}'", Unread(partial(load, file))

    return Source(f"'{path}'", feeds, len(files))


def _folder_per_input(path: Path, folders: dict[str, Path], inputs: Sequence[InputInfo]) -> Source:
    infos = {info.name: info for info in inputs}
    names = {
        name: [file.name for file in sorted(folder.glob("*.npy"), key=natural_order)]
        for name, folder in folders.items()
    }
    first, *others = names
    for other in others:
        if names[first] != names[other]:
            odd = min(set(names[first]) ^ set(names[other]))
            raise DataError(f"'{path}': the folders '{first}' and '{other}' differ: only one holds '{odd}'")

    def load(file: str) -> object:
        return {
            name: with_batch_axis(_load_npy(folder / file), infos[name]) for name, folder in folders.items()
        }

    def feeds() -> Iterator[tuple[str, object]]:
        for file in names[first]:
            yield f"'{path / first / file}'", Unread(partial(load, file))

    return Source(f"'{path}'", feeds, len(names[first]))


def natural_order(path: Path) -> list[tuple[bool, int, str]]:
    """Sorts ``2.npy`` before ``10.npy``."""
    parts = re.findall(r"\d+|\D+", path.name)
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except QcError:
        raise
    except (OSError, ValueError, EOFError, MemoryError, RuntimeError, *_ZIP_ERRORS) as error:
        reason = "it is damaged or cut short" if isinstance(error, _ZIP_ERRORS) else reason_of(error)
        raise DataError(f"cannot read data from '{path}': {reason}") from error


def _check_format(path: Path, start: bytes) -> None:
    """Raises DataError if the file does not begin as one of its suffix does."""
    with _reading(path), path.open("rb") as file:
        found = file.read(len(start))
    if found != start:
        raise DataError(f"cannot read data from '{path}': it is not an {path.suffix} file")


def _load_npy(path: Path, mapped: bool = False) -> np.ndarray:
    _check_format(path, npy.MAGIC_PREFIX)
    with _reading(path):
        with path.open("rb") as file:
            _refuse_objects(path.name, _read_header(file)[2])
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)  # type: ignore[no-any-return]


def _npz_feed(path: Path, inputs: Sequence[InputInfo]) -> dict[str, np.ndarray]:
    infos = {info.name: info for info in inputs}
    _check_format(path, _ZIP_START)
    with _reading(path), np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return {
        name: with_batch_axis(array, infos[name]) if name in infos else array
        for name, array in arrays.items()
    }


@dataclass(frozen=True)
class _NpzRows:
    """An array inside an ``.npz`` file, read piece by piece out of the archive."""

    path: Path
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran_order: bool

    def whole(self) -> np.ndarray:
        with _reading(self.path), zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
            return npy.read_array(file, allow_pickle=False)

    def pieces(self, length: int) -> Iterator[np.ndarray]:
        if self.fortran_order:  # rows are not contiguous
            whole = self.whole()
            yield from (whole[start : start + length] for start in range(0, len(whole), length))
            return
        shape = (length, *self.shape[1:])
        size = int(np.prod(shape)) * self.dtype.itemsize
        with _reading(self.path), zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
            _read_header(file)
            for _ in range(self.shape[0] // length):
                data = file.read(size)
                if len(data) < size:
                    raise EOFError(f"the array '{self.member}' is shorter than its header says")
                yield np.frombuffer(data, self.dtype).reshape(shape)


def _npz_rows(path: Path) -> dict[str, Rows]:
    rows: dict[str, Rows] = {}
    _check_format(path, _ZIP_START)
    with _reading(path), zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as file:
                shape, fortran_order, dtype = _read_header(file)
            _refuse_objects(member, dtype)
            rows[member.removesuffix(".npy")] = _NpzRows(path, member, shape, dtype, fortran_order)
    return rows


def _refuse_objects(name: str, dtype: np.dtype) -> None:
    if dtype.hasobject:
        raise ValueError(f"'{name}' holds Python objects, which are not loaded for safety")


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    if npy.read_magic(file) == (1, 0):
        return npy.read_array_header_1_0(file)  # type: ignore[no-any-return, unused-ignore]
    return npy.read_array_header_2_0(file)  # type: ignore[no-any-return, unused-ignore]


def _test_data_set(folder: Path, inputs: Sequence[InputInfo]) -> dict[str, np.ndarray]:
    feed = {}
    for file in sorted(folder.glob("input_*.pb"), key=natural_order):
        number = int(file.stem.removeprefix("input_"))
        if number >= len(inputs):
            raise DataError(f"'{file}': the model has only {len(inputs)} inputs")
        info = inputs[number]
        if info.elem_type == TensorProto.UNDEFINED:
            raise DataError(f"'{file}': the input '{info.name}' is {info} and cannot be read from a file")
        feed[info.name] = _load_tensor(file)
    return feed


def _load_tensor(path: Path) -> np.ndarray:
    with _reading(path):
        content = path.read_bytes()
    try:
        return numpy_helper.to_array(onnx.TensorProto.FromString(content))
    except (DecodeError, ValueError, TypeError) as error:
        raise DataError(f"cannot read data from '{path}': it is not an ONNX tensor") from error
