"""Results of the steps of long work, kept in a folder, so that a run that was killed goes on where it was."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError
from qc.ir.executor import Feed

from ..protos.detach import ModelParts
from .checkpoints import OnNote, made_folder
from .fingerprint import feed_fingerprint, model_fingerprint

_DAMAGES = (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile)


def steps_key(about: str, models: Iterable[ModelProto], feeds: Iterable[Feed], base_dir: Path | None) -> str:
    """A digest of what results depend on, and of the versions of what computes them."""
    parts = (
        about,
        *(version(name) for name in ("qc-onnx", "numpy")),
        ort.__version__,
        [model_fingerprint(*ModelParts.of(model, base_dir)) for model in models],
        [feed_fingerprint(feed) for feed in feeds],
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


class KeptSteps:
    """Steps with a file each. Implements :class:`qc.ir.executor.Steps`."""

    def __init__(self, folder: str | Path, key: str, on_note: OnNote | None = None) -> None:
        """Uses, or makes, ``folder``.

        Raises:
            UsageError: the folder cannot be made.
        """
        self._folder = made_folder(folder)
        self._key = key
        self._note = on_note or (lambda note: None)
        self._number = 0

    def next(self, compute: Callable[[], Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
        """The result of the next step, from its file if there is one; see the protocol."""
        path = self._folder / f"{self._key}-step-{self._number}.npz"
        self._number += 1
        found = self._load(path)
        if found is None:
            found = compute()
            self._save(path, found)
        return found

    def _load(self, path: Path) -> Mapping[str, np.ndarray] | None:
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except _DAMAGES as error:
            self._note(f"a file of the cache cannot be used, so that its step is done again: {error}")
            return None

    def _save(self, path: Path, found: Mapping[str, np.ndarray]) -> None:
        try:
            with atomic_write(path) as file:
                np.savez(file, **found)  # type: ignore[arg-type]
        except UsageError as error:
            self._note(f"{error}; the work goes on, and this step of it is not kept")


class ForgottenSteps:
    """Steps without a folder. Implements :class:`qc.ir.executor.Steps`."""

    def next(self, compute: Callable[[], Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
        """The result of the next step."""
        return compute()
