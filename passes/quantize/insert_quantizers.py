"""Places quantizers where the target needs them, and says why everywhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qc.ir.errors import ModelError, UsageError, nearest
from qc.ir.formats import IntFormat, parse_format
from qc.ir.graph import Graph, Op, Value
from qc.ir.lower import lower
from qc.ir.model import Model
from qc.ir.op_traits import bias_port, weight_port
from qc.ir.quant import Quantizer, QuantSpec
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ..base import Pass, Stage, option
from ..context import PassContext
from ..target import FormatRule, Target
from .units import Unit, UnitMap, is_plain_float


@dataclass(frozen=True)
class InsertQuantizers(Pass):
    """Places open quantizers on the weights, biases and activations of all that the target runs in integers.

    A tensor that an integer op makes is quantized for all its readers. A tensor that a float op makes is
    quantized only where an integer op reads it, so that float readers keep the float numbers. A value inside
    a region is never quantized; an inner tensor that is also a graph output is outside every region. For
    every float tensor that stays unquantized the reason is recorded.
    """

    name = "insert-quantizers"
    stage = Stage.ANNOTATE
    needs = frozenset({"target"})

    activation: str | None = option(
        None, "format of activations, such as uint8 or int16; default: the target's"
    )
    weight: str | None = option(None, "format of weights, such as int8 or int4; default: the target's")
    skip_ops: tuple[str, ...] = option((), "op types to leave in float")
    skip_nodes: tuple[str, ...] = option((), "names of ops to leave in float")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("activation", "weight"):
            given = getattr(self, name)
            if given is not None:
                _checked_format(name, given)

    def run(self, model: Model, context: PassContext) -> None:
        _refuse_quantized(model)
        _complete_types(model, context)
        _Placement(model, context.required_target(), self).run()
        for graph in list(model.graphs())[1:]:
            _skip_nested(model, graph)


def _checked_format(option_name: str, text: str) -> None:
    """Raises UsageError, naming the option, if ``text`` is no format."""
    try:
        parse_format(text)
    except UsageError as error:
        raise UsageError(f"option '{option_name}' of pass '{InsertQuantizers.name}': {error}") from error


def _refuse_quantized(model: Model) -> None:
    """Raises ModelError if the model came with quantize ops: a second grid on top would only add error."""
    for op in model.graph.ops():
        if op.op_type in ("QuantizeLinear", "DequantizeLinear") or op.op_type.startswith("QLinear"):
            raise ModelError(
                f"the model is quantized already ({op.label}); start from the float model, or take the grids "
                "it has with 'import-qdq'"
            )


def _complete_types(model: Model, context: PassContext) -> None:
    """Asks the runtime for element types that shape inference could not tell."""
    unknown = {value.name: value for value in model.graph.values() if not value.type.elem_type}
    made = {name: value for name, value in unknown.items() if model.graph.producer(value) is not None}
    if made and context.executor is not None:
        rewriter = Rewriter(model)
        types = context.executor.element_types(lower(model), list(made), base_dir=model.base_dir)
        for name, elem_type in types.items():
            if elem_type:
                with rewriter.action("type from the runtime", made[name]):
                    rewriter.set_type(made[name], made[name].type._replace(elem_type=elem_type))


class _Placement:
    """Placement on the main graph of one model."""

    def __init__(self, model: Model, target: Target, options: InsertQuantizers) -> None:
        self.quant = model.quant
        self.graph = model.graph
        self.target = target
        self.units = UnitMap(model, model.graph, target, _left_float(model.graph, options))
        self.activation = _spec(target.activation, options.activation)
        self.weight = _spec(target.weight, options.weight)

    def run(self) -> None:
        for unit in self.units.integer:
            for value, op, port in self.units.inputs(unit):
                self._place_input(unit, value, op, port)
            for value in self.units.outputs(unit):
                if unit.rule.output == "always" or self.units.all_readers_integer(value):
                    self._place(Site(value), self._activation_spec(value), f"made by {unit.label}")
        for value in self.graph.values():
            if value.is_float and not self.quant.sites_on(value) and not self.quant.why_not(value):
                self.quant.skip(value, self._why_float(value))

    # -- inputs -------------------------------------------------------------------------------------

    def _place_input(self, unit: Unit, value: Value, op: Op, port: int) -> None:
        if value.const is not None and port == weight_port(op):
            self._place_shared(Site(value, op, port), self.weight, f"weight of {op.label}")
        elif value.const is not None and self._is_bias(unit, value, op, port):
            self._place_bias(Site(value, op, port), f"bias of {op.label}")
        elif value.const is not None and not self._fits(value.const):
            self.quant.skip(value, f"a constant that holds numbers {self.activation.format} does not have")
        elif value.const is not None:
            self._place_shared(Site(value, op, port), self.activation, f"constant read by {unit.label}")
        elif not self._inherit(value):
            self._place_read(value, op, port, f"read by {unit.label}")

    def _place_bias(self, site: Site, reason: str) -> None:
        format = self.weight.format
        if isinstance(format, IntFormat):
            if self.target.quantize_bias:
                self._place(site, _BIAS, reason)
        elif not format.scaled:
            self._place_shared(site, self.weight, reason)

    def _is_bias(self, unit: Unit, value: Value, op: Op, port: int) -> bool:
        in_region = unit.region is not None and unit.region.captures.get("bias") is value
        return port == bias_port(op) or (in_region and op.is_type("Add"))

    def _fits(self, const: TensorRef) -> bool:
        """Whether a constant is finite, and stays so in the format of activations (no grid has infinity)."""
        format, array = self.activation.format, const.numpy()
        highest = np.inf if isinstance(format, IntFormat) or format.scaled else format.highest
        return bool(np.isfinite(array).all() and np.max(np.abs(array), initial=0.0) <= highest)

    def _inherit(self, value: Value) -> bool:
        """Whether ``value`` is quantized already, or can carry on the grid of what it was moved from."""
        chain = []
        current: Value | None = value
        while current is not None and self.quant.of_value(current) is None:
            producer = self.graph.producer(current)
            if producer is None or not self.units.is_carry(producer):
                return False
            chain.append((current, producer))
            current = self.graph.op_inputs(producer)[0]
        for moved, producer in reversed(chain):
            self._place(Site(moved), self._activation_spec(moved), f"moved by {producer.label}")
        return True

    def _place_read(self, value: Value, op: Op, port: int, reason: str) -> None:
        spec = self._activation_spec(value)
        if self.units.all_readers_integer(value):
            self._place(Site(value), spec, reason)
        else:
            self._place_shared(Site(value, op, port), spec, f"{reason}; other readers keep it in float")

    def _place(self, site: Site, spec: QuantSpec, reason: str) -> None:
        if self.quant.get(site) is None:
            self.quant.place(site, spec, reason)

    def _place_shared(self, site: Site, spec: QuantSpec, reason: str) -> None:
        """Places a quantizer at a use, the same one that other uses of the value hold if the specs agree."""
        if self.quant.get(site) is not None:
            return
        shared: Quantizer | None = next(
            (
                q
                for other in self.quant.sites_on(site.value)
                if (q := self.quant.get(other)) and q.spec == spec
            ),
            None,
        )
        self.quant.place(site, shared or spec, reason)

    def _activation_spec(self, value: Value) -> QuantSpec:
        producer = self.graph.producer(value)
        limits = self.units.unit_of(producer).rule.output_range if producer is not None else None
        return replace(self.activation, fixed_range=limits) if limits is not None else self.activation

    # -- reasons ------------------------------------------------------------------------------------

    def _why_float(self, value: Value) -> str:
        if not is_plain_float(value):
            return "a tensor of 16-bit floats; qc quantizes float32"
        if value in self.units.infinite:
            return "it can hold infinity, or a number as large, of a constant: no grid reaches there"
        producer = self.graph.producer(value)
        if producer is None:
            return self._why_unread(value)
        unit = self.units.unit_of(producer)
        if unit.region is not None and unit.region.is_inner(value):
            return f"inside {unit.label}, which runs as one operator"
        if value not in self.units.data:
            return f"{unit.label} computes it from shapes or constants alone"
        if unit in self.units.integer:
            reader = "it is a graph output" if self.graph.is_output(value) else "a reader runs in float"
            return f"{unit.label} can give a float result, and {reader}"
        if unit.rule.runs == "between":
            return f"{unit.label} runs in integers only between integer ops, and is not between such"
        if unit.rule.runs == "carry":
            return f"{unit.label} moves float data, and nothing that reads it runs in integers"
        return f"{unit.label} runs in float: {unit.rule.why or 'the target has no integer kernel for it'}"

    def _why_unread(self, value: Value) -> str:
        uses = self.graph.uses(value)
        if not uses:
            return "nothing reads it"
        unit = self.units.unit_of(uses[0].op)
        if unit in self.units.integer:
            return f"a parameter of {unit.label}, which stays as it is"
        if unit.rule.runs == "carry":
            return f"{unit.label} moves it, and nothing that reads it runs in integers"
        return f"read by {unit.label}, which runs in float"


_BIAS = QuantSpec(IntFormat(32, signed=True), symmetric=True, derived=True)


def _spec(rule: FormatRule, format: str | None) -> QuantSpec:
    """The spec of a target's rule with the format that an option asks for.

    An unsigned option makes a symmetric rule asymmetric, since the grid would waste half of its codes.
    """
    if format is None:
        return rule.spec()
    chosen = parse_format(format)
    if not isinstance(chosen, IntFormat):
        return QuantSpec(chosen)
    symmetric = rule.symmetric and chosen.signed
    return QuantSpec(chosen, symmetric=symmetric, narrow=rule.narrow and symmetric)


def _left_float(graph: Graph, options: InsertQuantizers) -> dict[Op, str]:
    """The ops that the options leave in float, with the reason."""
    found: dict[Op, str] = {}
    for field, kind in (("skip_ops", "op_type"), ("skip_nodes", "name")):
        chosen = getattr(options, field)
        known = dict.fromkeys(getattr(op, kind) for op in graph.ops())
        for word in chosen:
            if word not in known:
                raise UsageError(f"{field} names '{word}', which no op has{nearest(word, list(known))}")
        found.update({op: f"{field} names it" for op in graph.ops() if getattr(op, kind) in chosen})
    return found


def _skip_nested(model: Model, graph: Graph) -> None:
    where = (
        f"the body of {graph.parent.label}" if graph.parent is not None else f"the function '{graph.name}'"
    )
    for value in graph.values():
        if value.is_float and value.captured is None:
            model.quant.skip(value, f"inside {where}; qc quantizes the main graph only")
