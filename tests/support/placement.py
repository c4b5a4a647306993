"""Looking up the quantizers of a small model."""

from __future__ import annotations

from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.spec import PerChannel, Quantizer

from .models import parse
from .pipelines import PLACE, apply


def placed(text: str, target: str = "ort-cpu", pipeline: str = PLACE) -> Model:
    """The model of a text after the passes that place quantizers."""
    return apply(pipeline, parse(text), target)[0]


def value(model: Model, name: str) -> Value:
    """The value of that name, of the first graph that has one."""
    values = (value for graph in model.graphs() for value in graph.values() if value.captured is None)
    found = next((value for value in values if value.name == name), None)
    assert found is not None, name
    return found


def op(model: Model, name: str) -> Op:
    """The op that makes the value of that name."""
    made = value(model, name)
    found = made.producer
    assert found is not None
    return found


def of_value(model: Model, name: str) -> Quantizer | None:
    """The quantizer that all readers of a value see."""
    return model.quant.of_value(value(model, name))


def of_weight(model: Model, result: str, port: int = 1) -> Quantizer | None:
    """The quantizer that an input of the op that makes ``result`` sees."""
    reader = op(model, result)
    read = reader.inputs[port]
    assert read is not None
    return model.quant.of_use(read, reader, port)


def axis(quantizer: Quantizer | None) -> int | None:
    """The channel axis; None for one scale per tensor."""
    assert quantizer is not None
    granularity = quantizer.spec.granularity
    return granularity.axis if isinstance(granularity, PerChannel) else None


def reason(model: Model, name: str) -> str:
    """Why a value was left in float."""
    assert not model.quant.sites_on(value(model, name))
    why = model.quant.why_not(value(model, name))
    assert why is not None, f"'{name}' is left in float without a word"
    return why
