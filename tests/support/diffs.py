"""What differs between two models, in words, and models with other names."""

from __future__ import annotations

from onnx import AttributeProto, GraphProto, ModelProto

from qc.diff import ModelDiff, diff_models
from qc.ir import lift

from .models import parse

CHAIN = """
g (float[1,2,4,4] x) => (float[1,2,4,4] y)
<float[2,2,1,1] w, float[2,2,1,1] v> {
    a = Conv(x, w)
    b = Relu(a)
    c = Conv(b, v)
    y = Add(c, x)
}
"""


def diff(a: str | ModelProto, b: str | ModelProto) -> ModelDiff:
    """The comparison of two models, or of their texts."""
    first, second = (lift(parse(one) if isinstance(one, str) else one) for one in (a, b))
    return diff_models(first, second)


def lines(found: ModelDiff, group: str) -> list[str]:
    """What a group says, line by line."""
    return [
        str(difference) for name, differences in found.groups() if name == group for difference in differences
    ]


def groups(found: ModelDiff) -> list[str]:
    """The groups that say something."""
    return [group for group, _ in found.groups()]


def rename(model: ModelProto) -> ModelProto:
    """The model with other names for everything but its inputs and outputs."""
    renamed = ModelProto()
    renamed.CopyFrom(model)
    names = {info.name: info.name for info in (*model.graph.input, *model.graph.output)} | {"": ""}
    _rename(renamed.graph, names)
    return renamed


def _rename(graph: GraphProto, names: dict[str, str]) -> None:
    def new(name: str) -> str:
        return names.setdefault(name, f"t{len(names) - 3}")

    for node in graph.node:
        node.name = ""
        node.output[:] = [new(name) for name in node.output]
        node.input[:] = [new(name) for name in node.input]
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _rename(attribute.g, names)
    for tensor in (*graph.initializer, *graph.value_info):
        tensor.name = new(tensor.name)
