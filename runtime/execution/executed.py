"""What ONNX Runtime makes of the ops of a model: its optimized graph, read back and matched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto

from qc.ir.base.files import temporary_folder
from qc.ir.errors import ModelError
from qc.ir.executor import Feed
from qc.ir.facts.op_table import GRID_PRESERVING
from qc.ir.onnx.load import read_file

from ..protos.detach import detach_weights
from ..protos.marks import mark_nodes, marks_in
from ..protos.wiring import Node, all_nodes
from ..sessions.open import open_session
from .profile import NodeTime, profile_nodes

# Kernels with integer arithmetic beside all whose names begin with QLinear.
_INTEGER = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "NhwcMaxPool",
        "QAttention",
        "QGemm",
    }
)
# The accuracy level of a MatMulNBits that rounds data to 8 bits as it comes.
_IN_8_BITS = 4
# Ops whose result has the type of their first input.
_MOVERS = GRID_PRESERVING | {"Concat", "Pad", "Resize", "Upsample"}
# ONNX Runtime names a convolution in its blocked layout after the tensor that the op made.
_BLOCKED = "_nchwc"


@dataclass(frozen=True)
class ExecutedOp:
    """An op of a model, and the node that runs it.

    Attributes:
        node: the op, within the model that was given.
        kernel: the type of the node that runs it, such as ``QLinearConv``; empty if none was found: then it
            was removed, or merged in a way that leaves no trace.
        runs_as: the name of that node in the optimized graph.
        integer: whether the kernel computes on, or moves, integers; None if no node was found.
        seconds: the time of that node in one run; 0 if it was not measured. Ops merged into one node all have
            the time of the whole.
        place: what runs that node where it is not the device itself, such as ``CPU``.
        reason: why the device does not run it, in the words of the runtime; empty if it does.
    """

    node: Node
    kernel: str
    runs_as: str
    integer: bool | None
    seconds: float = 0.0
    place: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Execution:
    """How a runtime runs a model.

    Attributes:
        ops: every op of the model but QuantizeLinear, DequantizeLinear and Constant, in its order.
        times: the time of every node of the optimized graph; empty if nothing was measured.
        failure: why the runtime gave the model up as a whole, in its own words; empty if it did not.
    """

    ops: tuple[ExecutedOp, ...]
    times: tuple[NodeTime, ...] = field(default=())
    failure: str = ""


def execution_of(
    model: ModelProto,
    feeds: Sequence[Feed] = (),
    *,
    base_dir: Path | None = None,
    threads: int = 1,
    provider: str = "cpu",
) -> Execution:
    """Opens a model as ONNX Runtime runs it, reads its optimized graph back, and measures it on ``feeds``.

    Every op is renamed first, so that the nodes that ONNX Runtime makes of it can be told by their names; a
    node with a new name is matched by the tensors that it makes, and an op without a node of its own by the
    next op behind it that has one.

    Args:
        model: any model; not changed.
        feeds: what is run for the times, the first as warm-up.
        base_dir: the folder that external data is relative to.
        threads: threads within an op.
        provider: where the model runs; see :func:`open_session`.

    Raises:
        QcError: CUDA cannot be used here.
        ModelError: ONNX Runtime cannot load or run the model.
    """
    marked, weights = detach_weights(model)
    for node in all_nodes(model.graph):
        _refuse_defect(node)
    mark_nodes(marked)
    with temporary_folder() as folder:
        path = folder / "optimized.onnx"
        prefix = folder / "profile" if feeds else None
        session = open_session(
            marked,
            weights=weights,
            base_dir=base_dir,
            threads=threads,
            optimized_file=path,
            profile_prefix=prefix,
            provider=provider,
        )
        times = profile_nodes(session, feeds) if feeds else []
        optimized = read_file(path)
    return Execution(tuple(_Matcher(model, optimized, times).ops()), tuple(times))


def _refuse_defect(node: Node) -> None:
    """Names the cause of a model that ONNX Runtime does not load: a pool becomes an op without dilations."""
    quantized = any(reader.op_type == "QuantizeLinear" for reader in node.consumers())
    if node.op_type == "AveragePool" and node.attribute("dilations") and node.reads_grid() and quantized:
        raise ModelError(
            f"ONNX Runtime cannot load the model: it makes a QLinearAveragePool of {node.label}, which has "
            "no attribute 'dilations'; take it away if it is all ones, else leave the pool in float"
        )


class _Matcher:
    """Finds the nodes of an optimized graph that run the ops of a model."""

    def __init__(self, model: ModelProto, optimized: ModelProto, times: Iterable[NodeTime]) -> None:
        self._numbers = {node: i for i, node in enumerate(all_nodes(model.graph, opset=_opset(model)))}
        self._by_mark: dict[int, list[Node]] = {}
        self._by_tensor: dict[str, Node] = {}
        nodes = list(all_nodes(optimized.graph))
        for node in (node for node in nodes if not node.rounds):
            for mark in marks_in(node.proto.name)[:1]:
                self._by_mark.setdefault(mark, []).append(node)
            if node.op_type != "ReorderOutput":  # only copies what a convolution made
                self._by_tensor.update((out, node) for out in node.proto.output if out)
            if node.proto.name.endswith(_BLOCKED):
                self._by_tensor[node.proto.name.removesuffix(_BLOCKED)] = node
        self._integer = _integer_nodes(nodes)
        self._seconds = {time.name: time.seconds for time in times}

    def ops(self) -> Iterator[ExecutedOp]:
        """Every op of the model, with the node that runs it."""
        for op in self._numbers:
            if op.rounds or op.op_type == "Constant":
                continue
            runner = self._own(op) or self._behind(op)
            if runner is None:
                yield ExecutedOp(op, "", "", None)
            else:
                name = runner.proto.name
                seconds = self._seconds.get(name, 0.0)
                yield ExecutedOp(op, runner.op_type, name, runner in self._integer, seconds)

    def _own(self, op: Node) -> Node | None:
        """The node that has the name of an op, or else makes one of its results."""
        marked = self._by_mark.get(self._numbers[op], [])
        computing = [node for node in marked if node.op_type not in ("Reshape", "Transpose")]
        named = next(iter(computing or marked), None)
        return named or next(
            (self._by_tensor[out] for out in op.proto.output if out in self._by_tensor), None
        )

    def _behind(self, op: Node) -> Node | None:
        """The first node that the results of an op without a node of its own go into."""
        pending, seen = [op], {op}
        while pending:
            for reader in pending.pop().consumers():
                if reader.rounds or reader in seen:
                    continue
                seen.add(reader)
                node = self._own(reader)
                if node is not None:
                    return node
                pending.append(reader)
        return None


def _opset(model: ModelProto) -> int:
    return next((int(one.version) for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)


def _integer_nodes(nodes: Iterable[Node]) -> set[Node]:
    """The nodes that compute on integers of a grid, or move them."""
    codes: set[str] = set()
    found: set[Node] = set()
    for node in nodes:
        reads = next((name in codes for name in node.proto.input if name), False)
        if is_integer_op(node) or (reads and node.op_type != "DequantizeLinear"):
            found.add(node)
        if node.op_type == "QuantizeLinear" or _gives_codes(node, reads):
            codes.update(out for out in node.proto.output if out)
    return found


def is_integer_op(node: Node) -> bool:
    """Whether an op computes on integers of a grid by its definition, or as it is asked to."""
    if node.op_type == "MatMulNBits":
        return any(one.name == "accuracy_level" and one.i == _IN_8_BITS for one in node.proto.attribute)
    return node.op_type.startswith("QLinear") or node.op_type in _INTEGER


def _gives_codes(node: Node, reads: bool) -> bool:
    if node.op_type == "QGemm":  # without the scale of its result it gives floats
        return len(node.proto.input) > 7 and bool(node.proto.input[7])
    quantized = node.op_type.startswith("QLinear") or node.op_type == "NhwcMaxPool"
    return quantized or (reads and node.op_type in _MOVERS)
