"""Stores constants that are equal once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from qc.ir.facts.equal_constants import share_constants
from qc.ir.facts.op_traits import channel_axis, weight_port
from qc.ir.facts.scopes import scopes_of
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext


@dataclass(frozen=True)
class ShareConstants(Pass):
    """Makes one constant of all that have the same type, shape and bits, in bodies of If, Loop and Scan too.

    The first one keeps its name; a body captures it from the graph around. Exporters store weights that
    layers share once for each layer, and folding computes the same constant in each branch of an If. Weights
    that ops read along different axes stay apart, since one scale for each output channel fits only one of
    them. A default that a caller may override is no constant, and stays as it is.
    """

    name = "share-constants"
    stage = Stage.FLOAT

    least_bytes: Annotated[int, Ge(0)] = option(
        256, "leave smaller constants alone: shape inference and runtimes look for them where they are read"
    )

    def run(self, model: Model, context: PassContext) -> None:
        scopes = scopes_of(model.graph)
        by_axes: dict[frozenset[int | None], list[Value]] = {}
        for value in self._constants(model):
            uses = [use for use in scopes.uses(value) if use.port == weight_port(use.op)]
            axes = frozenset(channel_axis(use.op, value) for use in uses)
            by_axes.setdefault(axes, []).append(value)
        for constants in by_axes.values():
            share_constants(Rewriter(model), constants)

    def _constants(self, model: Model) -> Iterator[Value]:
        for graph in model.graph.walk():  # not function bodies, which have no initializers
            for value in graph.values():
                if value.const is not None and value.const.nbytes >= self.least_bytes:
                    yield value
