"""Results of qc in the runners of NVIDIA's Polygraphy.

``OnnxrtRunner(SessionFromQc(compiled))`` runs a result, with ``compiled.simulation`` its simulation, whose
operators Polygraphy's own loader does not know.
"""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
from onnx import ModelProto

from qc.compiler.compiled import Compiled
from qc.ir.base.extras import install_command
from qc.runtime import open_session

try:
    from polygraphy.backend.base import BaseLoader
    from polygraphy.util import check_called_by
except ImportError as error:
    raise ImportError(f"qc.bridges.polygraphy needs an extra: {install_command('polygraphy')}") from error


class SessionFromQc(BaseLoader):  # type: ignore[misc]  # Polygraphy may not be installed
    """A loader that opens a session of ONNX Runtime, with the operators of qc where the model has any.

    Args:
        model: a result of :func:`qc.compile`, of which the main model is opened; a model, or the path of one.
        threads: threads within an op; None for one per physical core.
        provider: where it runs: ``"cpu"``, ``"cuda"`` or ``"auto"``.
    """

    def __init__(
        self,
        model: Compiled | ModelProto | str | Path,
        threads: int | None = None,
        provider: str = "cpu",
    ) -> None:
        self._model, self._threads, self._provider = model, threads, provider

    @check_called_by("__call__")  # type: ignore[untyped-decorator]  # as all loaders of Polygraphy
    def call_impl(self) -> ort.InferenceSession:
        """Opens it.

        Raises:
            QcError: what :func:`qc.runtime.open_session` raises.
        """
        model, base_dir = self._model, None
        if isinstance(model, Compiled):
            model, base_dir = model.model, model.ir.base_dir
        return open_session(model, base_dir=base_dir, threads=self._threads, provider=self._provider)
