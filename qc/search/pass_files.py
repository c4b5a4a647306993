"""Files that passes read: those that an option ``file`` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from qc.passes import Combinator, Pipeline, PipelineFile
from qc.passes.framework.pipeline import Step

_OPTION = "file"


def with_files(pipeline: PipelineFile, change: Callable[[str], str]) -> PipelineFile:
    """The pipeline with other paths in the place of those that its passes read."""
    return replace(pipeline, pipeline=Pipeline(_changed(pipeline.pipeline.steps, change)))


def _changed(steps: Sequence[Step], change: Callable[[str], str]) -> list[Step]:
    found: list[Step] = []
    for step in steps:
        new: dict[str, Any] = {}
        if isinstance(step, Combinator):
            new["steps"] = _changed(step.steps, change)
        elif any(field.name == _OPTION for field in fields(step)) and getattr(step, _OPTION):
            new[_OPTION] = change(getattr(step, _OPTION))
        found.append(replace(step, **new) if new else step)
    return found
