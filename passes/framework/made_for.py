"""The target that a model was made for, in the metadata of its file."""

from __future__ import annotations

from onnx import ModelProto

_KEY = "qc.target"


def mark_target(model: ModelProto, target: str) -> None:
    """Writes the name of a target into the metadata of a model, in the place of an older one."""
    for entry in model.metadata_props:
        if entry.key == _KEY:
            entry.value = target
            return
    model.metadata_props.add(key=_KEY, value=target)


def target_in(model: ModelProto) -> str:
    """The name of the target that a model was made for; empty if its metadata has none."""
    return next((entry.value for entry in model.metadata_props if entry.key == _KEY), "")
