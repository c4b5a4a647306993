"""Gives free dimensions a length, for devices that take none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from onnx import ModelProto, ValueInfoProto

from qc.ir.base.fix_shape import free_axes, named_length
from qc.ir.errors import UsageError, nearest
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.onnx.protos import walk_graphs, without_weights
from qc.ir.onnx.types import dimension
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from .constants.shapes import first_misfit, take_inferred_shapes

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class FixShapes(Pass):
    """Gives free dimensions of the inputs a length, and every tensor the shape that follows.

    A length is for all dimensions of a name, as in ``N=1``; one without a name is ``input[axis]``, as in
    ``x[0]=1``. That of one whose name is a sum of others, as ``past + N``, follows from theirs. Data must
    have these lengths from then on. What shapes alone decide is constant then, and ``fold-constants``
    computes it.
    """

    name = "fix-shapes"
    stage = Stage.FLOAT

    lengths: tuple[str, ...] = option((), "lengths of free dimensions, such as N=1 or 'x[0]=1'")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.as_numbers()

    def as_numbers(self) -> dict[str, int]:
        """The lengths by the name of the dimension; raises UsageError for text that is none."""
        return named_numbers(self.name, map(_parsed, self.lengths))

    def run(self, model: Model, context: PassContext) -> None:
        lengths = self.as_numbers()
        _refuse_unknown(model, lengths)
        lengths |= dict(_sums(model, lengths))
        free = [value for value in model.graph.inputs if not lengths.keys().isdisjoint(_free(value).values())]
        if not free:
            return
        _refuse_misfit(lower(model), lengths)
        rewriter = Rewriter(model)
        with rewriter.action("fix shapes", free[0]):
            for value in free:
                shape = value.type.shape or ()
                names = _free(value)
                fixed = tuple(lengths.get(names.get(axis, ""), size) for axis, size in enumerate(shape))
                rewriter.set_type(value, value.type._replace(shape=fixed))
            take_inferred_shapes(rewriter, model.graph, _with_lengths(lower(model), lengths))


def named_numbers(step: str, given: Iterable[tuple[str, Number]]) -> dict[str, Number]:
    """What was given by name to a pass; raises UsageError for two numbers that contradict each other."""
    found: dict[str, Number] = {}
    for name, number in given:
        if found.setdefault(name, number) != number:
            raise UsageError(f"{step}: '{name}' cannot be both {found[name]:.15g} and {number:.15g}")
    return found


def _parsed(text: str) -> tuple[str, int]:
    try:
        return named_length(text)
    except ValueError as error:
        raise UsageError(f"fix-shapes: {error}") from None


def _free(value: Value) -> dict[int, str]:
    return free_axes(value.name, value.type.shape or ())


def _declared_free(info: ValueInfoProto) -> dict[int, str]:
    return free_axes(info.name, map(dimension, info.type.tensor_type.shape.dim))


def _sums(model: Model, lengths: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The lengths of dimensions that are named as sums of those that are given, as exporters of caches do."""
    for name in sorted({name for value in model.graph.inputs for name in _free(value).values()}):
        parts = [part.strip() for part in name.split("+")]
        known = [lengths.get(part) or (int(part) if part.isdecimal() else None) for part in parts]
        found = [length for length in known if length is not None]
        if len(parts) > 1 and len(found) == len(parts) and name not in lengths:
            yield name, sum(found)


def _refuse_unknown(model: Model, lengths: Mapping[str, int]) -> None:
    known = [name for value in model.graph.inputs for name in _free(value).values()]
    before = {name for info in model.origin.graph.input for name in _declared_free(info).values()}
    for name in lengths:
        if name not in before and name not in known:
            listed = ", ".join(dict.fromkeys(known)) or "none"
            said = f"fix-shapes names '{name}', which no input has{nearest(name, known)}"
            raise UsageError(f"{said}; free dimensions: {listed}")


def _refuse_misfit(proto: ModelProto, lengths: Mapping[str, int]) -> None:
    """Raises UsageError for a length that an op cannot take, such as one below that of its window."""

    def misfit_without(freed: Collection[str]) -> str:
        fixed = without_weights(proto)
        for info in fixed.graph.input:
            for axis, name in _declared_free(info).items():
                if name in lengths and name not in freed:
                    info.type.tensor_type.shape.dim[axis].dim_value = lengths[name]
        return first_misfit(fixed)

    found = misfit_without(())
    if not found or misfit_without(lengths):  # what does not fit anyway is for the runtime to judge
        return
    at_fault = [name for name in lengths if not misfit_without([name])] or [*lengths]
    given = " and ".join(f"{name}={lengths[name]}" for name in at_fault)
    raise UsageError(f"--fix-shape {given} does not fit {found}; give another length")


def _with_lengths(proto: ModelProto, lengths: Mapping[str, int]) -> ModelProto:
    """The model with the lengths wherever the dimensions are named."""
    for graph in walk_graphs(proto.graph):
        for info in (*graph.input, *graph.output, *graph.value_info):
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_param in lengths:
                    dim.dim_value = lengths[dim.dim_param]
    return proto
