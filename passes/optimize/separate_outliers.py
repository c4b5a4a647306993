"""Multiplies the few channels of an activation that are far larger than all others by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le

from qc.ir.executor import Observation
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..quantize.placement.outliers import mark_outliers, mark_probabilities
from .layers.layer import Layer, layers_of
from .layers.observed import observed_in_float


@dataclass(frozen=True)
class SeparateOutliers(Pass):
    """Multiplies the few channels of an activation that are far larger than all others by themselves.

    In transformers some channels of a few layers hold numbers tens of times as large as all others, and a
    grid for the tensor leaves those a few steps. A product is a sum over channels: here it becomes one over
    most of them, with zeros in place of the largest, plus one over the largest. The float model computes the
    same. On a target that computes in floats as well, the product over the largest does (as in LLM.int8(), T.
    Dettmers et al., 2022, which separates channels in each run); on others it has grids of its own.

    Separated are ``share`` of the channels in front of MatMul and Gemm, where the largest number of all then
    is at most ``1 / ratio`` of what it was. It costs that share of the multiplications, a product with zeros
    and ones, and a sum. ``smooth`` behind it finds less to do, and does less harm to weights. It helps where
    the target keeps the tensor float for what does not multiply it by weights, such as ``ort-cpu``.

    Probabilities of attention are such, too: a causal model gives nearly all to its first token, and the
    small rest is below a step of the grid. With ``probabilities`` a target that computes in floats as well
    multiplies what Softmax made so, as a whole.

    With ``floats_only``, as pipelines for all models have it, nothing is separated on a target that computes
    all in integers, nor where the data can be read only once, which is then for calibration.
    """

    name = "separate-outliers"
    stage = Stage.FLOAT
    needs = frozenset({"data", "executor"})
    uses = frozenset({"target"})
    idempotent = False  # among the channels that are left, others may be as large
    tolerance = 1e-5

    share: Annotated[float, Gt(0), Le(0.5)] = option(0.01, "how many channels are separated, at most")
    ratio: Annotated[float, Gt(1)] = option(4.0, "by how much the largest number must become smaller")
    samples: Annotated[int, Ge(1)] = option(32, "how many of the samples to look at, at most")
    probabilities: bool = option(
        False, "multiply data by what Softmax made in float, also where the target does not ask for it"
    )
    floats_only: bool = option(False, "leave targets alone that compute all in integers")

    def run(self, model: Model, context: PassContext) -> None:
        if self.floats_only and not (context.has_floats and context.can_read_again):
            return
        if self.probabilities:
            mark_probabilities(model)
        readers = _readers(model, self.share)
        if not readers:
            return
        feeds = context.samples(self.samples, f"pass '{self.name}'")
        asked = {data: (data, Observation("range", layers[0].input_axis)) for data, layers in readers.items()}
        found = observed_in_float(model, asked.values(), feeds, context.required_executor())
        rewriter = Rewriter(model)
        for data, layers in readers.items():
            ranges = found[asked[data]]
            largest = np.maximum(np.abs(ranges.minimum), np.abs(ranges.maximum)).reshape(-1)
            order = np.argsort(-largest, kind="stable")
            count = int(self.share * largest.size)
            left = largest[order[count]]
            if largest[order[0]] < self.ratio * left or not left:
                continue
            reason = (
                f"separate outliers: {count} of {largest.size} channels reach {largest[order[0]]:.3g}, the "
                f"others {left:.3g}"
            )
            with rewriter.action(reason, data):
                _separate(rewriter, data, layers, np.sort(order[:count]))


def _readers(model: Model, share: float) -> dict[Value, list[Layer]]:
    """The layers that read a tensor, of all tensors that have enough channels."""
    found: dict[Value, list[Layer]] = {}
    for layer in layers_of(model):
        axis = len(layer.result.type.shape or ()) - 1
        fits = layer.op.is_type("MatMul", "Gemm") and layer.input_axis == axis and layer.data.const is None
        if fits and not layer.result.is_output and int(share * layer.matrix.shape[2]):
            found.setdefault(layer.data, []).append(layer)
    return found


def _separate(rewriter: Rewriter, data: Value, layers: Sequence[Layer], outliers: np.ndarray) -> None:
    """Lets layers read data with zeros for some channels, and adds products of these channels."""
    graph, axis, first = data.graph, layers[0].input_axis, layers[0].matrix
    others = np.ones(first.shape[2], first.dtype)
    others[outliers] = 0
    mask = rewriter.add_constant(graph, others, f"{data.name}_others")
    masked = rewriter.add_value(graph, f"{data.name}_without_outliers", data.type)
    rewriter.add_op(graph, "Mul", [data, mask], [masked])
    indices = rewriter.add_constant(graph, outliers.astype(np.int64), f"{data.name}_outlier_channels")
    known = data.type.shape
    shape = None if known is None else (*known[:-1], outliers.size)
    gathered = rewriter.add_value(graph, f"{data.name}_outliers", data.type._replace(shape=shape))
    rewriter.add_op(graph, "Gather", [data, indices], [gathered], attributes={"axis": axis})
    mark_outliers(rewriter.model, data, gathered)
    for layer in layers:
        result, matrix = layer.result, layer.matrix
        columns = np.ascontiguousarray((layer.gain * matrix[0][:, outliers]).T.astype(matrix.dtype))
        rest = matrix.copy()
        rest[:, :, outliers] = 0
        layer.with_matrix(rewriter, rest)
        rewriter.set_input(layer.op, 0, masked)
        weight = rewriter.add_constant(graph, columns, f"{result.name}_outlier_weight")
        product = rewriter.add_value(graph, f"{result.name}_of_outliers", result.type)
        rewriter.add_op(graph, "MatMul", [gathered, weight], [product])
        total = rewriter.add_value(graph, f"{result.name}_with_outliers", result.type)
        rewriter.replace_uses(result, total)
        rewriter.add_op(graph, "Add", [result, product], [total])
