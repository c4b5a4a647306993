"""What a file or folder of data holds, and the reader for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from qc.ir.errors import DataError

from . import audio, pictures, tables, text
from .arrays import array_source, natural_order
from .data_files import DataFiles
from .inputs import InputInfo
from .python import callable_source, named_function
from .source import Source


class _Reader(NamedTuple):
    """What reads files that are known by their suffix."""

    suffixes: tuple[str, ...]
    read: Callable[[Sequence[Path], DataFiles, Sequence[InputInfo]], Source]


_READERS = {
    "pictures": _Reader(pictures.SUFFIXES, pictures.picture_source),
    "audio": _Reader(audio.SUFFIXES, audio.audio_source),
    "tables": _Reader(tables.SUFFIXES, tables.table_source),
    "text": _Reader(text.SUFFIXES, text.text_source),
}


def file_source(how: DataFiles, inputs: Sequence[InputInfo]) -> Source:
    """A source that reads a file or folder, or calls a function; :mod:`qc.runtime.data.load` lists the forms.

    Raises:
        DataError: there is no such file or function, or the path has none of these forms.
        UsageError: an option is not for what the path holds.
    """
    path = Path(how.path)
    if not path.exists():
        if ":" not in str(how.path):
            raise DataError(f"data '{path}' does not exist; give a file, a folder or module:function")
        how.check_options("arrays")
        function = callable_source(named_function(str(how.path)), f"'{how.path}'")
        return replace(function, spec=how, layout=how.layout)
    if not path.is_dir() and not path.is_file():
        raise DataError(f"data '{path}' is not a regular file")
    arrays = array_source(path, inputs)
    if arrays is not None:
        how.check_options("arrays")
        source = replace(arrays, layout=how.layout)
    else:
        kind, files = _known_files(path)
        how.check_options(kind)
        source = _READERS[kind].read(files, how, inputs)
    return replace(source, spec=replace(how, path=path.resolve()))


def _known_files(path: Path) -> tuple[str, list[Path]]:
    """What a path holds besides arrays, and the files, in natural order.

    Raises:
        DataError: nothing that is known, or several kinds of data.
    """
    if (path / tables.STATE).is_file():
        return "tables", tables.data_set_files(path)
    if (path / tables.SPLITS).is_file():
        splits = ", ".join(f"'{part.parent}'" for part in sorted(path.glob(f"*/{tables.STATE}")))
        raise DataError(f"the folder '{path}' holds the splits of a data set; give one of them: {splits}")
    files = sorted(_visible(path), key=lambda file: _order(file, path)) if path.is_dir() else [path]
    found = {
        kind: [file for file in files if file.suffix.lower() in reader.suffixes and file.is_file()]
        for kind, reader in _READERS.items()
    }
    kinds = [kind for kind, files in found.items() if files]
    media = [kind for kind in kinds if kind in ("pictures", "audio")]
    kinds = media or kinds  # text and tables beside them are about them
    if len(kinds) == 1:
        return kinds[0], found[kinds[0]]
    if kinds:
        raise DataError(f"the folder '{path}' holds {' and '.join(kinds)}; keep one kind to a folder")
    if path.is_dir():
        raise DataError(
            f"the folder '{path}' holds no data: no .npz or .npy files, no test_data_set_* folders, no "
            f"folder named after an input, and no {', '.join(_READERS)}"
        )
    if path.suffix == ".py":
        raise DataError(f"data '{path}' is a Python file; name the function in it: {path}:FUNCTION")
    suffixes = [suffix for reader in _READERS.values() for suffix in reader.suffixes]
    raise DataError(
        f"data '{path}' is neither a folder nor an .npz or .npy file, nor one of {', '.join(suffixes)}"
    )


def _visible(folder: Path) -> Iterator[Path]:
    """All that is in a folder but what is hidden, such as what file managers keep beside pictures."""
    for file in folder.rglob("*"):
        if not any(part.startswith(".") for part in file.relative_to(folder).parts):
            yield file


def _order(file: Path, folder: Path) -> list[list[tuple[bool, int, str]]]:
    return [natural_order(Path(part)) for part in file.relative_to(folder).parts]
