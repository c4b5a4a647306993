"""Tables: CSV, Parquet, and data sets of Hugging Face on disk, one sample in each row."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from qc.ir.errors import DataError, listed, nearest, reason_of

from .data_files import DataFiles
from .extras import extra
from .inputs import InputInfo, the_only_input
from .pictures import Preparation, picture_input, read_picture
from .source import LABELS, Source, Unread
from .text import TokenEncoder

SUFFIXES = (".csv", ".parquet")
STATE = "state.json"  # what a data set of Hugging Face is known by
SPLITS = "dataset_dict.json"  # and what a folder of several

_SHOWN = 8  # names of columns in a sentence
_ROWS = 256  # that are read at once
_LONGEST_FIELD = 1 << 24

Row = Mapping[str, Any]


def table_source(files: Sequence[Path], how: DataFiles, inputs: Sequence[InputInfo]) -> Source:
    """A source with a feed for each row.

    A column with the name of an input is what that input takes. For a model with one input these are all
    columns, or those that ``how`` names, in their order. With a tokenizer it is ``text`` or the column
    that is named. Pictures within a table are prepared like those in files. A column ``label`` or ``labels``
    is what is judged by.

    Raises:
        DataError: the columns do not fit the model, or a table cannot be read.
    """

    def rows() -> Iterator[tuple[str, Row]]:
        for file in files:
            with _reading(file):
                for number, row in enumerate(_rows(file), 1):
                    yield f"'{file}', row {number}", row

    first = next(islice(rows(), 1), None)
    if first is None:
        raise DataError(
            f"'{how.path}': there is no sample; give a table with one row or more below the names"
        )
    columns = list(first[1])
    for name in how.columns:
        if name not in columns:
            hint = nearest(name, columns) or f"; its columns are {listed(columns, _SHOWN)}"
            raise DataError(f"'{how.path}' has no column '{name}'{hint}")
    used, make = _maker(first[1], how, inputs)

    def feeds() -> Iterator[tuple[str, object]]:
        for place, row in rows():
            yield place, Unread(partial(make, row, place))

    label = next((name for name in LABELS if name in columns and name not in used), None)
    return Source(
        f"'{how.path}'",
        feeds,
        None,
        labels=None if label is None else lambda: np.array([_number(row[label]) for _, row in rows()]),
        unused=tuple(name for name in columns if name not in used and name != label),
    )


Make = Callable[[Row, str], dict[str, np.ndarray]]


def _maker(row: Row, how: DataFiles, inputs: Sequence[InputInfo]) -> tuple[Sequence[str], Make]:
    """The columns that are used, and what makes a feed of a row."""
    if how.tokenizer is not None:
        column = how.columns[0] if how.columns else "text"
        if column not in row:
            raise DataError(f"'{how.path}' has no column '{column}'; name the text with --columns")
        encoder = TokenEncoder.of(how, inputs)
        return [column], lambda row, place: encoder.feed(_text(row[column], place), place)
    pictures = [name for name, value in row.items() if _is_picture(value) and name in (how.columns or row)]
    if pictures:
        column, info = pictures[0], picture_input(inputs, how)
        preparation = Preparation.of(how, info)
        return [column], lambda row, place: {info.name: _picture(row[column], preparation, place)[np.newaxis]}
    names = [info.name for info in inputs if info.name in row]
    if not how.columns and all(info.optional or info.name in row for info in inputs):
        infos = {info.name: info for info in inputs if info.name in names}
        return names, lambda row, place: {
            name: _array(row[name], info, f"{place}, column '{name}'") for name, info in infos.items()
        }
    info = the_only_input(inputs, f"'{how.path}'")
    chosen = how.columns or [name for name in row if name not in LABELS]
    _check_width(len(chosen), list(row), how, info)
    return chosen, lambda row, place: {
        info.name: _side_by_side([(name, row[name]) for name in chosen], info, place)
    }


def _check_width(count: int, columns: Sequence[str], how: DataFiles, info: InputInfo) -> None:
    """Raises DataError if an input takes another number of columns, or more than one row of them."""
    shape = info.shape or ()
    if any(isinstance(size, int) and size > 1 for size in shape[1:-1]):
        raise DataError(
            f"'{how.path}' is a table, whose rows fit inputs of one row, and the input '{info.name}' "
            f"({info}) takes several; save its samples as arrays, in an .npz file"
        )
    if not shape or not isinstance(shape[-1], int) or shape[-1] == count:
        return
    takes = f"the input '{info.name}' takes {shape[-1]}"
    if how.columns:
        raise DataError(f"--columns names {count} of the columns of '{how.path}', and {takes}")
    raise DataError(
        f"'{how.path}' has {count} columns besides labels, {takes}; name them with --columns, of "
        f"{listed(columns, _SHOWN)}"
    )


def _side_by_side(cells: Sequence[tuple[str, Any]], info: InputInfo, place: str) -> np.ndarray:
    """Several columns as one array; raises DataError that names the first whose cell does not fit."""
    try:
        return _array([cell for _, cell in cells], info, place)
    except DataError:
        for name, cell in cells:
            _array(cell, info, f"{place}, column '{name}'")
        raise


def _array(value: Any, info: InputInfo, place: str) -> np.ndarray:
    """Numbers, or text, as an array of the rank of the input."""
    rank = len(info.shape) if info.shape is not None else 2
    try:
        if info.dtype is None:
            array = np.array(value, object)
        else:
            exact = np.array(value, np.float64 if info.dtype.kind not in "iu" else np.int64)
            array = exact.astype(info.dtype)
            if info.dtype.kind in "iu" and not np.array_equal(array, np.array(value, np.float64)):
                raise ValueError("a fraction, or beyond the type")
    except (ValueError, TypeError, OverflowError) as error:
        comma = isinstance(value, str) and isinstance(_number(value.replace(",", ".")), float)
        mend = "; write numbers with a point" if comma else ""
        raise DataError(
            f"{place}: {value!r:.60} does not fit the input '{info.name}' ({info}){mend}"
        ) from error
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{place}: {value!r:.60} is no text")
    return value


def _picture(value: Any, preparation: Preparation, place: str) -> np.ndarray:
    return preparation.array(read_picture(BytesIO(value["bytes"]), place), place)


def _is_picture(value: Any) -> bool:
    """Whether a value is a file within a data set, as Hugging Face keeps pictures."""
    return isinstance(value, dict) and isinstance(value.get("bytes"), bytes)


def _number(value: Any) -> Any:
    """The number of a field of a CSV file, or its text."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _rows(file: Path) -> Iterator[Row]:
    if file.suffix.lower() == ".csv":
        csv.field_size_limit(_LONGEST_FIELD)
        with file.open(encoding="utf-8-sig", newline="") as opened:
            reader = csv.DictReader(opened, delimiter=_delimiter(opened.readline()), strict=True)
            opened.seek(0)
            if any(not isinstance(_number(name), str) for name in reader.fieldnames or ()):
                raise ValueError("its first line holds numbers; put the names of the columns there")
            twice = [name for name, times in Counter(reader.fieldnames or ()).items() if times > 1]
            if twice:
                raise ValueError(f"its first line names the column '{twice[0]}' twice")
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(f"line {reader.line_num} has not as many fields as the first")
                yield row
        return
    pyarrow = extra("pyarrow", "tables", f"reading '{file.name}'")
    if file.suffix.lower() == ".parquet":
        parquet = extra("pyarrow.parquet", "tables", f"reading '{file.name}'")
        with parquet.ParquetFile(file) as opened:
            for batch in opened.iter_batches(_ROWS):
                yield from batch.to_pylist()
        return
    with pyarrow.memory_map(str(file)) as mapped, pyarrow.ipc.open_stream(mapped) as stream:
        for batch in stream:
            yield from batch.to_pylist()


def _delimiter(first: str) -> str:
    """What stands between the names in the first line of a CSV file: the most frequent of those in use."""
    return max(",;\t", key=first.count)


def data_set_files(folder: Path) -> list[Path]:
    """The files of a data set of Hugging Face, in order.

    Raises:
        DataError: its state cannot be read, or names files elsewhere.
    """
    with _reading(folder / STATE):
        listed = json.loads((folder / STATE).read_text(encoding="utf-8"))["_data_files"]
        names = [str(one["filename"]) for one in listed]
    if any(Path(name).name != name for name in names):
        raise DataError(f"'{folder / STATE}' names files in other folders")
    return [folder / name for name in names]


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Raises DataError for what cannot be read in the block; errors of pyarrow are ValueErrors."""
    try:
        yield
    except DataError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError, csv.Error) as error:
        raise DataError(f"'{file}' cannot be read as a table: {reason_of(error)}") from error
