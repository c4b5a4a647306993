"""Gives inputs a value for good, such as the sampling rate that chooses a branch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import helper

from qc.ir.errors import UsageError, nearest
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..framework.pipeline import Pipeline
from .fix_shapes import FixShapes, named_numbers

_BOOLEANS = {"false": "0", "true": "1"}


@dataclass(frozen=True)
class FixInputs(Pass):
    """Lets all that reads an input read a number instead.

    ``fold-constants`` takes the branches that it chooses then. The input stays part of the interface, so
    callers need no change; what they feed there has no effect from then on. Data need not have it. Only an
    input of one number can have a value; a free length that ``fix-shapes`` makes 1 before is one.
    """

    name = "fix-inputs"
    stage = Stage.FLOAT

    values: tuple[str, ...] = option((), "values of inputs, such as sr=16000")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.as_numbers()

    def as_numbers(self) -> dict[str, float]:
        """The values by the name of the input; raises UsageError for text that is none."""
        return named_numbers(self.name, map(_parsed, self.values))

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        for name, number in self.as_numbers().items():
            given = _input(model, name)
            if not given.is_read:
                continue
            with rewriter.action("fix input", given, f"it is {number:g} from now on"):
                constant = rewriter.add_constant(model.graph, _as_its_type(given, number), f"{name}_fixed")
                rewriter.replace_uses(given, constant)


def with_fixed_interface(pipeline: Pipeline, lengths: Sequence[str], values: Sequence[str]) -> Pipeline:
    """The pipeline, which fixes lengths and values before all else, once."""
    # Lengths come first: an input of a free length may be one of one number then.
    wanted: list[Pass] = [FixShapes(lengths=tuple(lengths))] if lengths else []
    wanted += [FixInputs(values=tuple(values))] if values else []
    missing = [one for one in wanted if one not in pipeline.steps]
    return Pipeline((*missing, *pipeline.steps)) if missing else pipeline


def fixed_values(passes: Iterable[Pass]) -> dict[str, float]:
    """The values that passes give to inputs, by name."""
    steps = [step for step in passes if isinstance(step, FixInputs)]
    return {name: number for step in steps for name, number in step.as_numbers().items()}


def _parsed(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        found = float(_BOOLEANS.get(number.lower(), number))
    except ValueError:
        found = math.nan
    if not name or not math.isfinite(found):
        form = "NAME=NUMBER, with a finite number, and 0 or 1 for false or true"
        raise UsageError(f"fix-inputs: '{text}' is not of the form {form}")
    return name, found


def _input(model: Model, name: str) -> Value:
    names = [value.name for value in model.graph.inputs]
    if name not in names:
        listed = ", ".join(names) or "none"
        said = f"fix-inputs names '{name}', which is no input{nearest(name, names)}"
        raise UsageError(f"{said}; inputs: {listed}")
    return model.graph.inputs[names.index(name)]


def _as_its_type(value: Value, number: float) -> np.ndarray:
    type = value.type
    if type.shape is None or not type.elem_type or any(size != 1 for size in type.shape):
        raise UsageError(f"fix-inputs: '{value.name}' is {type}; only an input of one number can be fixed")
    array = np.full([1] * len(type.shape), number).astype(helper.tensor_dtype_to_np_dtype(type.elem_type))
    if float(array.item()) != number:
        raise UsageError(f"fix-inputs: {number:g} is no number for '{value.name}', which is {type}")
    return array
