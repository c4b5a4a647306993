"""Data readers, which ONNX Runtime reads once and qc as often as its passes ask for."""

from __future__ import annotations

import pickle
from tempfile import TemporaryFile
from typing import Any
from weakref import finalize


def readable_again(data: Any) -> Any:
    """A data reader that cannot be rewound as one that can; any other data as it is."""
    return KeptReader(data) if hasattr(data, "get_next") and not hasattr(data, "rewind") else data


class KeptReader:
    """A data reader whose feeds are kept in a file as they come, so that memory does not grow with them."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._file = TemporaryFile()  # noqa: SIM115  # it is closed with the reader
        finalize(self, self._file.close)
        self._kept = self._next = 0

    def get_next(self) -> Any:
        """The next feed; None behind the last."""
        if self._next < self._kept:
            feed = pickle.load(self._file)
        else:
            feed = self._reader.get_next()
            if feed is None:
                return None
            pickle.dump(feed, self._file)
            self._kept += 1
        self._next += 1
        return feed

    def rewind(self) -> None:
        """The next feed is the first."""
        self._file.seek(0)
        self._next = 0
