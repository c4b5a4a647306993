"""Audio in files, cut into the pieces that a model takes."""

from __future__ import annotations

import wave
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from qc.ir.errors import DataError, QcError, reason_of

from .data_files import DataFiles
from .extras import extra
from .inputs import InputInfo, the_only_input
from .source import Source

SUFFIXES = (".aiff", ".flac", ".mp3", ".ogg", ".opus", ".wav")

_LONGEST = 1 << 28  # samples that are taken as a whole, where the model leaves the length free


def audio_source(files: Sequence[Path], how: DataFiles, inputs: Sequence[InputInfo]) -> Source:
    """A source with mono audio in numbers of -1 to 1, one after the other in pieces that the model takes.

    The last piece of a file is filled up with zeros. Where the model leaves the length free, a file is one
    piece.

    Raises:
        DataError: the rate is not given, or the model takes something else.
    """
    info = the_only_input(inputs, f"'{how.path}'")
    if how.rate is None:
        raise DataError(
            f"'{how.path}' holds audio: give the rate that the model was trained on, --rate 16000"
        )
    if info.dtype is None or info.dtype.kind not in "fV" or info.shape is None or not info.shape:
        raise DataError(f"'{how.path}' holds audio, and the input '{info.name}' takes {info}")
    dtype, rank, length, rate = info.dtype, len(info.shape), info.shape[-1], how.rate

    def feeds() -> Iterator[tuple[str, object]]:
        for file in files:
            with _opened(file) as opened:
                if opened.rate != rate:
                    raise DataError(
                        f"'{file}' has {opened.rate:,} samples in a second, not {rate:,}; convert it"
                    )
                for number, piece in enumerate(_pieces(opened, length if isinstance(length, int) else None)):
                    array = piece.reshape((1,) * (rank - 1) + piece.shape).astype(dtype)
                    yield f"'{file}', piece {number}", {info.name: array}

    return Source(f"'{how.path}'", feeds, None)


class _Audio(Protocol):
    """An open file of audio."""

    rate: int

    def read(self, count: int) -> np.ndarray:
        """The next samples, float32 of shape (samples, channels); fewer at the end."""


def _pieces(audio: _Audio, length: int | None) -> Iterator[np.ndarray]:
    while True:
        piece = audio.read(length or _LONGEST).mean(axis=1, dtype=np.float32)
        if not len(piece):
            return
        yield np.pad(piece, (0, length - len(piece))) if length else piece


class _Wav:
    """Reads PCM of 8, 16, 24 or 32 bits."""

    def __init__(self, file: wave.Wave_read) -> None:
        self._file, self.rate = file, file.getframerate()

    def read(self, count: int) -> np.ndarray:
        width, channels = self._file.getsampwidth(), self._file.getnchannels()
        content = np.frombuffer(self._file.readframes(count), np.uint8).reshape(-1, width)
        if width == 1:
            content = np.bitwise_xor(content, np.uint8(0x80))  # stored from 0 to 255, around 128
        wide = np.zeros((len(content), 4), np.uint8)
        wide[:, 4 - width :] = content
        numbers = wide.view("<i4").reshape(-1, channels)
        return numbers.astype(np.float32) / np.float32(1 << 31)


class _Other:
    """Reads what libsndfile does."""

    def __init__(self, file: object) -> None:
        self._file, self.rate = file, file.samplerate  # type: ignore[attr-defined]

    def read(self, count: int) -> np.ndarray:
        return self._file.read(count, dtype="float32", always_2d=True)  # type: ignore[attr-defined, no-any-return]


@contextmanager
def _opened(path: Path) -> Iterator[_Audio]:
    try:
        if path.suffix.lower() == ".wav":
            with wave.open(str(path), "rb") as file:
                yield _Wav(file)
        else:
            with extra("soundfile", "audio", f"reading '{path.suffix}'").SoundFile(str(path)) as file:
                yield _Other(file)
    except QcError:
        raise
    except (wave.Error, EOFError, OSError, ValueError, RuntimeError) as error:
        reason = reason_of(error) or "it ends too early"  # which wave tells by a bare EOFError
        raise DataError(f"'{path}' cannot be read as audio: {reason}") from error
