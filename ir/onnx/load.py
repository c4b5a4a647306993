"""Reading a model file: its bytes, and where the files of its external data really are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, StringStringEntryProto, TensorProto, numpy_helper

from ..base.garbage import free_models
from ..errors import ModelError, UsageError, a_type, reason_of
from ..tensor_ref import TensorRef
from .protos import model_tensors
from .repair import repaired

# What makes ONNX of models in other formats, by their suffixes.
_EXPORTERS = {
    **dict.fromkeys((".pt", ".pth", ".safetensors"), "torch.onnx.export"),
    **dict.fromkeys((".h5", ".keras", ".pb", ".tflite"), "tf2onnx"),
    **dict.fromkeys((".joblib", ".pkl"), "skl2onnx"),
}

_LENGTHS = (TensorProto.INT32, TensorProto.INT64)  # the types of axes, shapes and the like


def load_model(path: str | Path) -> ModelProto:
    """Reads a model file without its external data, mended where that is needed and unambiguous.

    Raises:
        ModelError: as for :func:`read_file` and :func:`~qc.ir.onnx.repair.repaired`.
    """
    return repaired(read_file(path)).model


def check_model_or_path(model: object) -> None:
    """Raises UsageError for what is neither a model nor the path of one."""
    if not isinstance(model, ModelProto | str | os.PathLike):
        hint = "; its .model is one" if isinstance(getattr(model, "model", None), ModelProto) else ""
        raise UsageError(f"a model is an onnx.ModelProto or the path of a file, not {a_type(model)}{hint}")


def _beside(path: Path) -> str:
    """`` (did you mean 'x.onnx'?)`` for the ONNX file in its folder that is called most alike."""
    with suppress(OSError):  # there may be no such folder, or none that may be read
        names = {file.stem: file.name for file in path.parent.glob("*.onnx")}
        for stem in get_close_matches(path.stem, names, n=1, cutoff=0.7):
            return f" (did you mean '{path.with_name(names[stem])}'?)"
    return ""


def read_file(path: str | Path) -> ModelProto:
    """Reads a model file as it is, without its external data, but for short vectors of integers.

    Shapes may follow from these, so that ONNX Runtime opens no model in which they are external. Of a
    symbolic link, the locations of external data become relative to :func:`model_folder`.

    Raises:
        UsageError: ``path`` is none.
        ModelError: the file is missing, is not an ONNX model, or is truncated; or it is a link, and its
            external data lies neither in the folder of the link nor in that of the file behind it.
    """
    check_model_or_path(path)
    path = Path(path)
    if not path.exists():
        address = re.match(r"\w{2,}:/", str(path))
        hint = "; it is an address: download the file first, and name that" if address else _beside(path)
        raise ModelError(f"model '{path}' does not exist{hint}")
    if path.is_dir():
        raise ModelError(f"model '{path}' is a folder; name the .onnx file in it")
    if not path.is_file():
        raise ModelError(f"model '{path}' is not a regular file")
    try:
        size = path.stat().st_size
        if not size:
            raise ModelError(f"model '{path}' is empty: the file has no byte")
        free_models(size)
        proto = onnx.load(str(path), format="protobuf", load_external_data=False)
    except OSError as error:
        raise ModelError(f"model '{path}' cannot be read: {reason_of(error)}") from error
    except (DecodeError, ValueError) as error:
        exporter = _EXPORTERS.get(path.suffix.lower())
        hint = f"; {exporter} makes one of a {path.suffix}" if exporter else ""
        raise ModelError(
            f"model '{path}' cannot be read: it is truncated or not an ONNX file{hint}"
        ) from error
    if not proto.opset_import or not proto.HasField("graph"):
        raise ModelError(f"model '{path}' is not an ONNX model: it has no graph or no opset")
    if path.is_symlink():
        _follow_links(proto, path)
    _bring_in_vectors(proto, model_folder(path))
    return proto


def model_folder(path: str | Path) -> Path:
    """The folder that external data of a model file is relative to, once :func:`read_file` has read it.

    It is that of the file; of a symbolic link, the smallest one with both the link and the file behind it.
    """
    return Path(os.path.commonpath(_trusted_folders(Path(path))))


def _trusted_folders(path: Path) -> tuple[Path, Path]:
    """The folder of a file and, if it is a symbolic link, that of the file behind it."""
    return path.parent.resolve(), path.resolve().parent


def _follow_links(proto: ModelProto, path: Path) -> None:
    """Makes the locations of external data of a linked model those of the files behind their own links.

    The cache of the Hugging Face hub has such models: links to files that are named by their digests.
    """
    folders, base = _trusted_folders(path), model_folder(path)
    for tensor, entry in _locations(proto):
        try:
            places = [(folder / entry.value).resolve() for folder in folders]
            place = next((place for place in places if place.exists()), places[0])
        except (OSError, RuntimeError, ValueError):
            continue  # no usable path; whoever reads the constant says so
        if not any(place.is_relative_to(folder) for folder in folders):
            raise ModelError(
                f"constant '{tensor.name}' has external data at '{entry.value}', which leads to '{place}': "
                f"outside the folder of the model '{path}' and outside that of the file it is a link to"
            )
        entry.value = str(place.relative_to(base))


def _locations(proto: ModelProto) -> Iterable[tuple[TensorProto, StringStringEntryProto]]:
    for tensor in model_tensors(proto):
        if tensor.data_location == TensorProto.EXTERNAL:
            for entry in tensor.external_data:
                if entry.key == "location":
                    yield tensor, entry


def _bring_in_vectors(proto: ModelProto, folder: Path) -> None:
    for tensor in model_tensors(proto):
        vector = TensorRef(tensor, folder)
        if vector.is_external and vector.is_small and len(vector.shape) < 2 and tensor.data_type in _LENGTHS:
            with suppress(ModelError):  # which whoever reads it raises again
                tensor.raw_data = numpy_helper.from_array(vector.numpy()).raw_data
                tensor.ClearField("data_location")
                tensor.ClearField("external_data")
