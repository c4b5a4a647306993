"""Passes with planted faults, for the tools that find faults. Installed by the fixture ``planted``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qc.ir.facts.scopes import tensors_by_name
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model
from qc.ir.quant.spec import Encoding
from qc.ir.rewriter import Rewriter
from qc.passes import Pass, PassContext, Stage, option


@dataclass(frozen=True)
class RenewRelu(Pass):
    """Puts a new Relu in the place of each, and does it wrong once."""

    name = "renew-relu"
    stage = Stage.FLOAT

    victim: str = option("", "name of the Relu that goes wrong")
    fault: Literal["miswire", "break", "crash"] = option("miswire", "what goes wrong there")

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        for op in [op for op in model.graph.ops() if op.is_type("Relu")]:
            with rewriter.action("renew", op):
                self._renew(rewriter, model.graph, op)

    def _renew(self, rewriter: Rewriter, graph: Graph, op: Op) -> None:
        source, result = op.inputs[0], op.outputs[0]
        assert source is not None and result is not None
        if op.name == self.victim and self.fault == "crash":
            raise LookupError("the planted crash")
        if op.name == self.victim and self.fault == "miswire":
            source = before(graph, source)
        made = rewriter.add_op(graph, "Relu", (source,), [result.name])
        new = made.outputs[0]
        assert new is not None
        rewriter.set_type(new, result.type)
        rewriter.replace_uses(result, new)
        rewriter.erase_op(op)
        if op.name == self.victim and self.fault == "break":
            new.name = source.name  # now two values have this name


@dataclass(frozen=True)
class RenameUnseen(Pass):
    """Renames a value and tells nobody."""

    name = "rename-unseen"
    stage = Stage.FLOAT

    def run(self, model: Model, context: PassContext) -> None:
        tensors_by_name(model)["r_3"].name = "renamed"


def before(graph: Graph, value: Value) -> Value:
    """What the op that makes ``value`` reads."""
    producer = value.producer
    assert producer is not None
    found = producer.inputs[0]
    assert found is not None
    return found


@dataclass(frozen=True)
class SpoilScale(Pass):
    """Multiplies the scale of one tensor."""

    name = "spoil-scale"
    stage = Stage.ANNOTATE

    tensor: str = option("", "name of the tensor")
    factor: float = option(10.0, "by which its scale is multiplied")

    def run(self, model: Model, context: PassContext) -> None:
        value = model.graph.value_named(self.tensor)
        quantizer = model.quant.of_value(value) if value is not None else None
        encoding = quantizer.encoding if quantizer is not None else None
        if quantizer is None or encoding is None:  # a limit left it without numbers
            return
        spoilt = Encoding(encoding.spec, encoding.scale * self.factor, encoding.zero_point)
        model.quant.calibrate(quantizer, spoilt, "spoilt")
