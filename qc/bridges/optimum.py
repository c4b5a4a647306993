"""qc as a quantizer of Hugging Face's Optimum."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import qc
from qc.ir.base.extras import install_command
from qc.ir.errors import UsageError

try:
    from optimum.quantization_base import OptimumQuantizer
except ImportError as error:
    raise ImportError(f"qc.bridges.optimum needs an extra: {install_command('optimum')}") from error

_WEIGHTS = (".onnx", ".onnx_data", ".data", ".bin", ".safetensors", ".pt", ".h5", ".msgpack")


class QcQuantizer(OptimumQuantizer):  # type: ignore[misc]  # Optimum may not be installed
    """Quantizes an exported model, and keeps its configuration and its tokenizer beside it.

    Args:
        path: the ONNX model.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def from_pretrained(cls, model_or_path: str | Path, file_name: str | None = None) -> QcQuantizer:
        """The quantizer of a model in a folder, as Optimum exports it, or of an ONNX file.

        Args:
            file_name: of the model in the folder, if there are several.

        Raises:
            UsageError: there is no such model, or there are several and none is named.
        """
        path = Path(model_or_path)
        if path.is_dir():
            found = sorted(one.name for one in path.glob("*.onnx")) if file_name is None else [file_name]
            if len(found) != 1:
                told = (
                    f"{len(found)} models, {', '.join(found)}: name one by file_name" if found else "no model"
                )
                raise UsageError(f"folder '{path}' has {told}")
            path /= found[0]
        if not path.is_file():
            raise UsageError(f"there is no model '{path}'")
        return cls(path)

    def quantize(
        self, save_dir: str | Path, file_prefix: str | None = None, pipeline: str = "w8a8", **settings: Any
    ) -> Path:
        """Compiles the model into a folder, with the other small files of its own folder.

        Args:
            save_dir: the folder; it is made if it is not there.
            file_prefix: the name of the result; default: that of the model and ``_quantized``.
            pipeline: as for :func:`qc.compile`.
            settings: all else that :func:`qc.compile` takes, such as ``data`` and ``target``.

        Returns:
            The path of the result.

        Raises:
            QcError: what :func:`qc.compile` and :meth:`qc.Compiled.save` raise.
        """
        folder = Path(save_dir)
        result = folder / f"{file_prefix or f'{self.path.stem}_quantized'}.onnx"
        compiled = qc.compile(self.path, pipeline, **settings)
        folder.mkdir(parents=True, exist_ok=True)
        compiled.save(result)
        for file in sorted(self.path.parent.iterdir()):
            if file.is_file() and file.suffix not in _WEIGHTS and not (folder / file.name).exists():
                shutil.copyfile(file, folder / file.name)
        return result
