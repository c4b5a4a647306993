"""Qualcomm's HTP as a device: its graph compiler and its emulator, by ONNX Runtime's provider for QNN.

Both run in a process of their own, :mod:`qc.runtime.devices.qnn_process`, whose log tells what became of each
node.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from onnx import ModelProto

from qc.ir.base.files import temporary_folder
from qc.ir.errors import ModelError, UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.load import load_model
from qc.ir.onnx.save import save_model

from ..execution.executed import ExecutedOp, Execution
from ..protos.marks import marked_copy, with_names
from ..protos.wiring import Node, all_nodes
from .device import DeviceModel, Options, require_fixed_shapes
from .process import DeviceProcess
from .qnn_log import NodeVerdict, invalid_option, read_verdicts
from .qnn_process import Request

_PROCESS = "qc.runtime.devices.qnn_process"
_MEND = (
    "compile the float model anew with --target qnn-htp, or keep ops in float until it is taken "
    "(insert-quantizers{skip_nodes=[...]})"
)


class QnnHtp:
    """Qualcomm's Hexagon HTP, emulated. Options are those of the provider, such as ``htp_arch=75``.

    Attributes:
        emitted: what of its compiler's work can be had, with the suffix of the file.
    """

    name = "qnn-htp"
    title = "Qualcomm's compiler and emulator of the HTP, onnxruntime-qnn"
    provider = "QNNExecutionProvider"
    package = "onnxruntime-qnn"
    extra = "qnn"
    fixed_shapes = True
    emulated = True
    emitted: ClassVar[dict[str, str]] = {"qnn-context": ".qnn-context.onnx", "qnn-dlc": ".dlc"}

    def __init__(self, options: Options) -> None:
        for name in ("backend_path", "backend_type"):
            if name in options:
                raise UsageError(f"the device option '{name}' cannot be changed, as this is the HTP")
        self._options = dict(options)

    def open(self, model: ModelProto, *, base_dir: Path | None = None, threads: int = 1) -> HtpModel:
        """See :class:`Device`; the emulator takes as many threads as it likes."""
        return HtpModel(model, base_dir, self._options)

    def emit(self, kind: str, model: ModelProto, *, base_dir: Path | None = None) -> ModelProto | bytes:
        """What Qualcomm's compiler makes of a model.

        Args:
            kind: ``qnn-context``: a model of one op, EPContext of ONNX Runtime, that holds a context binary
                for the architecture of the option ``htp_arch`` and is loaded without compiling it;
                ``qnn-dlc``: the graph as a deep learning container, as Qualcomm's other tools read it.

        Raises:
            ModelError: the HTP does not take the model whole.
        """
        made = HtpModel(model, base_dir, self._options, emit=kind).emitted
        assert made is not None
        return made

    def execution(
        self, model: ModelProto, feeds: Sequence[Feed] = (), *, base_dir: Path | None = None, threads: int = 1
    ) -> Execution:
        """See :class:`Device`; nothing is measured, as the time of an emulator is not that of the device."""
        marked = marked_copy(model)
        opened = HtpModel(marked, base_dir, self._options, only_look=True)
        ops = []
        for index, node in enumerate(all_nodes(model.graph)):
            if not node.rounds and node.op_type != "Constant":
                verdict = opened.verdicts.get(index) or _not_offered(node)
                place = "CPU" if verdict.accepted is False else ""
                name = node.proto.name if verdict.accepted else ""
                integer = verdict.integer if verdict.accepted else verdict.accepted
                reason = with_names(verdict.reason, model)
                ops.append(ExecutedOp(node, verdict.kernel, name, integer, 0.0, place, reason))
        return Execution(tuple(ops), (), with_names(opened.failure, model))


class HtpModel(DeviceModel):
    """A model on the emulator, in a process of its own that ends when nobody holds this any longer.

    Args:
        model: the model; not changed.
        base_dir: the folder that its external data is relative to.
        options: options of the provider.
        only_look: nothing will be run: what the HTP refuses, or gives up, is kept and not raised.
        emit: what is kept of what its compiler made.

    Attributes:
        verdicts: what became of the nodes, by their places, if they are marked (``runtime/protos/marks.py``).
        emitted: what ``emit`` asks for.
        failure: with ``only_look``, why the model as a whole cannot run; empty if it can.

    Raises:
        ModelError: the HTP refuses the model, or its compiler ended the process.
        UsageError: the provider cannot be used with the ONNX Runtime that is installed, or does not know the
            value of an option.
    """

    def __init__(
        self,
        model: ModelProto,
        base_dir: Path | None,
        options: Options,
        *,
        only_look: bool = False,
        emit: str | None = None,
    ) -> None:
        require_fixed_shapes(model, QnnHtp.name)
        super().__init__(model)
        self._process = DeviceProcess(_PROCESS, "the compiler or emulator of the HTP", _MEND)
        with temporary_folder() as folder:
            self._open(model, base_dir, folder, options, only_look, emit)

    def _open(
        self,
        model: ModelProto,
        base_dir: Path | None,
        folder: Path,
        options: Options,
        only_look: bool,
        emit: str | None,
    ) -> None:
        path, log = folder / "model.onnx", folder / "log"
        context = folder / "context.onnx" if emit == "qnn-context" else None
        dlc = folder if emit == "qnn-dlc" else None
        save_model(model, path, base_dir)
        request = Request(path, log, dict(options), may_use_cpu=only_look, context=context, dlc=dlc)
        self.failure = ""
        try:
            self._process.ask(request)
        except ModelError as error:
            self.failure = str(error)
        self.emitted: ModelProto | bytes | None = None
        if context is not None and context.is_file():
            self.emitted = load_model(context)
        for file in dlc.glob("*.dlc") if dlc is not None else ():
            self.emitted = file.read_bytes()
        self.verdicts = read_verdicts(log) if log.is_file() else {}
        if log.is_file() and (told := invalid_option(log)):
            raise UsageError(f"a device option of {QnnHtp.name} is not valid: {told}")
        if self.failure and not only_look:
            raise ModelError(self.failure)

    def _results(self, feed: Feed) -> Sequence[Any]:
        return self._process.ask(dict(feed))


def _not_offered(node: Node) -> NodeVerdict:
    """What becomes of a node that the HTP was not asked for: it has gone, or stands in a body."""
    if node.graph.owner is None:
        return NodeVerdict(None)
    return NodeVerdict(False, reason="the HTP is not offered what stands in a body")
