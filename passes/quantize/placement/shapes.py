"""The shapes that costs are estimated from; free dimensions get a length."""

from __future__ import annotations

from collections.abc import Mapping

from qc.ir.errors import QcError
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.onnx.types import inferred
from qc.ir.value_type import KnownShape, Shape

from ...framework.context import PassContext
from .work import ShapeOf


def estimated_shapes(model: Model, context: PassContext, free_length: int) -> ShapeOf:
    """The shapes of tensors: as declared, and where dimensions are free as they are on the first sample.

    The first dimension of an input counts as 1 where it alone is free, as batches usually are, and all shapes
    follow from it. Without data others count as ``free_length``. Inside bodies a dimension has the length of
    one of the same name outside, and a first one counts as 1 where it alone is left; other shapes with free
    dimensions are not known there.
    """
    free = [
        value.name for value in model.graph.values() if value.is_float and _whole(value.type.shape) is None
    ]
    assumed: Mapping[str, KnownShape] = {}
    if free:
        assumed = _with_free_dimensions(model, free_length)
        given = [value for value in model.graph.inputs if value.const is None]
        if not all(map(_has_free_batch_alone, given)) or any(name not in assumed for name in free):
            assumed = _on_first_sample(model, context, free) or assumed
    named = _named_lengths(model, assumed)

    def shape_of(value: Value | None) -> KnownShape | None:
        if value is None:
            return None
        original = value.original
        given = original.const.shape if original.const is not None else _whole(original.type.shape)
        if given is None and original.graph is model.graph:
            given = assumed.get(original.name)
        elif given is None and original.type.shape:
            first, *others = (named.get(length, length) for length in original.type.shape)
            given = _whole((first if isinstance(first, int) else 1, *others))
        return given

    return shape_of


def _named_lengths(model: Model, assumed: Mapping[str, KnownShape]) -> dict[int | str | None, int]:
    """The lengths that free dimensions of the main graph have by their names."""
    shapes = [(value.type.shape or (), assumed.get(value.name, ())) for value in model.graph.values()]
    pairs = [pair for names, lengths in shapes for pair in zip(names, lengths, strict=False)]
    return {name: length for name, length in pairs if isinstance(name, str)}


def _whole(shape: Shape | None) -> KnownShape | None:
    if shape is None:
        return None
    lengths = tuple(length for length in shape if isinstance(length, int) and length >= 0)
    return lengths if len(lengths) == len(shape) else None


def _has_free_batch_alone(value: Value) -> bool:
    return value.type.shape is not None and _whole(value.type.shape[1:]) is not None


def _on_first_sample(model: Model, context: PassContext, names: list[str]) -> Mapping[str, KnownShape]:
    if context.executor is None or context.data is None:
        return {}
    try:
        return context.executor.shapes(lower(model), names, context.data, base_dir=model.base_dir)
    except QcError:  # the calibration behind tells what is wrong with the data, or the model
        return {}


def _with_free_dimensions(model: Model, free_length: int) -> dict[str, KnownShape]:
    sized = lower(model)
    for info in sized.graph.input:
        for index, length in enumerate(info.type.tensor_type.shape.dim):
            if not length.HasField("dim_value") or length.dim_value < 0:
                length.dim_value = free_length if index else 1
    for info in sized.graph.output:
        info.type.tensor_type.ClearField("shape")
    del sized.graph.value_info[:]
    shapes = {name: _whole(type.shape) for name, type in inferred(sized).known.items()}
    return {name: shape for name, shape in shapes.items() if shape is not None}
