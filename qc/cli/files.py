"""The files that a command reads and writes: what it reads is never what it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from onnx import ModelProto

from qc.ir.base.files import atomic_write, require_writable
from qc.ir.errors import UsageError
from qc.ir.onnx.load import model_folder
from qc.ir.onnx.save import external_files

_DATA_SUFFIXES = (".npz", ".npy", ".pb")

# Suffixes that say what a file holds; any other may be part of a name.
_FORMATS = frozenset(
    f".{name}"
    for names in (
        "bin caffemodel ckpt dlc engine gguf h5 keras lite mlmodel mlpackage onnx ort plan pt pt2 pth rknn",
        "safetensors tflite trt xml",
        "dot encodings html json npy npz pdf png qcir svg toml txt yaml yml zip",
    )
    for name in names.split()
)
_EMITTED = {".dlc": "qnn-dlc", ".rknn": "rknn"}


class InputFile(NamedTuple):
    """A file that is read, or a folder of data, and what it is, in words."""

    path: Path
    role: str


def model_files(model: str | Path, proto: ModelProto, role: str) -> list[InputFile]:
    """The file of a model and those of its external data."""
    path = Path(model)
    data = external_files(proto, model_folder(path))
    return [InputFile(path, role), *(InputFile(file, f"data of {role}") for file in data)]


def data_files(source: str | None, role: str) -> list[InputFile]:
    """The file or folder of a source of data; for a function, the file that defines it."""
    if source is None:
        return []
    module, colon, _ = source.rpartition(":")
    if not colon or Path(source).exists():
        return [InputFile(Path(source), role)]
    file = module if module.endswith(".py") else f"{module.replace('.', '/')}.py"
    return [InputFile(Path(file), f"the Python file of {role}")]


def judging_files(metrics: Iterable[str], labels: Path | None) -> list[InputFile]:
    """The Python files of metrics that are functions, maybe as ``file.py:function < 0.9``, and the labels."""
    names = [re.split(r"\s*[<>=!]", text.strip(), maxsplit=1)[0] for text in metrics]
    files = [file for name in names if ":" in name for file in data_files(name, "the metric")]
    return [*files, *([InputFile(labels, "the labels")] if labels is not None else [])]


def toml_files(name: str | None, role: str) -> list[InputFile]:
    """The TOML file of a pipeline or target, if it is not one of qc's own.

    Raises:
        UsageError: it is a pipe or a device, which could block.
    """
    if name is None or not name.endswith(".toml"):
        return []
    path = Path(name)
    if path.exists() and not path.is_file():
        raise UsageError(f"{role.removeprefix('the ')} file '{name}' is not a regular file")
    return [InputFile(path, role)]


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[InputFile]) -> None:
    """Checks before long work that files can be written, that none is read, and that each is another.

    Raises:
        UsageError: saying why a file cannot or must not be written.
    """
    distinct: set[Path] = set()
    for output in outputs:
        if output is not None:
            if output.resolve() in distinct:
                raise UsageError(f"'{output}' cannot be two results at once; rename one of them")
            distinct.add(output.resolve())
            require_writable(output)
            for file in inputs:
                if _is_same(output, file.path):
                    raise UsageError(f"'{output}' is {file.role}; write to another file")


def check_model_output(output: Path | None) -> None:
    """Raises UsageError if a file that a model is written to has the suffix of another format than ONNX."""
    emitted = _EMITTED.get(output.suffix.lower()) if output is not None else None
    advice = f", and --emit {emitted} writes {output.suffix} beside it" if output and emitted else ""
    if output is not None and output.suffix.lower() in _FORMATS - {".onnx"}:
        named = f"name it {output.stem}.onnx{advice}"
        raise UsageError(f"'{output}' would be ONNX, whatever its suffix says; {named}")


def check_statistics_output(output: Path) -> None:
    """Raises UsageError if a file that statistics are written to is not named as what it is, an archive."""
    if output.suffix.lower() != ".npz":
        raise UsageError(f"'{output}' would be statistics, in the format .npz; name it {output.stem}.npz")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Gives an error of the operating system that names no file, such as that of a full disk, this one.

    Raises:
        UsageError: in place of such an error.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or not error.strerror:
            raise
        raise UsageError(f"cannot write '{path}': {error.strerror}") from error


def write_json(path: Path, document: object) -> None:
    """Writes a document of plain values as JSON; raises UsageError if the file cannot be written."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    with writing(path), atomic_write(path) as file:
        file.write(f"{text}\n".encode())


def _is_same(output: Path, source: Path) -> bool:
    """Whether writing ``output`` would replace ``source``, or a file of data in it if that is a folder."""
    if not (output.exists() and source.exists()):
        return False
    if source.is_dir():
        within = output.resolve().is_relative_to(source.resolve())
        return within and output.suffix in _DATA_SUFFIXES
    return output.samefile(source)
