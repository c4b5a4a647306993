"""What Rockchip's compiler says of the layers that it makes of a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..execution.executed import ExecutedOp
from ..protos.marks import marks_in
from ..protos.wiring import Node

# Number, operator, type of its data, processor; shapes, cycles and traffic; the name, which may be missing.
_LAYER = re.compile(r"RKNN: \[[^\]]*\] \d+ +(\w+) +(\w+) +(NPU|CPU|GPU) +(.*)")
_NO_LOWERING = re.compile(r"No lowering found for: (#\d+#), node type = (\w+)")
# Operators that are merged into the one before, and a product that is not, in the names of layers.
_MERGED = re.compile("MatMul|LeakyRelu|PRelu|Relu|HardSigmoid|HardSwish|Sigmoid|Tanh|Elu|Clip|Add|Mul")
# Layers that only bring data into another layout or type.
_MOVES = frozenset({"Reshape", "Transpose", "exDataConvert"})


@dataclass(frozen=True)
class CompiledLayer:
    """A layer of a compiled model.

    Attributes:
        type: its operator, such as ``ConvRelu``.
        data_type: that of its data, such as ``INT8`` or ``FLOAT16``.
        processor: ``NPU`` or ``CPU``.
        places: those of the ops that it is named after, if these are marked.
    """

    type: str
    data_type: str
    processor: str
    places: tuple[int, ...]

    @property
    def kernel(self) -> str:
        """Operator and type."""
        return f"{self.type} {self.data_type}"

    @property
    def is_integer(self) -> bool:
        """Whether its data are codes."""
        return self.data_type in ("INT4", "INT8", "INT16")

    def holds(self, op_type: str) -> bool:
        """Whether an operator was merged into it."""
        return op_type in _MERGED.findall(self.type)


@dataclass(frozen=True)
class Log:
    """The layers, and the ops that the compiler has nothing for, by their places."""

    layers: tuple[CompiledLayer, ...]
    missing: Mapping[int, str]


def read_log(path: Path) -> Log:
    """What a log says; nothing where the compiler did not come so far."""
    if not path.is_file():
        return Log((), {})
    with path.open(encoding="utf-8", errors="replace") as file:
        return _read(file)


def _read(lines: Iterable[str]) -> Log:
    layers, missing = [], {}
    for line in lines:
        if found := _LAYER.search(line):
            layers.append(CompiledLayer(found[1], found[2], found[3], tuple(marks_in(found[4]))))
        elif found := _NO_LOWERING.search(line):
            missing[marks_in(found[1])[0]] = f"Rockchip's compiler has no {found[2]}"
    return Log(tuple(layers), missing)


def executed_ops(nodes: Sequence[Node], log: Log) -> tuple[ExecutedOp, ...]:
    """What became of the ops of a model.

    An op that has no layer runs as one with the op before it, if the layer of that is named after both.

    Args:
        nodes: all of a model that was marked (``runtime/protos/marks.py``) for the compiler.
        log: what that said.
    """
    own: dict[int, CompiledLayer] = {}
    for layer in log.layers:
        for place in layer.places:
            if place not in own or layer.type not in _MOVES:
                own[place] = layer
    runners: dict[Node, CompiledLayer] = {}
    ops = []
    for place, node in enumerate(nodes):
        runner = own.get(place) or _merged(node, runners)
        if runner is not None:
            runners[node] = runner
        if not node.rounds and node.op_type != "Constant":
            ops.append(_executed(node, runner, log.missing.get(place, "")))
    return tuple(ops)


def _merged(node: Node, runners: Mapping[Node, CompiledLayer]) -> CompiledLayer | None:
    """The layer of the op before that this one was merged into; ops that round pass it on."""
    for port in range(len(node.proto.input)):
        before = node.producer(port)
        layer = runners.get(before) if before is not None else None
        if layer is not None and (node.rounds or layer.holds(node.op_type)):
            return layer
    return None


def _executed(node: Node, runner: CompiledLayer | None, missing: str) -> ExecutedOp:
    if missing:
        return ExecutedOp(node, "", "", False, 0.0, "CPU", missing)
    if runner is None:
        return ExecutedOp(node, "", "", None)
    place = "CPU" if runner.processor == "CPU" and runner.type not in _MOVES else ""
    reason = f"Rockchip's compiler leaves it to the CPU, as {runner.kernel}" if place else ""
    integer = runner.is_integer and not place
    return ExecutedOp(node, runner.kernel, node.proto.name, integer, 0.0, place, reason)
