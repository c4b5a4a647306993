"""Computes what depends on constants alone, once, with the runtime that would compute it at every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from onnx import ModelProto

from qc.ir.graph import Graph, Op, Value
from qc.ir.lower import FREE_INITIALIZERS, lower_ops
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ..base import Pass, Stage, option
from ..context import PassContext

_RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
}
# The attributes of Constant that hold a scalar or a list, with the type that they make.
_NUMBERS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}
_KEPT = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replaces ops whose inputs are all constant by their result, and Constant ops by initializers.

    Quantize and dequantize ops, random ops, and ops with subgraphs stay. The executor computes the results,
    so they are those of the runtime. An input with a default, which a caller could override, is taken as a
    constant and stops being an input.
    """

    name = "fold-constants"
    stage = Stage.FLOAT
    needs = frozenset({"executor"})

    max_megabytes: Annotated[float, Ge(0)] = option(
        64.0, "leave an op alone whose results are larger than this together"
    )

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        _fix_defaults(rewriter, model)
        for graph in model.graph.walk():  # not function bodies, which have no initializers
            for op in graph.ops():
                if op.is_type("Constant"):
                    _lift_constant(rewriter, graph, op)
        self._fold(rewriter, model.graph, context)

    def _fold(self, rewriter: Rewriter, graph: Graph, context: PassContext) -> None:
        foldable = _constant_ops(graph)
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
        results = _compute(context, proto, graph.model)
        limit = self.max_megabytes * 1e6
        for op in reversed(list(foldable)):
            outputs = [value for value in graph.op_outputs(op) if value is not None]
            wanted = [value for value in outputs if graph.uses(value) or graph.is_output(value)]
            arrays = [results.get(value.name) for value in wanted]
            if (
                all(isinstance(array, np.ndarray) for array in arrays)  # a sequence is no initializer
                and sum(array.nbytes for array in arrays if array is not None) <= limit
            ):
                _replace(rewriter, graph, op, {value: results[value.name] for value in wanted})


def _fix_defaults(rewriter: Rewriter, model: Model) -> None:
    if model.origin.ir_version < FREE_INITIALIZERS:
        return  # there every constant is listed as an input, and none can be overridden
    for value in [value for value in model.graph.inputs if value.const is not None]:
        with rewriter.action("default to constant", value):
            rewriter.fix_default(value)


def _lift_constant(rewriter: Rewriter, graph: Graph, op: Op) -> None:
    result = graph.op_outputs(op)[0]
    data = _data(op)
    if result is None or data is None or graph.is_output(result):
        return
    with rewriter.action("constant to initializer", op):
        const = rewriter.add_constant(graph, data, result.name)
        rewriter.replace_uses(result, const)
        rewriter.swap_names(result, const)
        rewriter.erase_op(op)


def _data(op: Op) -> TensorRef | np.ndarray | None:
    """The data of a Constant op; None for a sparse tensor."""
    tensor = op.attribute("value")
    if tensor is not None:
        return TensorRef(tensor, op.graph.model.base_dir)
    for name, dtype in _NUMBERS.items():
        numbers = op.attribute(name)
        if numbers is not None:
            return np.asarray(numbers, dtype)
    return None


def _constant_ops(graph: Graph) -> dict[Op, None]:
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
    if value.const is not None:
        return True
    producer = graph.producer(value)
    return producer is not None and producer in found


def _compute(context: PassContext, proto: ModelProto, model: Model) -> dict[str, np.ndarray]:
    return next(iter(context.required_executor().run(proto, [{}], base_dir=model.base_dir)))


def _replace(rewriter: Rewriter, graph: Graph, op: Op, results: dict[Value, np.ndarray]) -> None:
    if any(graph.is_output(value) for value in results):
        return
    with rewriter.action("fold", op):
        for value, array in results.items():
            const = rewriter.add_constant(graph, array, value.name)
            rewriter.replace_uses(value, const)
            rewriter.swap_names(value, const)
        rewriter.erase_op(op)
