"""Random edits of a small model that has all that the rewriter and the table of quantizers look after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto

from qc.ir import lift
from qc.ir.analysis import CONSTANTS, QUANT, STRUCTURE, TYPES
from qc.ir.errors import UsageError
from qc.ir.graph import Graph, Op, Use, Value
from qc.ir.model import Model
from qc.ir.port_graph import CycleError
from qc.ir.quant.spec import Encoding, Quantizer, QuantSpec
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType

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
SPECS = (SPEC, QuantSpec.of("int8", symmetric=True), QuantSpec.of("uint4"))


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
    op = named(model, name).producer
    assert op is not None
    return op


def aspects_of(model: Model) -> dict[str, object]:
    """All that a model holds, by the aspect whose epoch tells of a change."""
    graphs = list(model.graphs())
    values = [value for graph in graphs for value in graph.values()]
    table = model.quant
    return {
        STRUCTURE: (
            [(sorted(map(str, graph.nx.edges(keys=True))), graph.inputs, graph.outputs) for graph in graphs],
            [(op.id, op.name, dict(op.attributes), op.num_inputs) for graph in graphs for op in graph.ops()],
            [(value.id, value.name, value.captured) for value in values],
            model.opset_imports,
            list(model.regions),
        ),
        TYPES: [(value.id, value.type) for value in values],
        CONSTANTS: [(v.id, v.const.proto.SerializeToString()) for v in values if v.const is not None],
        QUANT: (
            [(site, table.get(site)) for site in table.sites()],
            [(q.id, q.spec, q.encoding, q.state, id(q.codes), table.sites_of(q)) for q in table.quantizers()],
            [(value, table.sites_on(value)) for value in values if table.touches(value)],
            [(value, table.why_not(value)) for value in values if table.why_not(value) is not None],
            table.scheme,
        ),
    }


class Refused(Exception):
    """An edit that makes no sense for what was drawn."""


class Random:
    """Random edits, drawn from hypothesis; those that the rewriter refuses are left out.

    Only what leaves a valid model valid is drawn for ``valid``.
    """

    def __init__(
        self, model: Model, rewriter: Rewriter, draw: Callable[..., Any], valid: bool = False
    ) -> None:
        self.model = model
        self.rewriter = rewriter
        self.draw = draw
        self.valid = valid
        self.graph: Graph = draw(st.sampled_from(list(model.graphs())))

    def one_of(self, found: list[Any]) -> Any:
        if not found:
            raise Refused
        return self.draw(st.sampled_from(found))

    def value(self, before: Op | None = None) -> Value:
        """Any value; in a model that stays valid a float, which ``before`` does not come from."""
        found = self.graph.values()
        if self.valid:
            ops = self.graph.ops()
            later = set(ops[ops.index(before) :]) if before is not None else set()
            found = [v for v in found if v.is_float and v.producer not in later]
            found = [v for v in found if v.captured is not None or v.const is not None or self.is_made(v)]
        picked: Value = self.one_of(found)
        return picked

    def is_made(self, value: Value) -> bool:
        return value.is_input or value.producer is not None

    def op(self) -> Op:
        found: Op = self.one_of(self.graph.ops())
        return found

    def quantizer(self) -> Quantizer:
        found: Quantizer = self.one_of(self.model.quant.quantizers())
        return found

    def edit(self) -> None:
        kinds = sorted({name for kind in type(self).__mro__ for name in vars(kind) if name[:5] == "edit_"})
        getattr(self, self.draw(st.sampled_from(kinds)))()

    # -- of the graph -------------------------------------------------------------------------------

    def edit_add_value(self) -> None:
        self.rewriter.add_value(self.graph, "a", ValueType(TensorProto.FLOAT, (2,)))

    def edit_add_constant(self) -> None:
        self.rewriter.add_constant(self.graph, np.ones(2, np.float32), "w")

    def edit_set_constant(self) -> None:
        values = [value for value in self.graph.values() if value.const is not None]
        self.rewriter.set_constant(self.one_of(values), np.full(2, 7, np.float32))

    def edit_add_defaults(self) -> None:
        given = self.rewriter.add_constant(self.graph, np.ones(2, np.float32), "given")
        if self.graph.parent is None:
            self.rewriter.add_defaults(self.graph, [given])

    def edit_add_op(self) -> None:
        # Of a domain of its own, as the verifier knows which attributes an operator of ONNX has.
        given = [self.value(), None, self.value()]
        op = self.rewriter.add_op(self.graph, "Sum", given, ["sum"], {"k": 1}, "made")
        result = op.outputs[0]
        assert result is not None
        self.rewriter.set_type(result, ValueType(TensorProto.FLOAT, (2,)))

    def edit_set_input(self) -> None:
        op = self.op()
        port = self.draw(st.integers(0, max(0, op.num_inputs - 1) if self.valid else 3))
        value = self.value(op)
        self.rewriter.set_input(op, port, self.draw(st.sampled_from([None, value])))

    def edit_replace_uses(self) -> None:
        odd, old = self.draw(st.booleans()), self.value()
        readers = [use.op for use in old.uses]
        first = min(readers, key=self.graph.ops().index) if readers and self.valid else None
        new = self.value(first or old.producer)
        outputs = self.draw(st.booleans())
        if self.valid and not self.may_be_swapped(old, new):
            outputs = False

        def where(use: Use) -> bool:
            return not odd or use.op.id % 2 == 1

        self.rewriter.replace_uses(old, new, where=where, outputs=outputs)

    def may_be_swapped(self, old: Value, new: Value) -> bool:
        """An output keeps its name, which what captures or is given cannot do."""
        fixed = (new.is_input, new.captured, old.captured, new.is_output)
        return not any(fixed)

    def edit_erase_op(self) -> None:
        self.rewriter.erase_op(self.op())

    def edit_bypass(self) -> None:
        op = self.op()
        source, result = self.value(op), op.outputs[0]
        if result is None or (self.valid and not self.may_be_swapped(result, source)):
            raise Refused
        self.rewriter.replace_uses(result, source)
        self.rewriter.erase_op(op)

    def edit_drop_unread(self) -> None:
        self.rewriter.drop_unread(self.value())

    def edit_capture(self) -> None:
        owners = [op for op in self.graph.ops() if op.subgraphs]
        body = self.one_of([body for op in owners for body in op.subgraphs.values()])
        value = self.value(body.parent)
        inner = self.rewriter.capture(body, value)
        self.rewriter.set_input(self.one_of(body.ops()), 0, inner)

    def edit_set_attribute(self) -> None:
        self.rewriter.set_attribute(self.op(), "k", self.draw(st.sampled_from([None, 1, "word", [1.0]])))

    def edit_set_type(self) -> None:
        self.rewriter.set_type(self.value(), ValueType(TensorProto.FLOAT, self.one_of([None, (2,), (None,)])))

    def edit_swap_names(self) -> None:
        first, second = self.value(), self.value()
        if self.valid and (first.is_input or second.is_input):
            raise Refused
        self.rewriter.swap_names(first, second)

    def edit_rename(self) -> None:
        value = self.value()
        if value.captured is not None:
            raise Refused
        self.rewriter.rename(value, "b")

    def edit_set_opset(self) -> None:
        self.rewriter.set_opset(self.draw(st.sampled_from(["", "new"])), 5)

    # -- of the quantizers --------------------------------------------------------------------------

    def edit_place(self) -> None:
        site = self.one_of([Site(self.value()), *self.uses()])
        held = self.draw(st.booleans())
        quantizer = self.quantizer() if held else self.one_of(list(SPECS))
        self.model.quant.place(site, quantizer, "at random")

    def uses(self) -> list[Site]:
        """The readings of floats."""
        read = [(op, port, v) for op in self.graph.ops() for port, v in enumerate(op.inputs)]
        return [Site(value, op, port) for op, port, value in read if value is not None and value.is_float]

    def edit_remove(self) -> None:
        self.model.quant.remove(self.one_of(self.model.quant.sites()), "at random")

    def edit_skip(self) -> None:
        self.model.quant.skip(self.value(), "at random")

    def edit_tie(self) -> None:
        self.model.quant.tie(self.quantizer(), [self.quantizer(), self.quantizer()], "at random")

    def edit_respec(self) -> None:
        self.model.quant.respec(self.quantizer(), self.one_of(list(SPECS)), "at random")

    def edit_calibrate(self) -> None:
        quantizer = self.quantizer()
        scale = self.draw(st.sampled_from([0.5, 0.25]))
        encoding = Encoding(quantizer.spec, np.asarray(scale), np.asarray(0))
        self.model.quant.calibrate(quantizer, encoding, "at random")

    def edit_choose_codes(self) -> None:
        constants = [site for site in self.model.quant.sites() if site.value.original.const is not None]
        quantizer = self.model.quant.get(self.one_of(constants))
        assert quantizer is not None
        self.model.quant.choose_codes(
            quantizer, self.one_of([np.zeros(2, int), np.ones(2, int)]), "at random"
        )

    def edit_freeze(self) -> None:
        self.model.quant.freeze(self.quantizer())

    def edit_thaw(self) -> None:
        self.model.quant.thaw(self.quantizer(), "at random")

    def edit_reopen(self) -> None:
        self.model.quant.reopen(self.quantizer(), "at random")

    def edit_drop_open(self) -> None:
        self.model.quant.drop_open()

    def edit_scheme(self) -> None:
        self.model.quant.scheme = self.draw(st.sampled_from(["", "tf"]))


def random_edits(
    model: Model, rewriter: Rewriter, draw: Callable[..., Any], count: int, valid: bool = False
) -> int:
    """Tries so many edits within an open action or trial, and tells how many were done.

    An edit that is refused half-way is taken back, so that those after it start from a whole model.
    """
    done = 0
    for _ in range(count):
        try:
            with model.transaction.atomic():
                Random(model, rewriter, draw, valid).edit()
            done += 1
        except REFUSALS:
            continue
    return done


# What tells that a random edit made no sense; anything else is a defect.
REFUSALS = (Refused, ValueError, UsageError, CycleError)
