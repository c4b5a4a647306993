"""Rockchip's NPUs as a device: the compiler and the simulator of RKNN-Toolkit2.

Both run in a process of their own, :mod:`qc.runtime.devices.rknn_process`, whose log tells what became of
each op.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from onnx import ModelProto, helper

from qc.ir.base.files import temporary_directory, temporary_folder
from qc.ir.errors import ModelError
from qc.ir.executor import Feed
from qc.ir.onnx.save import save_model

from ..execution.executed import Execution
from ..protos.marks import marked_copy, with_names
from ..protos.wiring import all_nodes
from .device import DeviceModel, Options, require_fixed_shapes
from .process import DeviceProcess
from .rknn_log import executed_ops, read_log
from .rknn_process import Request

_PROCESS = "qc.runtime.devices.rknn_process"
_MEND = (
    "with --device-option optimization_level=2 it merges fewer ops; else keep ops in float until it is taken "
    "(insert-quantizers{skip_nodes=[...]})"
)
_PLATFORM = {"target_platform": "rk3588"}


class Rknn:
    """An NPU of Rockchip, simulated. Options are those of ``RKNN.config``, as ``target_platform=rk3566``.

    Attributes:
        emitted: what of its compiler's work can be had, with the suffix of the file.
        seconds, seconds_for_megabyte: how long it may take to open a model, or to run it once, as the
            compiler hangs with some; the second for each megabyte of the model.
    """

    name = "rknn"
    title = "Rockchip's compiler and simulator, RKNN-Toolkit2"
    provider = "RknpuExecutionProvider"
    package = "rknn-toolkit2"
    extra = "rknn"
    fixed_shapes = True
    emulated = True
    emitted: ClassVar[dict[str, str]] = {"rknn": ".rknn"}
    seconds = 60.0
    seconds_for_megabyte = 2.0

    def __init__(self, options: Options) -> None:
        self._options = {**_PLATFORM, **options}

    def open(self, model: ModelProto, *, base_dir: Path | None = None, threads: int = 1) -> RknnModel:
        """See :class:`Device`; the simulator takes as many threads as it likes."""
        return RknnModel(model, base_dir, self._options)

    def emit(self, kind: str, model: ModelProto, *, base_dir: Path | None = None) -> bytes:
        """The model for the platform of the option ``target_platform``, as Rockchip's runtime loads it.

        Args:
            kind: ``rknn``.

        Raises:
            ModelError: the compiler does not take the model.
        """
        return RknnModel(model, base_dir, self._options, emits=True).emitted

    def execution(
        self, model: ModelProto, feeds: Sequence[Feed] = (), *, base_dir: Path | None = None, threads: int = 1
    ) -> Execution:
        """See :class:`Device`; nothing is measured, as the time of a simulator is not that of the device."""
        marked = marked_copy(model)
        opened = RknnModel(marked, base_dir, self._options, only_look=True)
        nodes = list(all_nodes(model.graph))
        return Execution(executed_ops(nodes, opened.log), (), with_names(opened.failure, model))


class RknnModel(DeviceModel):
    """A model on the simulator; results have the types that the model declares.

    Args:
        model: the model; not changed.
        base_dir: the folder that its external data is relative to.
        options: options of ``RKNN.config``.
        only_look: nothing will be run: what the compiler gives up is kept and not raised.
        emits: whether the model for the device is kept.

    Attributes:
        log: the layers that the compiler made.
        emitted: the file for the device, if it is kept.
        failure: with ``only_look``, why the model as a whole cannot run; empty if it can.

    Raises:
        ModelError: the compiler does not take the model, or ended the process.
        UsageError: it does not know an option, or its value.
    """

    def __init__(
        self,
        model: ModelProto,
        base_dir: Path | None,
        options: Options,
        *,
        only_look: bool = False,
        emits: bool = False,
    ) -> None:
        require_fixed_shapes(model, Rknn.name)
        super().__init__(model)
        for output in model.graph.output:
            if not output.type.HasField("tensor_type"):
                raise ModelError(
                    f"the output '{output.name}' is no tensor, and {Rknn.name} makes nothing else"
                )
        self._types = [
            helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type) for one in model.graph.output
        ]
        self.failure = ""
        with temporary_folder() as folder:
            save_model(model, folder / "model.onnx", base_dir)
            self._open(folder, options, only_look, emits)

    def _open(self, folder: Path, options: Options, only_look: bool, emits: bool) -> None:
        """Compiles the model in a folder, where it lies alone."""
        size = sum(file.stat().st_size for file in folder.iterdir())
        limit = Rknn.seconds + Rknn.seconds_for_megabyte * size / 1e6
        self._process = DeviceProcess(_PROCESS, "Rockchip's compiler or simulator", _MEND, limit)
        # Made after the process, so that it is removed when that has ended, and however it ended.
        self._folder = temporary_directory()
        log, file = folder / "log", folder / "model.rknn"
        request = Request(
            path=folder / "model.onnx",
            log=log,
            folder=Path(self._folder.name),
            options=dict(options),
            inputs=tuple(one.name for one in self._inputs),
            file=file if emits else None,
            runs=not (only_look or emits),
        )
        try:
            self._process.ask(request)
        except ModelError as error:
            if not only_look:
                raise
            self.failure = str(error)
        self.log = read_log(log)
        self.emitted = file.read_bytes() if emits else b""

    def _results(self, feed: Feed) -> Sequence[Any]:
        found = self._process.ask(dict(feed))
        if len(found) != len(self._types):
            raise ModelError(f"Rockchip's simulator gave {len(found)} results of {len(self._types)}")
        return [np.asarray(one, type) for one, type in zip(found, self._types, strict=True)]
