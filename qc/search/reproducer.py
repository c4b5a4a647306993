"""Writing a reproducer: a folder with all that is needed to see a defect again."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto

from qc.ir.errors import DataError, QcError, UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.lower import serialize
from qc.ir.onnx.protos import model_tensors
from qc.ir.onnx.save import save_model
from qc.ir.tensor_ref import TensorRef
from qc.passes import Progress, dumps
from qc.runtime import load_data, model_inputs

from .blame import Failure, blame_action, find_failure, model_before
from .compilation import Compilation, sentence
from .pass_files import with_files
from .record import BEFORE, FEEDS, FILES, MODEL, PIPELINE, RECORD, ActionRecord, Record, current_versions
from .replay import load_reproducer, same_error

MOST_FEEDS = 4
MOST_FEED_BYTES = 16_000_000
MOST_WEIGHT_BYTES = 64_000_000

_STORAGE = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


@dataclass(frozen=True)
class Reproducer:
    """A folder that was written, and what its record says."""

    folder: Path
    record: Record


def write_reproducer(
    folder: str | Path,
    compilation: Compilation,
    error: Exception,
    *,
    command: Sequence[str] = (),
    progress: Progress | None = None,
) -> Reproducer:
    """Writes a reproducer of a compilation that ended in a defect, and tries whether it fails again.

    The folder appears when it is complete. If it exists already, a number is appended to its name. It holds
    the model (beyond 64 MB of weights, the largest are zeros that take no room on the disk), the pipeline,
    up to 4 feeds or 16 MB of the data if a pass reads it, the text of the model just before the failing
    pass, and the rest in ``reproducer.json``.

    Args:
        folder: where to write.
        compilation: what was compiled.
        error: what it raised.
        command: the command line, if it was one.
        progress: where long work shows how far it is.

    Raises:
        UsageError: the folder cannot be written.
        ModelError: the model cannot be read.
    """
    folder = Path(folder)
    if not folder.parent.is_dir():
        raise UsageError(f"cannot write '{folder}': the folder '{folder.parent}' does not exist")
    try:
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as problem:
        raise UsageError(f"cannot write '{folder}': {problem.strerror or problem}") from problem
    try:
        record = _fill(scratch, compilation, error, command)
        (scratch / RECORD).write_text(record.text(), encoding="utf-8")
        record = _try_out(scratch, record, progress)
        (scratch / RECORD).write_text(record.text(), encoding="utf-8")
        scratch.chmod(0o755)
        return Reproducer(_move(scratch, folder), record)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fill(folder: Path, compilation: Compilation, error: Exception, command: Sequence[str]) -> Record:
    """Writes all but the text of the model and the record, which it returns as far as it is known."""
    proto = compilation.proto()
    zeros = _write_model(proto, compilation.base_dir, folder / MODEL)
    pipeline = with_files(compilation.chosen_pipeline(), _Copies(folder).bring_in)
    (folder / PIPELINE).write_text(dumps(pipeline), encoding="utf-8")
    feeds = None
    if compilation.data is not None and compilation.reads_data:
        feeds = _write_feeds(folder / FEEDS, _some_feeds(compilation, proto))
    return Record(
        versions=current_versions(),
        command=tuple(command),
        error=sentence(error),
        error_type=type(error).__name__,
        zero_weights=tuple(zeros),
        feeds=feeds,
        seed=compilation.seed,
        threads=compilation.threads,
        device=compilation.device,
        action_limit=compilation.action_limit,
        verify_each=compilation.verify_each,
        check_analyses=compilation.check_analyses,
        allow_unquantized=compilation.allow_unquantized,
        fail_if_unquantized=compilation.fail_if_unquantized,
        target=compilation.chosen_target().model_dump(mode="json", exclude_defaults=True),
    )


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


def _try_out(folder: Path, record: Record, progress: Progress | None) -> Record:
    """Compiles what was written; writes the text of the model and completes the record."""
    compilation, _ = load_reproducer(folder)
    try:
        failure = find_failure(compilation, progress)
    except QcError:
        return record
    if failure is None:
        return record
    if failure.step is not None:
        text = model_before(compilation, failure)
        (folder / BEFORE).write_text(text, encoding="utf-8")
    return _completed(record, compilation, failure, progress)


def _completed(
    record: Record, compilation: Compilation, failure: Failure, progress: Progress | None
) -> Record:
    action = blame_action(compilation, failure, progress)
    blamed = ActionRecord(number=action.number, title=action.title) if action is not None else None
    known = {
        "failing_pass": str(failure.step) if failure.step is not None else None,
        "action": blamed,
        "reproduces": same_error(record, failure.error),
    }
    return record.model_copy(update=known)


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


def _some_feeds(compilation: Compilation, proto: ModelProto) -> list[Feed]:
    """The first feeds, as many as there is room for; none if they cannot be read, or not again."""
    chosen: list[Feed] = []
    room = MOST_FEED_BYTES
    try:
        for feed in load_data(compilation.data, model_inputs(proto)):
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


def _move(scratch: Path, folder: Path) -> Path:
    """Moves the complete folder to its place, or to the first free one with a number behind its name."""
    place, number = folder, 1
    while True:
        if not os.path.lexists(place):
            try:
                return scratch.rename(place)
            except OSError as error:
                if not os.path.lexists(place):
                    raise UsageError(f"cannot write '{place}': {error.strerror or error}") from error
        number += 1
        place = folder.with_name(f"{folder.name}-{number}")
