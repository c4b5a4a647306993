"""File types from bytes: the model of the package ``magika`` (Apache-2.0) on files of this installation.

The truth is the file name's extension. Nothing is downloaded and no file leaves the machine. The features are
those the package documents: the first and the last ``block_size`` bytes of a file, stripped of white space on
the outer side, cut to ``beg_size`` and ``end_size`` bytes and padded with ``padding_token``.
"""

from __future__ import annotations

import json
import os
import random
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
from common import DemoError, Feed, Run

MODEL_FOLDER = "magika/models/standard_v3_3"

# Extensions whose content is what they say, and the labels of the model that are right for each.
EXTENSIONS: dict[str, tuple[str, ...]] = {
    "bat": ("batch",),
    "bmp": ("bmp",),
    "bz2": ("bzip",),
    "c": ("c", "cpp"),
    "cc": ("cpp", "c"),
    "cmake": ("cmake",),
    "cpp": ("cpp", "c"),
    "css": ("css",),
    "csv": ("csv",),
    "exe": ("pebin",),
    "f90": ("fortran",),
    "gif": ("gif",),
    "gz": ("gzip",),
    "h": ("c", "cpp"),
    "html": ("html",),
    "ini": ("ini",),
    "jpg": ("jpeg",),
    "js": ("javascript",),
    "json": ("json", "jsonl"),
    "md": ("markdown",),
    "npy": ("npy",),
    "npz": ("npz", "zip"),
    "onnx": ("onnx",),
    "pem": ("pem",),
    "png": ("png",),
    "proto": ("proto",),
    "ps1": ("powershell",),
    "py": ("python",),
    "pyc": ("pythonbytecode",),
    "pyi": ("python",),
    "rst": ("rst",),
    "sh": ("shell",),
    "so": ("elf", "macho"),
    "svg": ("svg",),
    "tar": ("tar",),
    "tcl": ("tcl",),
    "tiff": ("tiff",),
    "toml": ("toml",),
    "wav": ("wav",),
    "webp": ("webp",),
    "whl": ("zip",),
    "xml": ("xml",),
    "yaml": ("yaml",),
    "zip": ("zip",),
}

CAP = 120  # files of one extension
MINIMUM = 100  # bytes; what is smaller rarely shows its type
CALIBRATION_SHARE = 4  # one file in so many of an extension calibrates, the others are scored
CALIBRATION_CAP = 160
ENOUGH = 200  # scored files
BATCH = 32


@dataclass(frozen=True)
class Features:
    """The numbers in magika's ``config.min.json`` that describe its input and output."""

    beg_size: int
    end_size: int
    block_size: int
    padding_token: int
    labels: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> Features:
        """Reads the configuration beside the model; labels the tool renames are renamed."""
        config = json.loads((folder / "config.min.json").read_text(encoding="utf-8"))
        renamed = config["overwrite_map"]
        return cls(
            beg_size=config["beg_size"],
            end_size=config["end_size"],
            block_size=config["block_size"],
            padding_token=config["padding_token"],
            labels=tuple(renamed.get(label, label) for label in config["target_labels_space"]),
        )

    def extract(self, path: Path) -> np.ndarray:
        """The model's input for one file: int32 (beg_size + end_size,)."""
        with path.open("rb") as file:
            head = file.read(self.block_size)
            file.seek(max(0, file.seek(0, os.SEEK_END) - self.block_size))
            tail = file.read(self.block_size)
        head, tail = head.lstrip()[: self.beg_size], tail.rstrip()[-self.end_size :]
        row = np.full(self.beg_size + self.end_size, self.padding_token, np.int32)
        row[: len(head)] = np.frombuffer(head, np.uint8)
        row[len(row) - len(tail) :] = np.frombuffer(tail, np.uint8)
        return row


def model_folder() -> Path:
    """The folder of the model in the installed package, found without importing the package."""
    try:
        folder = Path(str(distribution("magika").locate_file(MODEL_FOLDER)))
    except PackageNotFoundError:
        folder = Path()
    if not (folder / "model.onnx").is_file():
        command = "pip install --no-deps magika==1.0.3"
        raise DemoError(f"the package magika 1.0.3 is missing: install it with '{command}'")
    return folder


def python_folders() -> list[Path]:
    """The folders of this Python installation: standard library, packages, headers."""
    paths = sysconfig.get_paths()
    return sorted({Path(paths[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib", "include")})


def files_by_extension(folders: Iterable[Path]) -> dict[str, list[Path]]:
    """Every file with a known extension, in a fixed order.

    Packages of the base installation are left out, and qc itself, whose files change between versions.
    """
    found: dict[str, list[Path]] = {extension: [] for extension in sorted(EXTENSIONS)}
    for folder in folders:
        for parent, subfolders, names in os.walk(folder):
            subfolders[:] = sorted(set(subfolders) - {"site-packages", "dist-packages", "qc"})
            for name in sorted(names):
                extension = name.rpartition(".")[2].lower()
                if extension in EXTENSIONS and not name.upper().startswith(("LICENSE", "COPYING")):
                    found[extension].append(Path(parent, name))
    return found


class MagikaTask:
    """Accuracy of magika's content type, judged by the extension of real files."""

    name = "magika"
    metric = "accuracy"

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        folder = model_folder()
        self.model = folder / "model.onnx"
        self._features = Features.read(folder)
        self._calibration: list[np.ndarray] = []
        self._scored: list[np.ndarray] = []
        self._accepted: list[frozenset[str]] = []
        self._gather([*python_folders(), *folders])

    def _gather(self, folders: list[Path]) -> None:
        chooser = random.Random(0)
        for extension, paths in files_by_extension(folders).items():
            chooser.shuffle(paths)
            rows = self._distinct(paths)
            split = len(rows) // CALIBRATION_SHARE
            self._calibration += rows[:split]
            self._scored += rows[split:]
            self._accepted += [frozenset(EXTENSIONS[extension])] * (len(rows) - split)
        chooser.shuffle(self._calibration)
        del self._calibration[CALIBRATION_CAP:]
        if len(self._scored) < ENOUGH:
            raise DemoError(
                f"only {len(self._scored)} files of known type were found in {', '.join(map(str, folders))}; "
                f"{ENOUGH} are needed: name a folder with more of them with --files"
            )
        self.data = (
            f"{len(self._scored)} files of {len(set(self._accepted))} types from this Python installation, "
            f"calibrated on {len(self._calibration)} others"
        )

    def _distinct(self, paths: Iterable[Path]) -> list[np.ndarray]:
        """Features of the first ``CAP`` readable files that differ from each other."""
        rows: dict[bytes, np.ndarray] = {}
        for path in paths:
            if len(rows) == CAP:
                break
            try:
                if path.stat().st_size >= MINIMUM:
                    row = self._features.extract(path)
                    rows.setdefault(row.tobytes(), row)
            except OSError:
                continue
        return list(rows.values())

    def calibration(self) -> Iterator[Feed]:
        """Feeds of one file each."""
        for row in self._calibration:
            yield {"bytes": row[None]}

    def score(self, run: Run) -> float:
        """The share of files whose most likely type fits their extension."""
        right = 0
        for start in range(0, len(self._scored), BATCH):
            rows = self._scored[start : start + BATCH]
            guesses = run({"bytes": np.stack(rows)})[0].argmax(1)
            accepted = self._accepted[start : start + BATCH]
            right += sum(self._features.labels[g] in fits for g, fits in zip(guesses, accepted, strict=True))
        return right / len(self._scored)

    def timing_feed(self) -> Feed:
        """One file."""
        return {"bytes": self._scored[0][None]}
