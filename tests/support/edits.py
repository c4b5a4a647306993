"""Random edits of a small model that has all that the rewriter must look after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto

from qc.ir import lift
from qc.ir.graph import Graph, Op, Value, ValueType
from qc.ir.model import Model
from qc.ir.quant.spec import QuantSpec
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter

from .models import parse

MODEL = """g (float[2] x, bool c, float[2] d) => (float[2] y, float[2] a, float[2] z)
<float[2] w = {1, 2}, float[2] v = {3, 4}, float[2] d = {5, 6}> {
    a = Add(x, w)
    b = Mul(a, v)
    e = Identity(b)
    y = If(c) <
        then_branch = t () => (float[2] r) { k = Neg(e) r = Add(k, w) },
        else_branch = e () => (float[2] u) { u = Abs(x) }
    >
    z = Add(e, d)
}"""
SPEC = QuantSpec.of("uint8")


def sample() -> Model:
    """A model with a subgraph, shared constants, a default input, exposed values and quantizers."""
    model = lift(parse(MODEL))
    for name in ("b", "e", "x"):
        model.quant.place(Site(named(model, name)), SPEC, "for the test")
    add = producer(model, "z")
    model.quant.place(Site(named(model, "d"), add, 1), SPEC, "for the test")
    model.quant.tie(model.quant.quantizers()[0], [model.quant.quantizers()[2]], "for the test")
    return model


def named(model: Model, name: str) -> Value:
    """The value of that name in the main graph."""
    value = model.graph.value_named(name)
    assert value is not None
    return value


def producer(model: Model, name: str) -> Op:
    """The op of the main graph that makes the value of that name."""
    op = model.graph.producer(named(model, name))
    assert op is not None
    return op


class Random:
    """Random edits, drawn from hypothesis; those that the rewriter refuses are left out."""

    def __init__(self, model: Model, rewriter: Rewriter, draw: Callable[..., Any]) -> None:
        self.rewriter = rewriter
        self.draw = draw
        self.graph: Graph = draw(st.sampled_from(list(model.graphs())))

    def value(self) -> Value:
        found: Value = self.draw(st.sampled_from(self.graph.values()))
        return found

    def op(self) -> Op:
        found: Op = self.draw(st.sampled_from(self.graph.ops()))
        return found

    def edit(self) -> None:
        kinds = [name for name in vars(type(self)) if name.startswith("edit_")]
        getattr(self, self.draw(st.sampled_from(kinds)))()

    def edit_add_value(self) -> None:
        self.rewriter.add_value(self.graph, "a", ValueType(TensorProto.FLOAT, (2,)))

    def edit_add_constant(self) -> None:
        self.rewriter.add_constant(self.graph, np.ones(2, np.float32), "w")

    def edit_add_defaults(self) -> None:
        given = self.rewriter.add_constant(self.graph, np.ones(2, np.float32), "given")
        self.rewriter.add_defaults(self.graph, [given])

    def edit_add_op(self) -> None:
        self.rewriter.add_op(self.graph, "Sum", [self.value(), None, self.value()], ["sum"], {"k": 1})

    def edit_set_input(self) -> None:
        port = self.draw(st.integers(0, 3))
        self.rewriter.set_input(self.op(), port, self.draw(st.sampled_from([None, self.value()])))

    def edit_replace_uses(self) -> None:
        odd = self.draw(st.booleans())
        self.rewriter.replace_uses(
            self.value(),
            self.value(),
            where=lambda use: not odd or use.op.id % 2 == 1,
            outputs=self.draw(st.booleans()),
        )

    def edit_erase_op(self) -> None:
        self.rewriter.erase_op(self.op())

    def edit_drop_unread_constant(self) -> None:
        self.rewriter.drop_unread_constant(self.value())

    def edit_set_attribute(self) -> None:
        self.rewriter.set_attribute(self.op(), "k", self.draw(st.sampled_from([None, 1, "word", [1.0]])))

    def edit_set_type(self) -> None:
        self.rewriter.set_type(self.value(), ValueType())

    def edit_swap_names(self) -> None:
        self.rewriter.swap_names(self.value(), self.value())

    def edit_set_opset(self) -> None:
        self.rewriter.set_opset(self.draw(st.sampled_from(["", "new"])), 5)


def random_edits(model: Model, rewriter: Rewriter, draw: Callable[..., Any], count: int) -> int:
    """Tries so many edits within an open action or trial, and tells how many were done."""
    done = 0
    for _ in range(count):
        try:
            Random(model, rewriter, draw).edit()
            done += 1
        except Exception:  # refused, as the edits are random; what was done of it must be undone as well
            continue
    return done
