"""Casts beside the interface and the constants whose types are not those that a graph computes in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from ..graph import Value
from ..model import Model
from ..rewriter import Rewriter


@contextmanager
def in_stored_types(model: Model) -> Iterator[None]:
    """A block in which the interface of a model and its constants have the types they are declared in.

    A pass may give an input or output of the model another type than the model declares, and a constant
    another one than it is stored in. Inside the block Cast ops stand between; what is cast from a constant
    has its name. At the end all is as before.
    """
    given, made = _declared_types(model)
    constants = [
        value
        for graph in model.graphs()
        for value in graph.values()
        if value.const is not None and value.const.is_converted and value not in given
    ]
    if not (given or made or constants):
        yield
        return
    rewriter = Rewriter(model)
    with rewriter.trial():
        for value in constants:
            assert value.const is not None
            _cast_to_use(rewriter, value, value.const.stored_type, keeps_name=False)
        for value, elem_type in given.items():
            _cast_to_use(rewriter, value, elem_type, keeps_name=True)
        for value, elem_type in _declared_types(model)[1].items():  # a constant may have been replaced
            _cast_to_give(rewriter, value, elem_type)
        yield


def computed_names(model: Model, lowered: ModelProto) -> dict[str, str]:
    """The tensors of a lowered model that hold its interface in the types that the graph computes in.

    By the names of the inputs and outputs that the model declares with another type; no others are listed.
    """
    given, made = ({value.name for value in values} for values in _declared_types(model))
    found: dict[str, str] = {}
    for node in lowered.graph.node:
        if node.op_type == "Cast" and node.input[0] in given:
            found[node.input[0]] = node.output[0]
        if node.op_type == "Cast" and node.output[0] in made:
            found[node.output[0]] = node.input[0]
    return found


def fits(info: ValueInfoProto, value: Value) -> bool:
    """Whether a value has the element type that a declaration gives it, as far as both are known."""
    declared = info.type.tensor_type.elem_type
    return not declared or not value.type.elem_type or declared == value.type.elem_type


def _declared_types(model: Model) -> tuple[dict[Value, int], dict[Value, int]]:
    """The inputs and the outputs that the model declares with another element type than they have."""
    origin = model.graph.proto
    if not isinstance(origin, GraphProto):
        return {}, {}
    declared = {info.name: info for info in (*origin.input, *origin.output)}

    def others(values: tuple[Value | None, ...]) -> dict[Value, int]:
        known = [value for value in values if value is not None and value.name in declared]
        found = {value: declared[value.name] for value in known if not fits(declared[value.name], value)}
        return {value: info.type.tensor_type.elem_type for value, info in found.items()}

    given = others(model.graph.inputs)
    return given, {value: to for value, to in others(model.graph.outputs).items() if value not in given}


def _cast_to_use(rewriter: Rewriter, value: Value, elem_type: int, keeps_name: bool) -> None:
    """Gives ``value`` another element type, and its readers a cast of it."""
    graph, type = value.graph, value.type
    suffix = _name(type.elem_type if keeps_name else elem_type)
    cast = rewriter.add_value(graph, f"{value.name}_{suffix}", type)
    rewriter.replace_uses(value, cast, outputs=not keeps_name)
    if not (keeps_name or cast.is_output):  # an output has taken its name along
        rewriter.swap_names(value, cast)
    rewriter.add_op(graph, "Cast", [value], [cast], {"to": type.elem_type})
    rewriter.set_element_type(value, elem_type)


def _cast_to_give(rewriter: Rewriter, value: Value, elem_type: int) -> None:
    """Gives an output of the model another element type by a cast behind it."""
    graph, type = value.graph, value.type
    cast = rewriter.add_value(graph, f"{value.name}_{_name(type.elem_type)}", type)
    rewriter.replace_uses(value, cast, where=lambda use: False)
    rewriter.add_op(graph, "Cast", [value], [cast], {"to": elem_type})
    rewriter.set_element_type(cast, elem_type)


def _name(elem_type: int) -> str:
    return TensorProto.DataType.Name(elem_type).lower()
