"""Texts as files: what is too long for a text lies in a file of plain bytes beside it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from ..base.files import atomic_write
from ..errors import ModelError, reason_of
from ..model import Model
from .parser import parse_model
from .printer import print_parts
from .storage import DataWriter


def data_path(path: Path) -> Path:
    """The file of data that belongs to the text at ``path``, if the text has one."""
    return path.with_name(f"{path.name}.data")


def save_text(model: Model, path: str | Path) -> list[Path]:
    """Writes the text of a model, and the data of large constants beside it. Both appear together.

    Returns:
        The files written, the text first.

    Raises:
        ModelError: external data of the model cannot be read.
        UsageError: the folder cannot be written to.
    """
    path = Path(path)
    with ExitStack() as stack:
        writer = DataWriter(lambda: stack.enter_context(atomic_write(data_path(path))))
        text = print_parts(model, writer).text
        stack.enter_context(atomic_write(path)).write(text.encode("utf-8"))
    return [path, data_path(path)] if writer.size else [path]


def load_text(path: str | Path, original: Model | None = None) -> Model:
    """Reads what :func:`save_text` wrote, and nothing outside of its folder.

    Args:
        original: the model that the text was printed from, for the data that a text without a file lacks.

    Raises:
        ModelError: a file is missing, or the text is not right.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"the text '{path}' does not exist or is not a regular file")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"the text '{path}' cannot be read: {reason_of(error)}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"the text '{path}' is not UTF-8 text") from error
    tensors, base_dir = (print_parts(original).left_out, original.base_dir) if original else ({}, None)
    return parse_model(text, tensors, base_dir, data_path(path), str(path))
