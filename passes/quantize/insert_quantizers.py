"""Places quantizers where the target needs them, and says why everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from qc.ir.errors import QuantizedError, UsageError
from qc.ir.facts.constants import initializer
from qc.ir.facts.dataflow import is_plain_float
from qc.ir.facts.op_traits import joins_grids, traits, weight_axes, weight_ports
from qc.ir.facts.quantized_form import quantized_form
from qc.ir.graph import Op, Use, Value
from qc.ir.model import Model
from qc.ir.quant.formats import Format, IntFormat, check_free, has_limits, holds, parse_format
from qc.ir.quant.spec import QuantSpec
from qc.ir.quant_table import Site
from qc.ir.tensor_ref import TensorRef

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..framework.target import Target
from .calibration.bias import BIAS
from .placement.data_weights import weighed_by_data
from .placement.named_ops import named_ops
from .placement.outliers import mark_probabilities, products_of_outliers
from .placement.preparation import prepare
from .placement.reasons import Reasons
from .placement.signed_operands import signed_operands
from .placement.spectra import left_float_as_spectra
from .placement.unit import Reason, Unit
from .placement.units import UnitMap
from .placement.weighing import quickest_units
from .placement.weights_alone import has_rows_in_codes, large_tables, storing_weights_alone, table_of
from .placement.wide import wide_tensors
from .precision.one_format import unify_formats

FLOAT = "float"  # of activations: they have no quantizers


@dataclass(frozen=True)
class InsertQuantizers(Pass):
    """Places open quantizers on the weights, biases and activations of all that the target runs in integers.

    A tensor that an integer op makes is quantized for all its readers. A tensor that a float op makes is
    quantized only where an integer op reads it, so that float readers keep the float numbers. A value inside
    a region is never quantized; an inner tensor that is also a graph output is outside every region. For
    every float tensor that stays unquantized the reason is recorded.

    Where a target has costs of its kernels, ops stay float that would be slower in integers, with the ops
    that quantize and dequantize around them; their weights are stored in integers all the same, unless their
    data has grids. Shapes are those of the first sample where the model leaves them free.

    A spectrum whose logarithm the model takes stays float where that logarithm runs in float: it tells apart
    numbers that are far smaller than a step of a grid over the loudest. So does an angle of which the model
    takes sine and cosine, such as a position in a sentence times a frequency: its grid spans all turns. Where
    a target runs these in integers, and computes every op in one width, they have 16 bits among others of 8,
    as has what only a root sees, such as squares, and what a rule of the target calls ``wide``.

    With ``activation=float`` all activations and biases stay float, and the weights alone are quantized:
    those of products and recurrent ops, whatever the target runs in integers, and large tables that Gather
    looks rows up in, as embeddings do. A matrix that is such a table, and transposed also the weight of a
    product, has one grid. Tables of many numbers are quantized beside activations in integers as well, in the
    target's format of weights, where the target looks rows up in codes (``stored_tables_from``).

    The bodies of If, Loop and Scan are treated like the main graph. What a body captures, takes in or gives
    back is read by whoever reads it there.
    """

    name = "insert-quantizers"
    stage = Stage.ANNOTATE
    needs = frozenset({"target"})
    uses = frozenset({"data", "executor"})  # types and shapes that nothing else tells

    activation: str | None = option(
        None,
        "format of activations, such as uint8 or int16, or float for weights alone; default: the target's",
    )
    weight: str | None = option(None, "format of weights, such as int8 or int4; default: the target's")
    bias: Literal["int32", "float"] | None = option(
        None, "biases in 32-bit integers or in float; default: the target's"
    )
    skip_ops: tuple[str, ...] = option((), "op types to leave in float")
    skip_nodes: tuple[str, ...] = option((), "names of ops to leave in float")
    spectra: Literal["float", "integer"] = option(
        "float",
        "what only logarithms, or a sine and a cosine, see the results of; float: if those run in float, and "
        "16 bits, as in front of roots, if they run in integers of one width; integer: like all else",
    )
    slower: Literal["float", "integer"] = option(
        "float", "what takes no less time in integers, by the costs and rules of the target"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("activation", "weight"):
            given = getattr(self, name)
            if given is not None and not (name == "activation" and given == FLOAT):
                _checked_format(name, given)

    def run(self, model: Model, context: PassContext) -> None:
        refuse_quantized(model)
        prepare(model, context)
        target = context.required_target()
        if self.activation == FLOAT:
            self.refuse_idle(["bias", "slower"], f"activation={FLOAT}", "give another format of activations")
            asked_by = f"option activation of '{self.name}'"
            alone = storing_weights_alone(target, asked_by)
            _Placement(model, context, alone, replace(self, activation=None, slower="integer")).run()
            return
        context.notes += self._unknown_formats(target)
        _Placement(model, context, target, self).run()

    def left_out(self, model: Model) -> dict[Op, Reason]:
        """The ops that are to stay in float, with the reason.

        Raises:
            UsageError: no op has a name, or a type, that an option says.
        """
        return named_ops(model, self.skip_ops, self.skip_nodes, self.name)

    def _unknown_formats(self, target: Target) -> Iterator[str]:
        """Notes on formats that were asked for and that the target has no kernels for."""
        kinds = ("activations", self.activation, target.activation), ("weights", self.weight, target.weight)
        for kind, given, rule in kinds:
            format = parse_format(given) if given is not None else None
            if format is not None and rule.is_weight_only(format):
                yield f"{target.name} takes {given} weights next to float data only; here the data has grids"
            elif format is not None and not rule.allows(format):
                why = f"does not compute with {given} {kind}, but in float; it takes {rule.known}"
                yield f"{target.name} {why}"


def _checked_format(option_name: str, text: str) -> None:
    """Raises UsageError, naming the option, if ``text`` is no format, or one of biases."""
    try:
        check_free(parse_format(text))
    except UsageError as error:
        raise UsageError(f"option '{option_name}' of pass '{InsertQuantizers.name}': {error}") from error


def refuse_quantized(model: Model) -> None:
    """Raises QuantizedError if the model came quantized: a second grid on top would only add error."""
    found = quantized_form(model.graphs())
    if found is None:
        return
    grids = ", take the grids it has with 'import-qdq'" if found.has_pairs else ""
    remedy = "the float model, which 'qc MODEL.onnx --passes dequantize -o FLOAT.onnx' makes of it"
    sentence = f"the model is quantized already, {found}: use it as it is{grids}, or start from {remedy}"
    raise QuantizedError(sentence, str(found))


class _Placement:
    """Placement on the main graph and all bodies of one model."""

    def __init__(self, model: Model, context: PassContext, target: Target, options: InsertQuantizers) -> None:
        self.model, self.quant, self.target = model, model.quant, target
        self.activation = target.activation.spec(options.activation)
        saturates = has_limits(self.activation.format)
        self.weight = target.weight.spec(options.weight)
        by_time = options.slower == "float" and _in_bytes(self.activation.format, self.weight.format)
        product = target.rule_for("MatMul")
        if by_time and product.of_probabilities == "float":
            mark_probabilities(model, product.asked_by)
        left_float = _left_float(model, target, options, self.activation.format)
        if by_time:
            self.units = quickest_units(model, context, left_float, saturates)
        else:
            self.units = UnitMap(model, target, left_float, saturates)
        self.scopes = self.units.scopes
        self.has_biases = target.quantize_bias if options.bias is None else options.bias == "int32"
        self._tables = large_tables(self.scopes)
        self._signed = signed_operands(self.units)
        self._wider = _wider_format(target, self.activation.format)
        spectra = options.spectra == "float"
        self._wide = wide_tensors(self.units, target, spectra) if self._wider is not None else frozenset()
        self._fitting: dict[tuple[Value, Format], bool] = {}

    def run(self) -> None:
        is_rounded = not has_limits(self.activation.format)  # to smaller floats, which need no kernel
        storing = [unit for unit in self.units.units if self._stores_weights(unit, is_rounded)]
        for unit in storing:
            if traits(unit.root).product == "recurrent":
                self._place_stored_weights(unit)
        for unit in self.units.units:
            if self.units.is_carry(unit.root) and (unit.rule.constants or is_rounded):
                self._place_moved_constant(unit)
        for unit in self.units.integer:
            for value, op, port in self.units.inputs(unit):
                self._place_input(unit, value, op, port)
            for value in self.units.outputs(unit):
                if unit.rule.output == "always" or self.units.all_readers_integer(value):
                    self._place(Site(value), self._activation_spec(value), f"made by {unit.label}", unit)
        for unit in storing:
            if not self._reads_codes(unit):
                self._place_stored_weights(unit)
        self._place_tables()
        if self.target.default.runs == "integer":  # which also moves what nothing but an output reads
            for value in (one for unit in self.units.units for one in self.units.outputs(unit)):
                self._inherit(value)
        if self._wide:
            unify_formats(self.model, self.target)
        reasons = Reasons(self.units, self.quant)
        for value in (value for graph in self.scopes.graphs for value in graph.values()):
            own = value.is_float and value.captured is None
            if own and not reasons.is_quantized(value) and not self.quant.why_not(value):
                reason = reasons.why_float(value)
                self.quant.skip(value, reason.text, reason.asked_by, reason.suggestion)

    def _stores_weights(self, unit: Unit, is_rounded: bool) -> bool:
        """Whether the weights of a unit alone are made smaller: those of a float recurrent op, if rounded."""
        if unit.rule.runs == "weights":
            return not self.units.counts_exactly(unit)
        is_recurrent = traits(unit.root).product == "recurrent"
        return is_rounded and is_recurrent and unit.root not in self.units.left_float

    # -- inputs -------------------------------------------------------------------------------------

    def _place_input(self, unit: Unit, value: Value, op: Op, port: int) -> None:
        if value.original.const is not None:
            self._place_constant(unit, value, op, port, value.original.const)
        elif not self._inherit(value):
            reason, source = f"read by {unit.label}", self._before_moves(value.original)
            if source is value.original or not self.units.all_readers_integer(source):
                return self._place_read(value, op, port, reason, unit)
            self._place(Site(source), self._activation_spec(source), reason, unit)
            self._inherit(value)

    def _place_constant(self, unit: Unit, value: Value, op: Op, port: int, const: TensorRef) -> None:
        is_weight, is_bias = self.units.is_weight(unit, op, port), self.units.is_bias(unit, value, op, port)
        is_trained = is_weight or is_bias
        format = (self.weight if is_trained else self.activation).format
        if not const.size:
            self.quant.skip(value.original, "a constant without elements", unit.rule.asked_by)
        elif not (is_trained and has_limits(format)) and not self._fits(value.original, const, format):
            self._skip_unfit(value, unit, format)
        elif is_weight:
            scale = unit.rule.scale if port not in weight_ports(op) else None
            spec = scale.spec() if scale is not None else self.weight
            self._place_shared(Site(value, op, port), spec, f"weight of {op.label}", unit)
        elif is_bias:
            self._place_bias(Site(value, op, port), f"bias of {op.label}", unit)
        else:
            spec = self._constant_spec(unit)
            self._place_shared(Site(value, op, port), spec, f"constant read by {unit.label}", unit)

    def _before_moves(self, value: Value) -> Value:
        """What data was before it was moved, on a target that runs in integers whatever it can."""
        while self.target.default.runs == "integer":
            producer = value.producer
            is_moved = producer is not None and self.units.is_carry(producer)
            source = producer.inputs[0] if producer is not None and is_moved else None
            has_grid = source is not None and is_plain_float(source) and not self.units.is_infinite(source)
            if source is None or not has_grid or not self.units.is_data(source):
                break
            value = source.original
        return value

    def _place_moved_constant(self, unit: Unit) -> None:
        value, op, port = next(iter(self.units.inputs(unit)), (None, None, 0))
        const = initializer(value)
        if value is None or op is None or port != 0 or const is None:
            return
        if not self._fits(value.original, const, self.activation.format):
            return self._skip_unfit(value, unit, self.activation.format)
        self._place_shared(Site(value, op, port), self.activation, f"constant moved by {unit.label}", unit)

    def _place_tables(self) -> None:
        """Places quantizers of the target on large tables whose rows are read as floats."""
        spec = self.target.weight.spec()
        for unit in self.units.units if _in_bytes(self.weight.format) else ():
            is_table = table_of(unit.root) in self._tables and unit.root not in self.units.left_float
            if is_table and has_rows_in_codes(self.scopes, self.target, unit.root):
                value = unit.root.inputs[0]
                assert value is not None
                self._place_shared(Site(value, unit.root, 0), spec, f"table of {unit.label}", unit)

    def _place_stored_weights(self, unit: Unit) -> None:
        """Places quantizers on the weights of a unit whose data stays float, in a format of the target."""
        recurrent = traits(unit.root).product == "recurrent"
        known = self.target.weight.has_kernels_for(self.weight.format) or not has_limits(self.weight.format)
        spec = self.target.weight.spec() if recurrent and not known else self.weight
        lacking = (
            ""
            if spec is self.weight
            else f"; {self.target.name} has no kernel for {self.weight.format} there"
        )
        for value, op, port in self.units.inputs(unit):
            axes = weight_axes(Use(op, port), value) if value.original.const is not None else None
            if axes is not None and (not op.is_type("Gather") or value.original in self._tables):
                self._place_shared(Site(value, op, port), spec, f"weight of {op.label}{lacking}", unit)

    def _reads_codes(self, unit: Unit) -> bool:
        """Whether data of a unit has a grid: beside a weight in codes it would be taken for an integer op."""
        return any(
            self._moved_from_grid(value.original) is not None
            for value, op, port in self.units.inputs(unit)
            if not self.units.is_weight(unit, op, port)
        )

    def _place_bias(self, site: Site, reason: str, unit: Unit) -> None:
        format = self.weight.format
        if isinstance(format, IntFormat):
            if self.has_biases:
                self._place(site, BIAS, reason, unit)
        elif not format.scaled:
            self._place_shared(site, self.weight, reason, unit)

    def _skip_unfit(self, constant: Value, unit: Unit, format: Format) -> None:
        reason = f"a constant that holds numbers {format} does not have"
        self.quant.skip(constant.original, reason, unit.rule.asked_by)

    def _fits(self, value: Value, const: TensorRef, format: Format) -> bool:
        """Whether a constant is finite, and stays so in a format (no grid has infinity)."""
        if (value, format) not in self._fitting:
            self._fitting[value, format] = holds(format, *const.extremes())
        return self._fitting[value, format]

    def _inherit(self, value: Value) -> bool:
        """Whether ``value`` is quantized already, or can carry on the grid of what it was moved from."""
        chain = self._moved_from_grid(value.original)
        for moved, producer in reversed(chain or ()):
            mover = self.units.unit_of(producer)
            self._place(Site(moved), self._activation_spec(moved), f"moved by {producer.label}", mover)
        return chain is not None

    def _moved_from_grid(self, value: Value) -> list[tuple[Value, Op]] | None:
        """The values on the way from one with a grid, with what moves each; None if there is no such."""
        chain = []
        current: Value | None = value
        while current is not None and self.quant.of_value(current) is None:
            producer = current.producer
            if producer is None or not self.units.is_carry(producer):
                return None
            chain.append((current, producer))
            source = producer.inputs[0]
            if source is not None and self.quant.of_use(source, producer, 0) is not None:
                break
            current = source.original if source is not None else None
        return chain

    def _place_read(self, value: Value, op: Op, port: int, reason: str, unit: Unit) -> None:
        spec = self._activation_spec(value)
        if self.units.all_readers_integer(value):
            self._place(Site(value.original), spec, reason, unit)
        else:
            reason = f"{reason}; other readers keep it in float"
            self._place_shared(Site(value, op, port), spec, reason, unit)

    def _place(self, site: Site, spec: QuantSpec, reason: str, unit: Unit) -> None:
        if self.quant.get(site) is None:
            self.quant.place(site, spec, reason, unit.rule.asked_by)

    def _place_shared(self, site: Site, spec: QuantSpec, reason: str, unit: Unit) -> None:
        """Places a quantizer at a use, the same one that other uses of the value hold if the specs agree."""
        if self.quant.get(site) is not None:
            return
        others = (q for alias in self.scopes.aliases(site.value) for q in self.quant.quantizers_on(alias))
        shared = next((quantizer for quantizer in others if quantizer.spec == spec), None)
        self.quant.place(site, shared or spec, reason, unit.rule.asked_by)

    def _constant_spec(self, unit: Unit) -> QuantSpec:
        """Of a constant that is no parameter; what is joined on one grid has that of the result."""
        if unit.rule.constant is not None:
            return unit.rule.constant.spec()
        is_joined = unit.rule.share_grid and joins_grids(unit.root)
        made = next(iter(self.units.outputs(unit)), None) if is_joined else None
        return self._activation_spec(made) if made is not None else self.activation

    def _activation_spec(self, value: Value) -> QuantSpec:
        producer = value.original.producer
        rule = self.units.unit_of(producer).rule if producer is not None else None
        format = self.activation.format
        if self._wider is not None and value.original in self._wide:
            format = self._wider
        limits = rule.range_in(format) if rule is not None else None
        if value.original in self._signed and isinstance(format, IntFormat):
            return QuantSpec(IntFormat(format.bits, signed=True), symmetric=True)
        return replace(self.activation, format=format, fixed_range=limits)


def _in_bytes(*formats: Format) -> bool:
    """Whether integers of at most 8 bits are computed with, which costs are measured for."""
    return all(isinstance(format, IntFormat) and format.bits <= 8 for format in formats)


def _wider_format(target: Target, format: Format) -> Format | None:
    """The format of 16 bits that tensors may have among others of 8, if ops in 8 round them again."""
    is_own = target.models.one_format and format == parse_format(target.activation.dtype)
    wider = target.activation.wider if is_own else None
    return parse_format(wider) if wider is not None else None


def _left_float(model: Model, target: Target, options: InsertQuantizers, format: Format) -> dict[Op, Reason]:
    """The ops that stay in float whatever the target has kernels for, with the reason."""
    found = dict(products_of_outliers(model, target)) | dict(weighed_by_data(model, target, format))
    if options.spectra == "float":
        found |= left_float_as_spectra(model, target)
    return found | options.left_out(model)
