"""Text in files, as the token ids of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qc.ir.errors import DataError, reason_of

from .data_files import DataFiles
from .extras import extra
from .inputs import InputInfo
from .source import Source, Unread

SUFFIXES = (".txt",)

_LONGEST = 1 << 24  # characters of a sample


def text_source(files: Sequence[Path], how: DataFiles, inputs: Sequence[InputInfo]) -> Source:
    """A source with the tokens of each file of a folder, or of each line of a single file.

    Raises:
        DataError: no tokenizer is given, or the model takes no token ids.
    """
    encoder = TokenEncoder.of(how, inputs)
    lines = None if Path(how.path).is_dir() else files[0]

    def feeds() -> Iterator[tuple[str, object]]:
        for place, text in _lines(lines) if lines is not None else map(_whole, files):
            yield place, Unread(lambda text=text, place=place: encoder.feed(text, place))  # type: ignore[misc]

    return Source(f"'{how.path}'", feeds, None if lines is not None else len(files))


def read_tokenizer(path: Path) -> Any:
    """A tokenizer of the library ``tokenizers``, from its file or from a folder with a ``tokenizer.json``.

    Raises:
        DataError: there is no such file, or it is no tokenizer.
        UsageError: the library is not installed.
    """
    tokenizers = extra("tokenizers", "text", "reading text")
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"the tokenizer '{file}' does not exist; give a tokenizer.json or its folder")
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing more exact
        reason = " ".join(str(error).split())
        raise DataError(
            f"the tokenizer '{file}' cannot be read: it is no tokenizer.json of the library tokenizers "
            f"({reason}); give that of the model, or its folder"
        ) from error


@dataclass(frozen=True)
class TokenEncoder:
    """Makes feeds of text: ids, and beside them masks, types and positions where the model takes them.

    Attributes:
        tokenizer: of the library ``tokenizers``.
        inputs: the inputs that are fed; arrays have shape (1, tokens).
        ids: the name of the input for ids.
    """

    tokenizer: Any
    inputs: Sequence[InputInfo]
    ids: str

    @classmethod
    def of(cls, how: DataFiles, inputs: Sequence[InputInfo]) -> TokenEncoder:
        """Reads the tokenizer, and sets the length that is asked for or that the model has.

        Raises:
            DataError: there is no tokenizer, or no input for ids.
        """
        if how.tokenizer is None:
            raise DataError(f"'{how.path}' holds text, which needs --tokenizer with a tokenizer.json")
        tokenizer = read_tokenizer(Path(how.tokenizer))
        required = [info for info in inputs if not info.optional]
        named = [info.name for info in required if info.name == "input_ids"]
        ids = named[0] if named else required[0].name if len(required) == 1 else None
        if ids is None:
            listed = ", ".join(f"'{info.name}'" for info in required)
            raise DataError(f"'{how.path}' holds text, and the model has no input 'input_ids' among {listed}")
        shape = next(info.shape for info in required if info.name == ids)
        length = how.length or (shape[-1] if shape and isinstance(shape[-1], int) else None)
        if length is not None:
            tokenizer.enable_truncation(length)
            tokenizer.enable_padding(**{**(tokenizer.padding or {}), "length": length})
        else:
            tokenizer.no_padding()
        return cls(tokenizer, inputs, ids)

    def feed(self, text: str, place: str) -> dict[str, np.ndarray]:
        """The arrays for a text; raises DataError if it has no tokens."""
        encoding = self.tokenizer.encode(text)
        if not encoding.ids:
            raise DataError(f"{place}: the text has no tokens")
        found = {
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
            "position_ids": range(len(encoding.ids)),
            self.ids: encoding.ids,
        }
        return {
            info.name: np.array([found[info.name]], info.dtype)
            for info in self.inputs
            if info.name in found and not (info.optional and info.name != self.ids)
        }


def _whole(file: Path) -> tuple[str, str]:
    return next(_pieces(file, lambda opened: iter([opened.read(_LONGEST)])))


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    for place, line in _pieces(file, lambda opened: iter(lambda: opened.readline(_LONGEST), "")):
        if line.strip():
            yield place, line.rstrip("\n")


def _pieces(file: Path, read: Any) -> Iterator[tuple[str, str]]:
    """Pieces of a file with their places."""
    try:
        with file.open(encoding="utf-8") as opened:
            for number, piece in enumerate(read(opened), 1):
                yield f"'{file}', line {number}", piece
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"'{file}' cannot be read as text: {reason_of(error)}") from error
