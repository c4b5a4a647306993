"""Layers of a model: the modules that an exporter named its ops after, their ports and parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qc.ir.analysis import STRUCTURE, analysis
from qc.ir.facts.exporter_scopes import exporter_scopes
from qc.ir.facts.op_traits import bias_port, is_parameter, weight_port
from qc.ir.graph import Graph, Op, Value

from .record import Port


@dataclass(frozen=True)
class Layers:
    """The layers of a main graph and of all bodies in it, by originals of tensors.

    Attributes:
        tensors: by port. Input ``i`` of a layer is the ``i``-th input of its first op that is no parameter,
            output ``i`` that of its last op.
        ports: by tensor; outputs before inputs.
        parameters: by ``LAYER.weight`` and ``LAYER.bias``.
        readers: by parameter, that name.
    """

    tensors: dict[Port, Value]
    ports: dict[Value, list[Port]]
    parameters: dict[str, Value]
    readers: dict[Value, str]


@analysis(STRUCTURE)
def layers_of(graph: Graph) -> Layers:
    """The layers of a model, from the names of its ops.

    Ops of one module are a layer. Ops that lie between the modules inside another, such as the addition of a
    residual block, are layers of their own: ``layer1.0.Add``.
    """
    ops = [op for part in graph.walk() for op in part.ops()]
    paths = {op: _path(op) for op in ops}
    containers = {"", *(parent for path in paths.values() for parent in _parents(path.module))}
    groups: dict[str, list[Op]] = {}
    for op, path in paths.items():
        name = path.module
        if name in containers:
            name = f"{name}.{path.op}" if name else path.op
        groups.setdefault(name or op.label, []).append(op)
    tensors: dict[Port, Value] = {}
    for side in ("output", "input"):
        for name, members in groups.items():
            values = _outputs(members[-1]) if side == "output" else _data_inputs(members[0])
            for index, value in enumerate(values):
                if value is not None:
                    tensors[Port(name, side, index)] = value.original
    ports: dict[Value, list[Port]] = {}
    for port, value in tensors.items():
        ports.setdefault(value, []).append(port)
    parameters = dict(_parameters(groups))
    readers: dict[Value, str] = {}
    for name, value in parameters.items():
        readers.setdefault(value, name)
    return Layers(tensors, ports, parameters, readers)


@dataclass(frozen=True)
class _Path:
    module: str
    op: str


def _path(op: Op) -> _Path:
    """The module of an op, such as ``layer1.0.conv1``, and the op's own name in it."""
    scopes = exporter_scopes(op)
    if scopes:
        return _Path(next((scope for scope in reversed(scopes[:-1]) if scope), ""), scopes[-1])
    if not op.name.startswith("/"):
        return _Path(op.name, "")
    *modules, own = op.name.strip("/").split("/")
    found: list[str] = []
    for module in modules:  # members of lists repeat the name of the list: /layer1/layer1.0/conv1/Conv
        if found and module.startswith(f"{found[-1]}."):
            found.pop()
        found.append(module)
    return _Path(".".join(found), own)


def _parents(path: str) -> Iterator[str]:
    parts = path.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))


def _outputs(op: Op) -> list[Value | None]:
    return list(op.outputs)


def _data_inputs(op: Op) -> list[Value | None]:
    """The inputs that are no parameters."""
    inputs = enumerate(op.inputs)
    return [value for port, value in inputs if value is None or not _is_parameter(op, port, value)]


def _is_parameter(op: Op, port: int, value: Value) -> bool:
    has_role = port in (weight_port(op), bias_port(op)) or is_parameter(op, port)
    return value.original.const is not None and has_role


def _parameters(groups: dict[str, list[Op]]) -> Iterator[tuple[str, Value]]:
    """The weight and the bias of every layer that has one op with a weight."""
    for name, members in groups.items():
        weighted = [op for op in members if weight_port(op) is not None]
        if len(weighted) != 1:
            continue
        inputs = weighted[0].inputs
        for role, port in (("weight", weight_port(weighted[0])), ("bias", bias_port(weighted[0]))):
            value = inputs[port] if port is not None and port < len(inputs) else None
            if value is not None and value.original.const is not None:
                yield f"{name}.{role}", value.original
