"""Coverage: what of a model is quantized, what stayed float, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from pathlib import Path

from qc.ir.base.shown import Shown
from qc.ir.errors import DemandError
from qc.ir.facts import products
from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_traits import bias_port, is_parameter, reads_shape_only, weight_ports
from qc.ir.facts.products import is_product, multiplications, trips
from qc.ir.facts.scopes import CONTROL_FLOW, distinct_names
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model, check_lifted
from qc.ir.quant.formats import Format, has_limits, parse_format
from qc.ir.quant.spec import Quantizer
from qc.passes.framework.target import Target, load_target
from qc.passes.quantize.placement.units import UnitMap
from qc.passes.quantize.set_precision import SET_TO_FLOAT
from qc.passes.simplify.fold_constants import constant_ops

_SHOWN = 12
NO_REASON = "no pass placed a quantizer"
_NO_FLOATS = "no op computes on floats of 32 or 16 bits, and none sums products of doubles"


@dataclass(frozen=True)
class UnquantizedTensor:
    """A float tensor without a quantizer."""

    name: str
    reason: str


@dataclass(frozen=True)
class Multiplied:
    """Multiplications with accumulation, estimated from shapes.

    Free lengths count as 1, and of an op whose shapes are not known each number of its weights counts once.

    Attributes:
        quantized: those of ops that read quantized data only.
        weights: those of other ops all of whose weights are quantized, such as an LSTM.
        total: those of all ops.
        dynamic: those of ops by quantized weights that quantize their data in every run.
    """

    quantized: int = 0
    weights: int = 0
    total: int = 0
    dynamic: int = 0

    @property
    def share(self) -> float:
        """The share of quantized data, by grids of a calibration or in every run; 0 if there is none."""
        return (self.quantized + self.dynamic) / self.total if self.total else 0.0


@dataclass(frozen=True)
class Coverage(Shown):
    """What a pipeline quantized.

    Attributes:
        formats: number of tensors with a number format by the text of their spec.
        unquantized: every float tensor that stayed float, with the reason, in graph order. Tensors inside a
            region are not listed: on the device they do not exist. A tensor whose name occurs in several
            graphs has a path for its name, such as ``y/then_branch/x``.
        inner: number of tensors inside regions.
        ops: by op type, how many ops with float data read quantized data only, or quantize it in every run,
            and how many there are. A float of 16 bits is not quantized.
            Biases, which some targets want in float, do not count, nor does what a target takes without a
            grid, as it runs the op as one with what makes it.
        multiplied: where multiplications are done, see :class:`Multiplied`.
        activations: number of quantized tensors that are no constants.
    """

    formats: dict[str, int] = field(default_factory=dict)
    unquantized: tuple[UnquantizedTensor, ...] = ()
    inner: int = 0
    ops: dict[str, tuple[int, int]] = field(default_factory=dict)
    multiplied: Multiplied = Multiplied()
    activations: int = 0

    def __str__(self) -> str:
        counted = [f"{self.quantized} of {self.total} float tensors are quantized"]
        counted += [self.rounded_words] if self.rounded else []
        lines = [", ".join([*counted, f"{self.quantized_ops} of {self.total_ops} ops read quantized data"])]
        lines += [f"{number:6} {format}" for format, number in self.formats.items()]
        lines += [f"stays float: '{tensor.name}': {tensor.reason}" for tensor in self.unquantized[:_SHOWN]]
        if len(self.unquantized) > _SHOWN:
            lines.append(f"... and {len(self.unquantized) - _SHOWN} more, in Coverage.unquantized")
        return "\n".join(lines)

    @property
    def quantized(self) -> int:
        """Number of quantized tensors."""
        return sum(self.formats.values()) - self.rounded

    @property
    def rounded(self) -> int:
        """Number of tensors that are rounded to floats of 16 bits, with which no op computes in integers."""
        return sum(number for spec, number in self.formats.items() if not has_limits(_format_of(spec)))

    @property
    def rounded_words(self) -> str:
        """The tensors that are floats of 16 bits, as a part of a list; empty if there are none."""
        return f"{self.rounded:,} more are rounded to 16-bit floats" if self.rounded else ""

    @property
    def total(self) -> int:
        """Number of float tensors, whatever became of them."""
        return sum(self.formats.values()) + len(self.unquantized)

    @property
    def quantized_ops(self) -> int:
        """Number of ops that read quantized data only."""
        return sum(done for done, _ in self.ops.values())

    @property
    def has_weights_alone(self) -> bool:
        """Whether weights are quantized and no data that ops compute on is, as by ``w8`` and ``w4``."""
        return not self.quantized_ops and not self.activations and self.multiplied.weights > 0

    @property
    def total_ops(self) -> int:
        """Number of ops that read float data."""
        return sum(total for _, total in self.ops.values())

    def check(self, allow_none: bool, want_all: bool) -> None:
        """Raises CoverageError if nothing is quantized, unless that is allowed, or not all that is wanted."""
        first = self.unquantized[0] if self.unquantized else None
        if not self.formats and not allow_none:
            # What was asked for says most, and what keeps a product in float more than what moves its data.
            by_hand = (one for one in self.unquantized if one.reason == SET_TO_FLOAT)
            products = (one for one in self.unquantized if is_product(one.reason.partition(" ")[0], ""))
            told = next(chain(by_hand, products), first)
            reason = f"'{told.name}' and others stay float ({told.reason})" if told else _NO_FLOATS
            raise CoverageError(f"nothing was quantized: {reason}", self)
        if want_all and first is not None:
            count = len(self.unquantized)
            kind = "float tensor is" if count == 1 else "float tensors are"
            sentence = f"{count} {kind} not quantized; the first is '{first.name}': {first.reason}"
            raise CoverageError(sentence, self)


class CoverageError(DemandError):
    """Nothing, or not everything, was quantized; ``coverage`` tells what."""

    def __init__(self, sentence: str, coverage: Coverage) -> None:
        super().__init__(sentence)
        self.coverage = coverage


def coverage_of(
    model: Model, target: str | Path | Target | None = None, dynamic: Collection[str] = frozenset()
) -> Coverage:
    """Reads the coverage off the quantizers and the recorded decisions.

    Args:
        model: the model, its supergroups matched for the target.
        target: a name, a path or an object, which tells what ops take without a grid, as they run as one with
            what makes it.
        dynamic: the labels of products that were lowered so that they quantize their data in every run.

    Raises:
        UsageError: ``model`` is none, or there is no such target.
    """
    check_lifted(model)
    chosen = None if target is None else load_target(target)
    formats: Counter[str] = Counter()
    unquantized = []
    inner = 0
    quantizers, read = _first_quantizers(model), _read_as_data(model)
    names = distinct_names(model)
    for graph in model.graphs():
        for value in graph.values():
            if value in quantizers:
                formats[str(quantizers[value].spec)] += 1
            elif value in read and value.is_float:
                if _is_inner(value):
                    inner += 1
                else:
                    reason = _dynamic_reason(value, dynamic) or model.quant.why_not(value) or NO_REASON
                    unquantized.append(UnquantizedTensor(names.get(value, value.name), reason))
    ops, multiplied = _op_coverage(model, chosen, dynamic)
    activations = sum(constant_data(value) is None for value in quantizers)
    return Coverage(dict(sorted(formats.items())), tuple(unquantized), inner, ops, multiplied, activations)


def _dynamic_reason(value: Value, dynamic: Collection[str]) -> str:
    """Why a tensor is float that a product makes, or reads, which quantizes its data; empty for others."""
    producer = value.producer
    if producer is not None:
        is_made = producer.label in dynamic
        return (
            f"{producer.label} quantizes its data in every run, and gives a float result" if is_made else ""
        )
    readers = [use.op.label for use in value.uses if use.port == 0 and use.op.label in dynamic]
    return f"{readers[0]} quantizes it in every run" if readers else ""


def _first_quantizers(model: Model) -> dict[Value, Quantizer]:
    """The first quantizer of every quantized tensor, by its original: a site may be within a body."""
    found: dict[Value, Quantizer] = {}
    for site in model.quant.sites():
        quantizer = model.quant.get(site)
        if quantizer is not None:
            found.setdefault(site.value.original, quantizer)
    return found


def _op_coverage(
    model: Model, target: Target | None, dynamic: Collection[str]
) -> tuple[dict[str, tuple[int, int]], Multiplied]:
    """By op type, the ops that read quantized data only, biases aside, and all; and what they multiply.

    If, Loop and Scan are not among them: what computes is in their bodies.
    """
    fused = _fused_values(model, target) if target is not None else frozenset()
    done: Counter[str] = Counter()
    total: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for graph in model.graphs():
        repeated = repetitions(graph)
        for op in graph.ops():
            if reads_float_data(model, op):
                reads = _float_reads(model, op)
                kind = "float"
                if op.label in dynamic:
                    kind = "dynamic"
                elif all(quantized or value in fused for value, quantized in reads):
                    kind = "quantized"
                elif _has_quantized_weights(model, op):
                    kind = "weights"
                total[op.op_type] += 1
                done[op.op_type] += kind in ("dynamic", "quantized")
                work[kind] += repeated * multiplied_by(op)
    counts = {op_type: (done[op_type], total[op_type]) for op_type in sorted(total)}
    return counts, Multiplied(work["quantized"], work["weights"], work.total(), work["dynamic"])


def reads_float_data(model: Model, op: Op) -> bool:
    """Whether an op counts: it computes on float data from outside its region, quantized or not.

    What depends on constants alone does not: runtimes compute it once, when they open the model.
    """
    counts = not op.is_type(*CONTROL_FLOW) and not reads_shape_only(op) and op not in constant_ops(op.graph)
    return counts and bool(_float_reads(model, op))


def _has_quantized_weights(model: Model, op: Op) -> bool:
    read = [(op.inputs[port], port) for port in weight_ports(op)]
    held = [value is not None and _is_quantized(model, value, op, port) for value, port in read]
    return bool(held) and all(held)


def multiplied_by(op: Op) -> int:
    """How often an op multiplies, as estimated from shapes; 0 for ops that sum no products."""
    if not is_product(op.op_type, op.domain):
        return 0
    read, made = [*map(_shape, op.inputs)], [*map(_shape, op.outputs)]
    found = multiplications(op.op_type, op.domain, products.Shapes(read, made[0], op.attribute))
    if found is not None:
        return found
    weights = (value for value in op.inputs if value is not None and constant_data(value))
    return sum(prod(_shape(value) or ()) for value in weights if value.is_float)


def _shape(value: Value | None) -> tuple[int, ...] | None:
    """The shape of a tensor with 1 for free lengths; None if not even their number is known."""
    shape = value.original.type.shape if value is not None else None
    return tuple(n if isinstance(n, int) else 1 for n in shape) if shape is not None else None


def repetitions(graph: Graph) -> int:
    """How often a graph is run in each run of the model, as far as that is known."""
    owner = graph.parent
    if owner is None:
        return 1
    read = owner.inputs
    data = constant_data(read[0]) if owner.is_type("Loop") and read[0] is not None else None
    limit = int(data.numpy().item()) if data is not None else None
    axis = owner.attribute("scan_input_axes", [0])[-1]
    scanned = _shape(read[-1]) if owner.is_type("Scan") else None
    return repetitions(owner.graph) * trips(owner.op_type, limit, scanned, axis)


def _fused_values(model: Model, target: Target) -> frozenset[Value]:
    """The values that the op that reads them takes without a grid, as one with the op that makes them."""
    units = UnitMap(model, target)
    found = (units.fused_input(unit) for unit in units.integer)
    return frozenset(value for value in found if value is not None)


def _read_as_data(model: Model) -> set[Value]:
    """The originals of all values that an op reads as data, in whatever graph, or a graph gives back."""
    found = {value.original for graph in model.graphs() for value in graph.outputs if value is not None}
    for op in model.ops():
        for port, value in enumerate(op.inputs):
            if value is not None and not is_parameter(op, port):
                found.add(value.original)
    return found


def _is_inner(value: Value) -> bool:
    producer = value.producer
    if producer is None:
        readers = {op.region for op, _ in value.uses}
        return value.const is not None and None not in readers
    region = producer.region
    return region is not None and region.is_inner(value)


def _float_reads(model: Model, op: Op) -> list[tuple[Value, bool]]:
    """The float data inputs of ``op`` from outside its region, each with whether it is quantized."""
    region = op.region
    return [
        (value, _is_quantized(model, value, op, port))
        for port, value in enumerate(op.inputs)
        if value is not None
        and value.is_float
        and not is_parameter(op, port)
        and port != bias_port(op)
        and not (region is not None and region.is_inner(value))
    ]


def _is_quantized(model: Model, value: Value, op: Op, port: int) -> bool:
    """Whether an op reads codes of a tensor; a float of 16 bits is read as such."""
    quantizer = model.quant.of_use(value, op, port)
    return quantizer is not None and has_limits(quantizer.spec.format)


def _format_of(spec: str) -> Format:
    """The format in the text of a spec."""
    return parse_format(spec.partition(" ")[0])
