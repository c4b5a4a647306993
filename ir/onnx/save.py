"""Saving an ONNX model with its external data, atomically."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import IO

from onnx import ModelProto, TensorProto

from ..base.files import atomic_write
from ..tensor_ref import TensorRef
from .lower import serialize
from .protos import model_tensors

_INLINE_LIMIT = 3 << 29  # protobuf cannot hold 2 GiB; leave room for everything that is not a weight
_EXTERNAL_FROM = 1024
_COPY_CHUNK = 1 << 24


def save_model(proto: ModelProto, path: str | Path, base_dir: Path | None = None) -> list[Path]:
    """Writes a model; see :func:`stage_model`."""
    with ExitStack() as stack:
        return stage_model(stack, proto, path, base_dir)


def stage_model(
    stack: ExitStack, proto: ModelProto, path: str | Path, base_dir: Path | None = None
) -> list[Path]:
    """Writes a model, and a ``.data`` file beside it when it has external data or is too large without.

    Args:
        stack: the files take their places when it is closed, and vanish if an exception closes it; several
            files staged on one stack appear together.
        proto: the model; not changed.
        path: where to write.
        base_dir: the folder that the external data of ``proto`` is relative to.

    Returns:
        The files written, the model first.

    Raises:
        ModelError: external data is missing or lies outside ``base_dir``.
        UsageError: the folder cannot be written to.
    """
    path = Path(path)
    tensors = list(model_tensors(proto))
    large = sum(len(tensor.raw_data) for tensor in tensors) > _INLINE_LIMIT
    if not large and not any(t.data_location == TensorProto.EXTERNAL for t in tensors):
        stack.enter_context(atomic_write(path)).write(serialize(proto))
        return [path]
    copy = ModelProto()
    copy.CopyFrom(proto)
    data_path = path.with_name(path.name + ".data")
    file, data = stack.enter_context(atomic_write(path)), stack.enter_context(atomic_write(data_path))
    for tensor in model_tensors(copy):
        _externalize(tensor, data, data_path.name, base_dir)
    file.write(serialize(copy))
    return [path, data_path]


def external_files(proto: ModelProto, base_dir: Path | None) -> list[Path]:
    """The files that hold external data of a model, whether they exist or not; none without ``base_dir``."""
    external = (t for t in model_tensors(proto) if t.data_location == TensorProto.EXTERNAL)
    places = (entry.value for tensor in external for entry in tensor.external_data if entry.key == "location")
    return [base_dir / place for place in dict.fromkeys(places)] if base_dir is not None else []


def _externalize(tensor: TensorProto, data: IO[bytes], location: str, base_dir: Path | None) -> None:
    offset = data.tell()
    if tensor.data_location == TensorProto.EXTERNAL:
        source, start, length = TensorRef(tensor, base_dir).external_range()
        _copy_range(source, start, length, data)
    elif len(tensor.raw_data) >= _EXTERNAL_FROM:
        length = data.write(tensor.raw_data)
        tensor.ClearField("raw_data")
    else:
        return
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def _copy_range(source: Path, start: int, length: int, target: IO[bytes]) -> None:
    with source.open("rb") as file:
        file.seek(start)
        while length:
            chunk = file.read(min(length, _COPY_CHUNK))
            target.write(chunk)
            length -= len(chunk)
