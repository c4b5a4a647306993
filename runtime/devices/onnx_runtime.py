"""ONNX Runtime as a device: its own providers for CPUs and for GPUs of NVIDIA."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnx import ModelProto

from qc.ir.errors import UsageError
from qc.ir.executor import Feed

from ..execution.executed import Execution, execution_of
from ..sessions.providers import choose_provider
from ..sessions.runnable import OpenModel, Runnable
from .device import Options


class OrtCpu:
    """ONNX Runtime on the CPU."""

    name = "ort-cpu"
    title = "ONNX Runtime"
    provider = "CPUExecutionProvider"
    package = ""
    extra = ""
    fixed_shapes = False
    emulated = False
    _processor = "cpu"

    def __init__(self, options: Options) -> None:
        for name in options:
            raise UsageError(f"{self.name} has no device option '{name}'")

    def open(self, model: ModelProto, *, base_dir: Path | None = None, threads: int = 1) -> Runnable:
        """See :class:`Device`."""
        return OpenModel(model, base_dir=base_dir, threads=threads, provider=self._processor)

    def execution(
        self, model: ModelProto, feeds: Sequence[Feed] = (), *, base_dir: Path | None = None, threads: int = 1
    ) -> Execution:
        """See :class:`Device`."""
        return execution_of(model, feeds, base_dir=base_dir, threads=threads, provider=self._processor)


class OrtCuda(OrtCpu):
    """ONNX Runtime on a GPU of NVIDIA; it has no integer kernels, and runs on the CPU what has no kernel."""

    name = "ort-cuda"
    provider = "CUDAExecutionProvider"
    _processor = "cuda"

    def __init__(self, options: Options) -> None:
        """Raises QcError, with what to do about it, where CUDA cannot be used; see :class:`Device`."""
        super().__init__(options)
        choose_provider(self._processor)
