"""A compilation as a folder. One that is read may come from anywhere: nothing in it is trusted.

Values of a compilation stand here by the names of its fields.
"""

from __future__ import annotations

import json
import platform
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from onnx import ModelProto, TensorProto
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from qc.ir.base.plugins import used_plugins
from qc.ir.errors import DataError, UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.lower import serialize
from qc.ir.onnx.protos import model_tensors
from qc.ir.onnx.save import save_model
from qc.ir.tensor_ref import TensorRef
from qc.passes import Combinator, Pipeline, PipelineFile, dumps, load_pipeline_file
from qc.passes.framework.options import paths
from qc.passes.framework.pipeline import Step
from qc.passes.framework.target import Target
from qc.runtime import InputInfo, Recording, load_data

# What a folder holds.
MODEL = "model.onnx"
PIPELINE = "pipeline.toml"
RECORD = "reproducer.json"
STATISTICS = "statistics.npz"
FEEDS = "feeds"
FILES = "files"

MOST_FEEDS = 4
MOST_FEED_BYTES = 16_000_000
MOST_WEIGHT_BYTES = 64_000_000

_LONGEST_RECORD = 1 << 22
_LARGEST_FEED = 1 << 28
_PACKAGES = ("qc-onnx", "onnx", "onnxruntime", "numpy")
_STORAGE = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


class Contents(BaseModel):
    """What a folder holds, besides what is in files of its own and the plain options of the compilation.

    Attributes:
        versions: of qc and of what it stands on.
        plugins: files that the passes may come from, which are not in the folder, as they are code.
        zero_weights: names of the weights that stand as zeros in the folder.
        feeds: number of feeds of data; None if there was no data.
        statistics: whether there are statistics to calibrate on.
        target: the target, as data.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    format: Literal[1] = 1
    versions: dict[str, str]
    plugins: tuple[str, ...] = ()
    zero_weights: tuple[str, ...] = ()
    feeds: Annotated[int, Field(ge=0)] | None = None
    statistics: bool = False
    target: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Writes the file of the folder that tells what it is."""
        text = json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False)
        (folder / RECORD).write_text(f"{text}\n", encoding="utf-8")


C = TypeVar("C", bound=Contents)


def write(
    folder: Path,
    *,
    model: tuple[ModelProto, Path | None],
    pipeline: PipelineFile,
    target: Target,
    inputs: Sequence[InputInfo],
    data: object,
    statistics: Recording | str | Path | None,
    settings: Mapping[str, object],
) -> None:
    """Writes a compilation; ``model`` comes with its folder of external data, ``data`` is for ``inputs``."""
    if not folder.is_dir() or any(folder.iterdir()):
        raise UsageError(f"'{folder}' is not an empty folder; make one to keep a compilation in")
    proto, base_dir = model
    zeros = _write_model(proto, base_dir, folder / MODEL)
    if pipeline.target is not None and pipeline.target.endswith(".toml"):  # the target itself comes along
        pipeline = replace(pipeline, target=None)
    (folder / PIPELINE).write_text(dumps(_with_files(pipeline, _Copies(folder).bring_in)), encoding="utf-8")
    feeds = _write_feeds(folder / FEEDS, _some_feeds(data, inputs)) if data is not None else None
    if statistics is not None:
        if not isinstance(statistics, Recording):
            statistics = Recording.load(statistics)
        statistics.save(folder / STATISTICS)
    Contents(
        versions=current_versions(),
        plugins=used_plugins(),
        zero_weights=tuple(zeros),
        feeds=feeds,
        statistics=statistics is not None,
        target=target.model_dump(mode="json", exclude_defaults=True),
        **settings,  # type: ignore[arg-type]
    ).write(folder)


def read(folder: Path, settings: Mapping[str, tuple[Any, object]]) -> dict[str, Any]:
    """Reads a compilation, as the arguments that make it; ``settings`` have a type and a default each.

    Raises:
        UsageError: the folder holds none, or needs a pass that is not installed.
        DataError: its data cannot be read.
    """
    checked = create_model("Contents", __base__=Contents, **settings)  # type: ignore[call-overload]
    contents = read_contents(folder, checked)
    pipeline = _pipeline(folder, contents.plugins)
    return {
        "model": _file(folder, MODEL),
        "pipeline": _with_files(pipeline, lambda name: str(_file(folder, name))),
        "data": _feeds(folder, contents.feeds),
        "target": _target(folder, contents.target),
        "statistics": _file(folder, STATISTICS) if contents.statistics else None,
        **{name: getattr(contents, name) for name in settings},
    }


def read_contents(folder: Path, kind: type[C]) -> C:
    """What the folder says of itself.

    Raises:
        UsageError: it does not say what ``kind`` asks for.
    """
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is no folder with a reproducer")
    path = _file(folder, RECORD)
    if path.stat().st_size > _LONGEST_RECORD:
        raise UsageError(f"'{path}' does not describe a reproducer: it is too long")
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8", errors="replace"))
    except ValidationError as error:
        raise _refused(path, error) from error


def current_versions() -> dict[str, str]:
    """The versions of qc, of what it stands on, and of Python."""
    packages = {name: version(name) for name in _PACKAGES}
    return {**packages, "python": platform.python_version()}


def _refused(path: Path, error: ValidationError, *within: str) -> UsageError:
    first = error.errors()[0]
    place = ".".join(str(part) for part in (*within, *first["loc"]))
    where = f" at '{place}'" if place else ""
    return UsageError(f"'{path}' does not describe a reproducer{where}: {first['msg']}")


def _file(folder: Path, name: str) -> Path:
    """A file of the folder; raises UsageError if it is missing, or a link that leads out of the folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"'{path}' leads out of the folder of the reproducer")
    if not path.is_file():
        raise UsageError(f"'{folder}' is no reproducer: it has no file '{name}'")
    return path


def _pipeline(folder: Path, plugins: Sequence[str]) -> PipelineFile:
    path = _file(folder, PIPELINE)
    try:
        return load_pipeline_file(path)
    except UsageError as error:
        missing = [name for name in plugins if name not in used_plugins()]
        if not missing:
            raise
        raise UsageError(
            f"{error}; it was made with --plugin {missing[0]}, code that is not in '{folder}': give that, too"
        ) from error


def _target(folder: Path, target: dict[str, Any]) -> Target:
    try:
        return Target.model_validate(target)
    except ValidationError as error:
        raise _refused(folder / RECORD, error, "target") from error


# -- files that passes read -----------------------------------------------------------------------------


def _with_files(pipeline: PipelineFile, change: Callable[[str], str]) -> PipelineFile:
    """The pipeline with other paths in the place of those that its passes read."""
    return replace(pipeline, pipeline=Pipeline(_changed(pipeline.pipeline.steps, change)))


def _changed(steps: Sequence[Step], change: Callable[[str], str]) -> list[Step]:
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Combinator):
            found.append(replace(step, steps=_changed(step.steps, change)))
        else:
            found.append(replace(step, **{name: change(path) for name, path in paths(step).items()}))
    return found


class _Copies:
    """Copies files that passes read into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def bring_in(self, file: str) -> str:
        """Copies a file and returns where it is within the folder; leaves one that is missing alone."""
        if not Path(file).is_file():
            return file
        place = Path(FILES) / f"{self._count}-{Path(file).name}"
        self._count += 1
        (self._folder / FILES).mkdir(exist_ok=True)
        shutil.copyfile(file, self._folder / place)
        return str(place)


# -- the model ------------------------------------------------------------------------------------------


def _write_model(proto: ModelProto, base_dir: Path | None, path: Path) -> list[str]:
    """Writes the model; the names of the weights that are zeros in it, because there are too many."""
    tensors = [t for t in model_tensors(proto) if t.data_type != TensorProto.STRING]
    sizes = [TensorRef(tensor, base_dir).nbytes for tensor in tensors]
    if sum(sizes) <= MOST_WEIGHT_BYTES:
        save_model(proto, path, base_dir)
        return []
    copy = ModelProto()
    copy.CopyFrom(proto)
    copied = [t for t in model_tensors(copy) if t.data_type != TensorProto.STRING]
    room, zeros, longest = MOST_WEIGHT_BYTES, [], 0
    for size, _, tensor in sorted(zip(sizes, range(len(sizes)), copied, strict=True)):
        room -= size
        if room >= 0:
            _bring_in(tensor, base_dir)
        else:
            _empty(tensor, size)
            zeros.append(tensor.name)
            longest = max(longest, size)
    path.write_bytes(serialize(copy))
    with path.with_name(f"{MODEL}.data").open("wb") as file:
        file.truncate(longest)  # all of them share one stretch of zeros, for which the disk needs no room
    return zeros


def _bring_in(tensor: TensorProto, base_dir: Path | None) -> None:
    """Takes external data into the tensor."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return
    source, start, length = TensorRef(tensor, base_dir).external_range()
    with source.open("rb") as file:
        file.seek(start)
        tensor.raw_data = file.read(length)
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def _empty(tensor: TensorProto, size: int) -> None:
    """Lets the tensor be the first bytes of the file of zeros."""
    for field in _STORAGE:
        tensor.ClearField(field)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", f"{MODEL}.data"), ("offset", 0), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))


# -- the data -------------------------------------------------------------------------------------------


def _some_feeds(data: object, inputs: Sequence[InputInfo]) -> list[Feed]:
    """The first feeds, as many as there is room for; none if they cannot be read, or not again."""
    chosen: list[Feed] = []
    room = MOST_FEED_BYTES
    try:
        for feed in load_data(data, inputs):
            room -= sum(array.nbytes for array in feed.values())
            if room < 0 or not all(_is_plain(array) for array in feed.values()):
                break
            chosen.append(feed)
            if len(chosen) == MOST_FEEDS:
                break
    except DataError:
        pass
    return chosen


def _is_plain(array: np.ndarray) -> bool:
    """Whether numpy's format can hold the array without pickled objects and without losing its type."""
    return array.dtype.kind in "biufcU"


def _write_feeds(folder: Path, feeds: Iterable[Feed]) -> int:
    """Writes one file for each feed; how many there are."""
    folder.mkdir()
    count = 0
    for feed in feeds:
        _write_arrays(folder / f"{count}.npz", feed)
        count += 1
    return count


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Like ``numpy.savez``, for any names and always the same bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def _feeds(folder: Path, number: int | None) -> list[Feed] | None:
    """The feeds, in order; None if there was no data."""
    if number is None:
        return None
    if not number:
        raise DataError(f"'{folder}' holds no data: the feeds were too large, or could not be read again")
    return [_arrays(_file(folder, f"{FEEDS}/{index}.npz")) for index in range(number)]


def _arrays(path: Path) -> Feed:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _LARGEST_FEED:
                raise DataError(f"'{path}' is larger than any feed of a reproducer")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, KeyError) as error:
        raise DataError(f"'{path}' cannot be read: {' '.join(str(error).split())}") from error
