"""Queries, keys and values come from products of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qc.ir.graph import Graph
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .decompositions.builder import Builder, put_in_place
from .projections.packed import Packed, packed


@dataclass(frozen=True)
class SplitProjections(Pass):
    """Writes one product that makes queries, keys and values as one product for each.

    That is where the target asks for it (``split_projections``): a device that transposes heads within its
    kernel of attention does so behind products of their own, and moves what is cut out of a larger tensor
    before. Found is a MatMul by a constant, with its bias, whose result is only reshaped, transposed and cut
    into parts of length 1, by Split, Slice or Gather.
    """

    name = "split-projections"
    stage = Stage.FLOAT
    needs = frozenset({"target"})

    def run(self, model: Model, context: PassContext) -> None:
        wanted = context.required_target().models.split_projections
        rewriter = Rewriter(model)
        for graph in model.graph.walk() if wanted else ():
            for found in list(_all_packed(graph)):
                with rewriter.action("a product for each part", found.product):
                    _split(rewriter, found)


def _all_packed(graph: Graph) -> Iterator[Packed]:
    for op in graph.ops():
        found = packed(op) if op.is_type("MatMul") else None
        if found is not None:
            yield found


def _split(rewriter: Rewriter, found: Packed) -> None:
    build, result = Builder(rewriter, found.product), found.product.outputs[0]
    whole = result.type.shape if result is not None else None
    shape = (*whole[:-1], found.weight.shape[1] // found.count) if whole is not None else None
    data = found.data
    for cut, place in found.cuts.items():
        weight = build.constant(found.part(found.weight, place), "weight")
        made = build.op("MatMul", data, weight, shape=shape)
        if found.bias is not None:
            made = build.op("Add", made, build.constant(found.part(found.bias, place), "bias"), shape=shape)
        wanted = build.constant(np.delete(found.lengths, found.axis), "shape")
        heads = build.op("Reshape", made, wanted, shape=found.heads_shape)
        put_in_place(rewriter, cut, build.op("Transpose", heads, shape=cut.type.shape, perm=found.order))
    constants = [value for op in found.ops for value in op.inputs if value is not None]
    for op in reversed(found.ops):
        rewriter.erase_op(op)
    for value in dict.fromkeys(one for one in constants if one.const is not None):
        rewriter.drop_unread(value)
