"""The file of a reproducer that tells what it is: ``reproducer.json``."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qc.ir.errors import UsageError

# What a folder holds.
MODEL = "model.onnx"
BEFORE = "before.qcir"
PIPELINE = "pipeline.toml"
RECORD = "reproducer.json"
FEEDS = "feeds"
FILES = "files"

_PACKAGES = ("qc-onnx", "onnx", "onnxruntime", "numpy")


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class ActionRecord(_Table):
    """An action that is to blame."""

    number: int
    title: str


class Record(_Table):
    """Everything about a failed compilation that is not in a file of its own.

    Attributes:
        versions: of qc and of what it stands on.
        command: the command line, if it was one.
        error, error_type: what was raised, in words, and its class.
        failing_pass: the pass that failed or left a broken model, with its options.
        action: the first action that makes it fail.
        reproduces: whether the folder, compiled when it was written, failed in the same way.
        zero_weights: names of the weights that stand as zeros in the folder.
        feeds: number of feeds of data; None if there was no data.
        target: the target, as data.
    """

    format: Literal[1] = 1
    versions: dict[str, str]
    command: tuple[str, ...] = ()
    error: str
    error_type: str
    failing_pass: str | None = None
    action: ActionRecord | None = None
    reproduces: bool = False
    zero_weights: tuple[str, ...] = ()
    feeds: Annotated[int, Field(ge=0)] | None = None
    seed: int = 0
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    device: Annotated[str, Field(pattern="^(cpu|cuda|auto)$")] = "auto"
    action_limit: Annotated[int, Field(ge=0)] | None = None
    verify_each: bool = True
    check_analyses: bool = False
    allow_unquantized: bool = False
    fail_if_unquantized: bool = False
    target: dict[str, Any]

    def text(self) -> str:
        """The file."""
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def parse(cls, text: str, source: str) -> Record:
        """Reads the file; ``source`` is what errors call it.

        Raises:
            UsageError: it is not such a file.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            where = f" at '{place}'" if place else ""
            raise UsageError(f"'{source}' does not describe a reproducer{where}: {first['msg']}") from error


def current_versions() -> dict[str, str]:
    """The versions of qc, of what it stands on, and of Python."""
    packages = {name: version(name) for name in _PACKAGES}
    return {**packages, "python": platform.python_version()}
