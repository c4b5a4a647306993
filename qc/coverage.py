"""Coverage: what of a model is quantized, what stayed float, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from qc.ir.errors import DemandError
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model
from qc.ir.op_traits import is_parameter

_SHOWN = 12
NO_REASON = "no pass placed a quantizer"


@dataclass(frozen=True)
class UnquantizedTensor:
    """A float tensor without a quantizer."""

    name: str
    reason: str


@dataclass(frozen=True)
class Coverage:
    """What a pipeline quantized.

    Attributes:
        formats: number of quantized tensors by the text of their spec.
        unquantized: every float tensor that stayed float, with the reason, in graph order. Tensors inside a
            region are not listed: on the device they do not exist.
        inner: number of tensors inside regions.
        ops: by op type, how many ops with float data read quantized numbers only, and how many there are.
    """

    formats: dict[str, int] = field(default_factory=dict)
    unquantized: tuple[UnquantizedTensor, ...] = ()
    inner: int = 0
    ops: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{self.quantized} of {self.quantized + len(self.unquantized)} float tensors are quantized, "
            f"{self.quantized_ops} of {self.total_ops} ops read quantized numbers only"
        ]
        lines += [f"{number:6} {format}" for format, number in self.formats.items()]
        lines += [f"stays float: '{tensor.name}': {tensor.reason}" for tensor in self.unquantized[:_SHOWN]]
        if len(self.unquantized) > _SHOWN:
            lines.append(f"... and {len(self.unquantized) - _SHOWN} more, in Coverage.unquantized")
        return "\n".join(lines)

    @property
    def quantized(self) -> int:
        """Number of quantized tensors."""
        return sum(self.formats.values())

    @property
    def quantized_ops(self) -> int:
        """Number of ops that read quantized numbers only."""
        return sum(done for done, _ in self.ops.values())

    @property
    def total_ops(self) -> int:
        """Number of ops that read float data."""
        return sum(total for _, total in self.ops.values())

    @property
    def weighted_ops(self) -> tuple[int, int]:
        """Of the ops that do nearly all of the arithmetic: how many are quantized, and how many there are."""
        found = [self.ops.get(op_type, (0, 0)) for op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")]
        return sum(done for done, _ in found), sum(total for _, total in found)


class CoverageError(DemandError):
    """Nothing, or not everything, was quantized; ``coverage`` tells what."""

    def __init__(self, sentence: str, coverage: Coverage) -> None:
        super().__init__(sentence)
        self.coverage = coverage


def coverage_of(model: Model) -> Coverage:
    """Reads the coverage off the quantizers and the recorded decisions."""
    formats: Counter[str] = Counter()
    unquantized = []
    inner = 0
    done: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for graph in model.graphs():
        for value in graph.values():
            sites = model.quant.sites_on(value)
            if sites:
                quantizer = model.quant.get(sites[0])
                formats[str(quantizer.spec) if quantizer is not None else ""] += 1
            elif _is_visible_float(value):
                if _is_inner(model, graph, value):
                    inner += 1
                else:
                    unquantized.append(UnquantizedTensor(value.name, model.quant.why_not(value) or NO_REASON))
        for op in graph.ops():
            reads = _float_reads(model, graph, op)
            if reads and not op.is_type("Shape", "Size"):
                total[op.op_type] += 1
                done[op.op_type] += all(reads)
    ops = {op_type: (done[op_type], total[op_type]) for op_type in sorted(total)}
    return Coverage(dict(sorted(formats.items())), tuple(unquantized), inner, ops)


def _is_visible_float(value: Value) -> bool:
    """Whether the value is a float tensor of its own: no stand-in of an outer one, and read as data."""
    if not value.is_float or value.captured is not None:
        return False
    read_as_data = any(
        not isinstance(port, int) or not is_parameter(op, port) for op, port in value.graph.uses(value)
    )
    return read_as_data or value.graph.is_output(value)


def _is_inner(model: Model, graph: Graph, value: Value) -> bool:
    producer = graph.producer(value)
    if producer is None:
        readers = {model.region_of(op) for op, _ in graph.uses(value)}
        return value.const is not None and None not in readers
    region = model.region_of(producer)
    return region is not None and region.is_inner(value)


def _float_reads(model: Model, graph: Graph, op: Op) -> list[bool]:
    """For each float data input of ``op`` from outside its region: whether it is quantized."""
    region = model.region_of(op)
    return [
        model.quant.of_use(value, op, port) is not None
        for port, value in enumerate(graph.op_inputs(op))
        if value is not None
        and value.is_float
        and not is_parameter(op, port)
        and not (region is not None and region.is_inner(value))
    ]
