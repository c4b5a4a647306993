"""What runs on feeds and can be judged: a model in a session, a simulation under a setting, a device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import onnxruntime as ort
from onnx import ModelProto

from qc.ir.base.underway import underway
from qc.ir.errors import UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.load import check_model_or_path, load_model, model_folder

from ..protos.detach import detach_weights
from ..protos.parts import expose_tensors
from .maps import without_maps
from .open import accepted_by, open_session, run_session


class Runnable(Protocol):
    """Runs one feed after the other, always in the same way."""

    @property
    def outputs(self) -> Sequence[str]:
        """The names of what a run gives."""

    def run(self, feed: Feed) -> dict[str, Any]:
        """Runs once: arrays by the name of the output, or lists of arrays for sequences.

        A map counts as a row of its values, as :func:`~qc.runtime.sessions.maps.without_maps` writes it.
        """


class OpenModel:
    """A model in a session of ONNX Runtime.

    Args:
        model: a model, or the path of one.
        base_dir: the folder that external data is relative to; for a path, the folder of the file.
        outputs: tensors of the main graph to give instead of the outputs; only what they need is opened.
        settings: as for :func:`open_session`.

    Attributes:
        session: the session.

    Raises:
        UsageError, ModelError, QcError: as for :func:`open_session`, or there is no tensor of ``outputs``.
    """

    def __init__(
        self,
        model: ModelProto | str | Path,
        *,
        base_dir: Path | None = None,
        outputs: Sequence[str] | None = None,
        **settings: Any,
    ) -> None:
        check_model_or_path(model)
        place = None if isinstance(model, ModelProto) else Path(model)
        if not isinstance(model, ModelProto):
            model, base_dir = load_model(model), model_folder(model)
        weights = None
        self._is_part = outputs is not None
        if outputs is not None:
            model, weights = detach_weights(model)
            model = expose_tensors(model, outputs)
            left = {tensor.name for tensor in model.graph.initializer}
            weights = {name: array for name, array in weights.items() if name in left}
        with underway(f"opened '{place}'" if place else "opened a model", outer=place is None):
            self.session: ort.InferenceSession = open_session(
                model, base_dir=base_dir, weights=weights, **settings
            )
        self._outputs = [output.name for output in self.session.get_outputs()]

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the outputs."""
        return self._outputs

    def run(self, feed: Feed, outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Runs the model once.

        Args:
            feed: an array for each input without a default; of a part, all inputs of the model may be given.
            outputs: the outputs that are wanted; None for all.

        Returns:
            The outputs by name, as for :class:`Runnable`.

        Raises:
            UsageError: ``outputs`` is text, and no list of names.
            DataError: the feed does not fit.
            ModelError: ONNX Runtime failed; the sentence names the node.
        """
        if isinstance(outputs, str):
            raise UsageError(f"outputs={outputs!r} is text, where a list of names is due")
        names = list(outputs) if outputs is not None else self._outputs
        if not names:
            return {}  # without names ONNX Runtime gives them all
        given = accepted_by(self.session, feed) if self._is_part else feed
        found = map(without_maps, run_session(self.session, given, names))
        return dict(zip(names, found, strict=True))
