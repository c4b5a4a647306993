"""Quantized weights of models: read from a QDQ model or with an encodings file, and written for others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from onnx import ModelProto

from qc.ir.base.extras import install_command
from qc.ir.base.files import atomic_write
from qc.ir.errors import UsageError, a_type
from qc.ir.facts.weights import QuantizedWeight, Weights, weights_of
from qc.ir.quant.formats import FloatFormat
from qc.passes import PassContext
from qc.passes.quantize.import_qdq import ImportQdq
from qc.passes.quantize.load_encodings import LoadEncodings

from .reading import read_model

SUFFIXES = (".npz", ".safetensors")


def read_weights(model: ModelProto | str | Path, encodings: str | Path | None = None) -> Weights:
    """The quantized weights of a QDQ model, whoever made it, or of a float model with an encodings file.

    Raises:
        UsageError: the file does not fit the model; names the tensor.
        ModelError: the model cannot be read.
    """
    ir = read_model(model)
    ImportQdq().run(ir, PassContext())
    if encodings is not None:
        LoadEncodings(file=str(encodings)).run(ir, PassContext())
    return weights_of(ir)


def save_weights(weights: Mapping[str, QuantizedWeight], path: str | Path, packed: bool = False) -> None:
    """Writes weights as arrays ``NAME.qdata``, ``NAME.scale`` and ``NAME.zero_point``.

    ``.npz`` holds what else is to be known as JSON in the array ``metadata``, ``.safetensors`` in its own
    metadata under ``weights``: by name the format, shape, axis, block size, and whether codes are packed.
    Codes of 8-bit floats and of bfloat16 are written as unsigned integers of the same bits.

    Args:
        packed: pack codes of 2 and 4 bits into bytes, in one dimension, the first code in the lowest bits.

    Raises:
        UsageError: what is no weights by name, another suffix, a file that cannot be written, or no package
            ``safetensors``.
    """
    path = Path(path)
    check_suffix(path)
    _check_weights(weights)
    metadata = json.dumps({name: _description(weight, packed) for name, weight in weights.items()})
    with atomic_write(path) as file:
        if path.suffix == ".npz":
            arrays = _arrays(weights, packed)
            np.savez(file, allow_pickle=False, metadata=np.array(metadata), **arrays)
        else:
            _write_safetensors(file, _arrays(weights, packed), metadata)


def check_suffix(path: Path) -> None:
    """Raises UsageError if the suffix names no format that weights are written in."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"cannot write weights to '{path}': its suffix must be {' or '.join(SUFFIXES)}")


def _check_weights(given: object) -> None:
    """Raises UsageError for what is no dictionary of quantized weights."""
    held = given.values() if isinstance(given, Mapping) else [given]
    wrong = [one for one in held if one is given or not isinstance(one, QuantizedWeight)]
    if wrong:
        raise UsageError(
            f"weights are given by name, as Compiled.weights has them, not as {a_type(wrong[0])}"
        )


def _arrays(weights: Mapping[str, QuantizedWeight], packed: bool) -> dict[str, np.ndarray]:
    found = {}
    for name, weight in weights.items():
        found[f"{name}.qdata"] = weight.packed if _is_packed(weight, packed) else _plain(weight)
        found[f"{name}.scale"] = weight.scale
        found[f"{name}.zero_point"] = weight.zero_point
    return found


def _plain(weight: QuantizedWeight) -> np.ndarray:
    """The codes in a dtype that every reader knows."""
    codes = np.ascontiguousarray(weight.qdata)
    format = weight.encoding.spec.format
    if isinstance(format, FloatFormat) and codes.dtype != np.float16:
        return codes.view(f"uint{format.bits}")
    return codes


def _is_packed(weight: QuantizedWeight, packed: bool) -> bool:
    return packed and weight.packed.size < weight.source.size


def _description(weight: QuantizedWeight, packed: bool) -> dict[str, Any]:
    return {
        "format": weight.format,
        "shape": list(weight.shape),
        "axis": weight.axis,
        "block_size": weight.block_size,
        "packed": _is_packed(weight, packed),
    }


def _write_safetensors(file: IO[bytes], arrays: dict[str, np.ndarray], metadata: str) -> None:
    try:
        from safetensors.numpy import save
    except ImportError as error:
        raise UsageError(
            f"writing .safetensors needs the package 'safetensors': {install_command('safetensors')}"
        ) from error
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    file.write(save(contiguous, {"weights": metadata}))
