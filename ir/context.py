"""What all graphs of a model share, and all that a graph knows of its model."""

from __future__ import annotations

from pathlib import Path

import onnx

from .analysis import Analyses, Epochs
from .base.names import Names


class ModelContext:
    """Identities, names, operator sets, and what was computed from the graphs of one model.

    Attributes:
        origin: the proto the model was lifted from; lowering starts from it, so nothing is lost.
        given: the model as the user has it, if ``origin`` is a mended copy.
        repairs: what was mended, in sentences for the user.
        base_dir: the folder of the model file, which external data is relative to.
        opset_imports: version by domain ("" is the standard domain).
        names: the names that are taken, in whichever scope.
        epochs: how often each aspect of the model has changed.
        analyses: what was computed from the model and still holds.
    """

    def __init__(self, origin: onnx.ModelProto, base_dir: Path | None) -> None:
        self.origin = origin
        self.given: onnx.ModelProto | None = None
        self.repairs: tuple[str, ...] = ()
        self.base_dir = base_dir
        self.opset_imports = {
            "" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in origin.opset_import
        }
        self.names = Names()
        self.epochs = Epochs()
        self.analyses = Analyses(self.epochs)
        self._last_id = 0

    @property
    def opset(self) -> int:
        """The version of the standard ONNX operators."""
        return self.opset_imports.get("", 1)

    def new_id(self) -> int:
        """A fresh integer identity for an op or a value."""
        self._last_id += 1
        return self._last_id

    def claim_name(self, name: str) -> None:
        """Records a name as taken in some scope, so that no new value gets it."""
        self.names.claim(name)
