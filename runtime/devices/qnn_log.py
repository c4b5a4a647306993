"""What ONNX Runtime's provider for QNN says in its log of the nodes that it was offered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..protos.marks import marks_in

_UNIT = re.compile(r"Validation (PASSED|FAILED) for (\d+) nodes in \w+ \((\w+)\)")
_NODE = re.compile(r"^\s*Operator type: (\S+) Node name: (.*) Node index: \d+")
_REASON = re.compile(r"^\s*REASON : (.*)")
_REFUSED = re.compile(
    r"backendValidateOpConfig\(\) failed for node `(.*?)` of type `(\w+)` with error code (\d+)"
)
_CALLED = re.compile(r"Qnn_OpConfig node name: (.*?) package_name: \S+ QNN_op_type: (\w+)")
_MADE = re.compile(r"^\s*name=.* dataType=QNN_DATATYPE_(\w+)")
_INVALID = re.compile(r"\] (Invalid HTP architecture: [^\x1b\n]*)")
_ROUNDS = ("QuantizeLinear", "DequantizeLinear")
# What the provider says whatever the reason.
_EMPTY = "Failed to add node."


@dataclass(frozen=True)
class NodeVerdict:
    """What became of a node.

    Attributes:
        accepted: whether the HTP runs it; None if it was not asked, as ONNX Runtime did without the node.
        kernel: the operator of QNN that it becomes, and the type of its result: ``Conv2d UFIXED_POINT_8``.
        integer: whether it makes no floats.
        reason: why it was refused, in the provider's words.
    """

    accepted: bool | None
    kernel: str = ""
    integer: bool = False
    reason: str = ""


def read_verdicts(log: Path) -> dict[int, NodeVerdict]:
    """The verdicts of a log by the places of the nodes, which bear marks for names.

    A node is offered more than once, as ONNX Runtime changes the graph in between; the last verdict holds.
    """
    with log.open(encoding="utf-8", errors="replace") as file:
        return _read(line.rstrip("\n") for line in file)


def invalid_option(log: Path) -> str:
    """What the provider says of an option whose value it passed over; empty if it took all."""
    with log.open(encoding="utf-8", errors="replace") as file:
        return next((found[1].strip() for found in map(_INVALID.search, file) if found), "")


def _read(lines: Iterable[str]) -> dict[int, NodeVerdict]:
    found: dict[int, NodeVerdict] = {}
    kernels: dict[int, str] = {}
    refusals: dict[int, str] = {}
    called, is_output = None, False
    for line, unit in _units(lines):
        if begun := _CALLED.search(line):
            called = begun
        elif line.strip() == "node_outputs:":
            is_output = True
        elif is_output and called is not None and (made := _MADE.match(line)):
            kernels.update((mark, f"{called[2]} {made[1]}") for mark in marks_in(called[1]))
            is_output = False
        elif refused := _REFUSED.search(line):
            told = f"QNN's {refused[2]} is not valid so (error {refused[3]})"
            refusals.update((mark, told) for mark in marks_in(refused[1]))
        if unit is not None:
            for mark in unit.marks():
                found[mark] = _verdict(unit, kernels.get(mark, ""), refusals.get(mark, ""))
    return found


@dataclass
class _Unit:
    """Nodes that the provider was offered as one: an op with the dequantize and quantize ops around it."""

    accepted: bool
    nodes: list[tuple[str, str]]
    reason: str = ""

    def marks(self) -> Iterator[int]:
        """The places of its nodes; the ops that round count only where they stand alone."""
        for type, name in self.nodes:
            if type not in _ROUNDS or len(self.nodes) == 1:
                yield from marks_in(name)


def _units(lines: Iterable[str]) -> Iterator[tuple[str, _Unit | None]]:
    """Every line, the one after a unit with that unit."""
    open_unit: _Unit | None = None
    for line in lines:
        if open_unit is not None and (node := _NODE.match(line)):
            open_unit.nodes.append((node[1], node[2]))
        elif open_unit is not None and (reason := _REASON.match(line)):
            open_unit.reason = reason[1].strip()
        else:
            yield line, open_unit
            verdict = _UNIT.search(line)
            open_unit = _Unit(verdict[1] == "PASSED", []) if verdict else None
    yield "", open_unit


def _verdict(unit: _Unit, kernel: str, refusal: str) -> NodeVerdict:
    if unit.accepted:
        stands_between = any(type in _ROUNDS for type, _ in unit.nodes)
        return NodeVerdict(True, kernel, "FLOAT" not in kernel if kernel else stands_between)
    said = unit.reason.removesuffix(_EMPTY).strip()
    return NodeVerdict(False, "", False, said or refusal or _EMPTY)
