"""Computes what depends on constants alone, once, with the runtime that would compute it at every run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge
from onnx import ModelProto

from qc.ir.analysis import CONSTANTS, STRUCTURE, analysis
from qc.ir.facts.constants import is_default
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower_ops
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from .constants.initializers import initializer_data, make_initializer

_RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
}
_KEPT = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replaces ops whose inputs are all constant by their result, and Constant ops by initializers.

    The bodies of If, Loop and Scan are folded too, also where they read a constant of a graph around them.

    Quantize and dequantize ops, random ops, and ops with subgraphs stay. The executor computes the results,
    so they are those of the runtime. An input with a default, which a caller could override, is taken as a
    constant and stops being an input.
    """

    name = "fold-constants"
    stage = Stage.FLOAT
    needs = frozenset({"executor"})
    tolerance = 1e-6  # the runtime may compute a part in another order than the whole

    max_megabytes: Annotated[float, Ge(0)] = option(
        64.0, "leave an op alone whose results are larger than this together"
    )

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        _fix_defaults(rewriter, model)
        for graph in model.graph.walk():  # not function bodies, which have no initializers
            for op in graph.ops():
                if op.is_type("Constant"):
                    _lift_constant(rewriter, op)
        narrow = _narrow_storage(model)
        for graph in model.graph.walk():  # outer before inner, which reads what was folded there
            self._fold(rewriter, graph, context, narrow)

    def _fold(self, rewriter: Rewriter, graph: Graph, context: PassContext, narrow: int) -> None:
        foldable = constant_ops(graph)
        frontier = [
            value
            for op in foldable
            for value in graph.op_outputs(op)
            if value is not None
            and (graph.is_output(value) or any(u.op not in foldable for u in graph.uses(value)))
        ]
        if not frontier:
            return
        proto = lower_ops(graph, list(foldable), frontier)
        results = _compute(context, proto, graph.model.base_dir)
        limit = self.max_megabytes * 1e6
        for op in reversed(list(foldable)):
            outputs = [value for value in graph.op_outputs(op) if value is not None]
            wanted = [value for value in outputs if graph.is_read(value)]
            arrays = [results.get(value.name) for value in wanted]
            if (
                all(isinstance(array, np.ndarray) for array in arrays)  # a sequence is no initializer
                and sum(array.nbytes for array in arrays if array is not None) <= limit
            ):
                _replace(rewriter, graph, op, {value: results[value.name] for value in wanted}, narrow)


def _fix_defaults(rewriter: Rewriter, model: Model) -> None:
    for value in [value for value in model.graph.inputs if value.const is not None and is_default(value)]:
        with rewriter.action("default to constant", value):
            rewriter.fix_default(value)


def _lift_constant(rewriter: Rewriter, op: Op) -> None:
    data = initializer_data(op)
    if data is not None:
        with rewriter.action("constant to initializer", op):
            make_initializer(rewriter, op, data)


@analysis(STRUCTURE, CONSTANTS)
def constant_ops(graph: Graph) -> dict[Op, None]:
    """Ops that depend on nothing but constants, in topological order."""
    found: dict[Op, None] = {}
    for op in graph.ops():
        if op.subgraphs or op.domain or op.op_type in _RANDOM | _KEPT or not op.num_inputs:
            continue
        inputs = [value for value in graph.op_inputs(op) if value is not None]
        if inputs and all(_is_constant(graph, value, found) for value in inputs):
            found[op] = None
    return found


def _is_constant(graph: Graph, value: Value, found: dict[Op, None]) -> bool:
    if graph.constant(value) is not None:
        return True
    producer = graph.producer(value)
    return producer is not None and producer in found


def _compute(context: PassContext, proto: ModelProto, base_dir: Path | None) -> dict[str, np.ndarray]:
    return next(iter(context.required_executor().run(proto, [{}], base_dir=base_dir)))


def _replace(rewriter: Rewriter, graph: Graph, op: Op, results: dict[Value, np.ndarray], narrow: int) -> None:
    """Puts constants in the place of an op, stored as ``narrow`` where that holds their numbers."""
    if any(graph.is_output(value) for value in results):
        return
    with rewriter.action("fold", op):
        for value, array in results.items():
            data = TensorRef.from_array(array)
            if narrow and array.dtype == np.float32:
                data = data.stored_as(narrow)
            const = rewriter.add_constant(graph, data, value.name)
            rewriter.replace_uses(value, const)
            rewriter.swap_names(value, const)
        rewriter.erase_op(op)


def _narrow_storage(model: Model) -> int:
    """The type in which constants are stored that are read as another one; 0 if none or several are."""
    constants = (value.const for graph in model.graphs() for value in graph.values())
    found = {const.stored_type for const in constants if const is not None and const.is_converted}
    return found.pop() if len(found) == 1 else 0
