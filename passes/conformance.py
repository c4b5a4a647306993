"""Whether the quantizers of a model are as a target wants them, whoever placed them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from qc.ir.base.fix_shape import fix_shape_options, free_axes
from qc.ir.facts.constants import fixed_constant
from qc.ir.facts.dataflow import is_plain_float
from qc.ir.facts.op_traits import bias_port, channel_axis, joins_grids, weight_port, weight_ports
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.arithmetic import codes_of
from qc.ir.quant.formats import FloatFormat, Format, IntFormat, has_limits, parse_format
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, PerTensor, Quantizer

from .framework.target import Target
from .framework.target_rules import FormatRule
from .framework.target_support import weight_form
from .quantize.calibration.pairs import integer_uses, largest_sums
from .quantize.placement.signed_operands import operands
from .quantize.placement.unit import Unit
from .quantize.placement.units import Input, UnitMap
from .simplify.decompositions.ranks import has_more, most_dimensions, too_many


class Violation(NamedTuple):
    """A rule of a target that a model does not meet.

    Attributes:
        op: the op that cannot run in integers for it; None if it concerns the model as a whole.
        rule: the rule, in a word or two.
        text: what is wrong, in one sentence that names the tensor.
    """

    op: Op | None
    rule: str
    text: str

    @property
    def is_placement(self) -> bool:
        """Whether something is not quantized that should be, or the other way round."""
        return self.rule in _PLACEMENT


_PLACEMENT = ("float input", "float bias", "quantized bias", "no output quantizer", "placement")


def violations(model: Model, target: Target) -> list[Violation]:
    """The rules of a target that the quantizers of a model break, in the order of its ops.

    Only ops that read something quantized are judged: what nobody quantized runs in float, which is no fault.
    Where weights alone are quantized nothing is to run in integers, and rules for that do not apply.

    Args:
        model: a float model with quantizers, its supergroups matched for the target.
        target: the target.
    """
    on_purpose = quantizes_weights_alone(model)
    found = _Conformance(model, target).run()
    return [one for one in found if one.op is None or not on_purpose]


def quantizes_weights_alone(model: Model) -> bool:
    """Whether constants have quantizers, and no tensor that is computed has one."""
    sites = model.quant.sites()
    return bool(sites) and all(site.value.original.const is not None for site in sites)


class _Conformance:
    def __init__(self, model: Model, target: Target) -> None:
        self._model = model
        self._target = target
        self._quant = model.quant
        self._units = UnitMap(model, target)
        self._symmetric = {(op, port) for _, op, port in operands(self._units)}

    def run(self) -> Iterator[Violation]:
        yield from self._opset()
        yield from self._shapes()
        yield from self._kinds()
        for unit in self._units.units:
            if unit in self._units.integer and self._reads_grid(unit):
                yield from self._unit(unit)
            elif self._units.is_carry(unit.root):
                yield from self._moved(unit.root)

    def _opset(self) -> Iterator[Violation]:
        latest = self._target.models.latest_opset
        if self._model.opset > latest:
            text = f"its opset is {self._model.opset}; {self._target.name} reads models up to opset {latest}"
            yield Violation(None, "opset", f"{text}: export the float model with that or an older one")

    def _shapes(self) -> Iterator[Violation]:
        for value in self._model.graph.inputs if self._target.models.static_shapes else ():
            shape = value.type.shape if value.type.shape is not None else (None,)
            free = {f"{value.name}[{axis}]": name for axis, name in free_axes(value.name, shape).items()}
            if free:
                first, options = next(iter(free.values())), fix_shape_options(free)
                text = f"the input '{value.name}' has the free dimension '{first}'; all must be known"
                yield Violation(None, "static shapes", f"{text}: {options}")

    def _kinds(self) -> Iterator[Violation]:
        """Whether integers and small floats meet in a model that may have one of them."""
        weight_only = self._target.weight.is_weight_only
        specs = (quantizer.spec for quantizer in self._quant.quantizers())
        formats = [spec.format for spec in specs if not spec.derived and not weight_only(spec.format)]
        integer = next((one for one in formats if isinstance(one, IntFormat)), None)
        other = next((one for one in formats if not isinstance(one, IntFormat)), None)
        if self._target.models.one_kind and integer is not None and other is not None:
            text = f"it has both {integer} and {other}; {self._target.name} runs a model in one of them"
            yield Violation(None, "mixed formats", text)

    def _reads_grid(self, unit: Unit) -> bool:
        return any(self._quant.of_use(value, op, port) for value, op, port in self._units.inputs(unit))

    def _unit(self, unit: Unit) -> Iterator[Violation]:
        only = unit.rule.written_as if unit.rule.runs != "float" else None
        if only is not None and not unit.root.is_type(only):
            text = f"it is written out in {len(unit.ops)} ops; {self._target.name} runs it only as {only}"
            yield Violation(unit.root, "single op", text)
        for op in unit.ops:
            if has_more(self._target, op):
                most = most_dimensions(self._target, op)
                many = too_many(self._target, op)
                text = f"it has {many} dimensions; {self._target.name} runs it in {most} at most"
                yield Violation(op, "dimensions", text)
        for read in self._units.inputs(unit):
            yield from self._input(unit, read)
        fused = self._units.fused_input(unit)
        if fused is not None and self._quant.of_value(fused) is not None:
            text = f"'{fused.name}' is quantized, so what makes it cannot run as one with it"
            yield Violation(unit.root, "placement", text)
        for value in self._units.outputs(unit):
            yield from self._output(unit, value)
        if unit.rule.share_grid and joins_grids(unit.root):
            yield from self._joined(unit)
        if self._target.models.one_format:
            yield from self._mixed(unit)

    def _mixed(self, unit: Unit) -> Iterator[Violation]:
        """Whether data of several formats meets in an op of a device that computes in one."""
        data = [
            self._quant.of_use(value, op, port)
            for value, op, port in self._units.inputs(unit)
            if not (self._units.is_weight(unit, op, port) or self._units.is_bias(unit, value, op, port))
            if value.original.const is None or unit.rule.constant is None
        ]
        made = [self._quant.of_value(value) for value in self._units.outputs(unit)]
        formats = dict.fromkeys(str(one.spec.format) for one in (*data, *made) if one is not None)
        if len(formats) > 1:
            text = f"it has {' and '.join(formats)} data; {self._target.name} computes in one format"
            yield Violation(unit.root, "type combination", text)

    def _input(self, unit: Unit, read: Input) -> Iterator[Violation]:
        value, op, port = read
        quantizer = self._quant.of_use(value, op, port)
        constant = value.original.const is not None
        is_weight = constant and self._units.is_weight(unit, op, port)
        if constant and self._units.is_bias(unit, value, op, port):
            yield from self._bias(unit, op, value, quantizer)
        elif quantizer is None and port == bias_port(op) and _is_stored_for("DequantizeLinear", value):
            return  # codes that float32 cannot hold, which stay as they are
        elif quantizer is None and port == bias_port(op) and _is_stored_for("Cast", value):  # as float16
            yield from self._bias(unit, op, value, None)
        elif quantizer is None and not self._has_weight_only(op):
            what = "weight" if is_weight else "constant" if constant else "tensor"
            yield Violation(op, "float input", f"it reads the {what} '{value.name}' in float")
        elif quantizer is None:
            return
        elif is_weight:
            yield from self._weight(unit, op, port, value, quantizer)
        else:
            rule = unit.rule.constant if constant else None
            yield from self._activation(op, port, value, quantizer, rule or self._target.activation)

    def _has_weight_only(self, op: Op) -> bool:
        """Whether the weight of an op is in a format for float data."""
        held = self._weight_format(op)
        return held is not None and self._target.weight.is_weight_only(held)

    def _weight_format(self, op: Op) -> Format | None:
        port = weight_port(op)
        weight = op.inputs[port] if port is not None else None
        held = self._quant.of_use(weight, op, port) if weight is not None and port is not None else None
        return held.spec.format if held is not None else None

    def _bias(self, unit: Unit, op: Op, value: Value, quantizer: Quantizer | None) -> Iterator[Violation]:
        wanted = self._target.quantize_bias
        if quantizer is None and wanted:
            yield Violation(op, "float bias", f"its bias '{value.name}' is not quantized to int32")
        elif quantizer is not None and not wanted:
            yield Violation(op, "quantized bias", f"its bias '{value.name}' is quantized; it must be float")
        elif quantizer is not None and quantizer.spec.format not in self._formats_of_bias(unit):
            text = f"its bias '{value.name}' is {quantizer.spec.format}, not int32"
            yield Violation(op, "type", text)

    def _formats_of_bias(self, unit: Unit) -> tuple[Format, ...]:
        """What accumulators have, and beside a weight of floats that of the weight."""
        of_weights = (held for op in unit.ops if isinstance(held := self._weight_format(op), FloatFormat))
        return (IntFormat(32, signed=True), *of_weights)

    def _weight(
        self, unit: Unit, op: Op, port: int, value: Value, quantizer: Quantizer
    ) -> Iterator[Violation]:
        scale = unit.rule.scale if port not in weight_ports(op) else None
        rule = scale or self._target.weight
        granularity, taken = quantizer.spec.granularity, self._is_taken(op, quantizer)
        if rule.is_weight_only(quantizer.spec.format):
            yield from self._multiplied(op, value, quantizer)
        elif rule.allows(quantizer.spec.format) or _fits(rule, value, quantizer):
            yield from self._zero_point(op, value, quantizer, rule)
        elif not taken:
            yield self._wrong_type(op, value, quantizer, rule)
        if taken is False:
            yield self._refused(op, value, quantizer)
        yield from self._pairs(op, port, value, quantizer)
        if isinstance(granularity, PerBlock) and not rule.blocks:
            text = f"the weight '{value.name}' has a scale for every block; there is one for every channel"
            yield Violation(op, "granularity", text)
        if not isinstance(granularity, PerChannel):
            return
        if not self._target.rule_for(op.op_type, op.domain).per_channel:
            text = f"the weight '{value.name}' has a scale for every channel; {op.op_type} takes one"
            yield Violation(op, "granularity", text)
        elif granularity.axis != (axis := channel_axis(op, value.original)):
            text = f"the scales of the weight '{value.name}' are along axis {granularity.axis}, not {axis}"
            yield Violation(op, "axis", text)

    def _is_taken(self, op: Op, weight: Quantizer) -> bool | None:
        """Whether the runtime was seen to take such a weight beside such data; None if it was not asked."""
        support, data = self._target.support, self._data_format(op)
        seen = support.ops.get(op.op_type) if support is not None and not op.domain else None
        if seen is None or data is None or not seen.weights:
            return None
        return seen.takes(str(data), weight_form(weight.spec.format, weight.spec.granularity))

    def _data_format(self, op: Op) -> Format | None:
        data = op.inputs[0]
        held = self._quant.of_use(data, op, 0) if data is not None else None
        return held.spec.format if held is not None else None

    def _refused(self, op: Op, value: Value, weight: Quantizer) -> Violation:
        support, form = self._target.support, weight_form(weight.spec.format, weight.spec.granularity)
        assert support is not None
        text = f"{support.runtime} takes no weight of '{form}' beside {self._data_format(op)} data"
        return Violation(op, "support", f"{text}, as '{value.name}' is")

    def _pairs(self, op: Op, port: int, weight: Value, quantizer: Quantizer) -> Iterator[Violation]:
        """Whether two products of a weight are added within 16 bits, where the device adds them so."""
        most, constant = self._target.grids.most_pair_sum, weight.original.const
        format = quantizer.spec.format
        is_signed = isinstance(format, IntFormat) and format.signed  # kernels of others have wider sums
        if not most or constant is None or quantizer.encoding is None or not is_signed:
            return
        if (op, port) not in integer_uses(self._model, quantizer):
            return
        codes = codes_of(constant.numpy(), quantizer).astype(np.int32)
        largest = int(largest_sums(op, codes, PerTensor()))
        if largest > most:
            text = f"neighbouring codes of the weight '{weight.name}' add up to {largest}"
            yield Violation(op, "saturation", f"{text}; above {most} sums saturate on {self._target.name}")

    def _multiplied(self, op: Op, weight: Value, quantizer: Quantizer) -> Iterator[Violation]:
        """Whether what is multiplied with a weight for float data is float."""
        data = op.inputs[0]
        if data is not None and self._quant.of_use(data, op, 0) is not None:
            taken = f"{self._target.name} multiplies with float data only"
            text = f"the weight '{weight.name}' is {quantizer.spec.format}, which {taken}"
            yield Violation(op, "type", f"{text}, and '{data.name}' is quantized")

    def _activation(
        self, op: Op, port: int, value: Value, quantizer: Quantizer, rule: FormatRule
    ) -> Iterator[Violation]:
        encoding = quantizer.encoding
        if not rule.allows(quantizer.spec.format):
            yield self._wrong_type(op, value, quantizer, rule)
        else:
            wanted = rule.model_copy(update={"symmetric": rule.symmetric or (op, port) in self._symmetric})
            yield from self._zero_point(op, value, quantizer, wanted)
        if not isinstance(quantizer.spec.granularity, PerTensor):
            text = f"'{value.name}' has a scale for every channel; activations have one"
            yield Violation(op, "granularity", text)
        elif encoding is not None and self._is_narrow(encoding) and not _is_zero(value.original):
            text = f"the range of '{value.name}' is smaller than {self._target.grids.minimum_range:g}"
            yield Violation(op, "range", text)

    def _is_narrow(self, encoding: Encoding) -> bool:
        least = self._target.grids.minimum_range * (1 - 1e-6)  # but for rounding in float32
        return least > 0 and float(encoding.maximum) - float(encoding.minimum) < least

    def _wrong_type(self, op: Op, value: Value, quantizer: Quantizer, rule: FormatRule) -> Violation:
        text = f"'{value.name}' is {_made(quantizer)}; {self._target.name} takes {rule.known}"
        return Violation(op, "type", text)

    def _zero_point(
        self, op: Op, value: Value, quantizer: Quantizer, rule: FormatRule
    ) -> Iterator[Violation]:
        format, encoding = quantizer.spec.format, quantizer.encoding
        if not rule.symmetric or not isinstance(format, IntFormat):
            return
        symmetric = quantizer.spec.symmetric
        if encoding is not None:
            symmetric = bool((encoding.zero_point == format.middle).all())
        if not symmetric:
            yield Violation(op, "symmetric", f"the zero point of '{value.name}' is not {format.middle}")

    def _output(self, unit: Unit, value: Value) -> Iterator[Violation]:
        if unit.rule.output == "always" and not self._is_rounded(value):
            yield Violation(unit.root, "no output quantizer", f"its result '{value.name}' is not quantized")
        quantizer, taken = self._quant.of_value(value), self._target.activation
        if quantizer is not None and not taken.allows(quantizer.spec.format):
            text = f"its result '{value.name}' is {_made(quantizer)}"
            yield Violation(unit.root, "type", f"{text}; {self._target.name} takes {taken.known}")
        encoding = quantizer.encoding if quantizer is not None else None
        limits = unit.rule.output_ranges.get(str(encoding.spec.format)) if encoding is not None else None
        if encoding is None or limits is None:
            return
        meant = encoding_of_range(encoding.spec, *np.asarray(limits))
        same = np.allclose(encoding.scale, meant.scale, rtol=1e-6, atol=0)
        if not same or encoding.zero_point != meant.zero_point:
            text = f"the scale of its result '{value.name}' must be {float(meant.scale):.8g}"
            yield Violation(unit.root, "fixed range", f"{text}, with the zero point {int(meant.zero_point)}")

    def _is_rounded(self, value: Value) -> bool:
        """Whether all who see a value see it rounded."""
        if self._quant.of_value(value) is not None:
            return True
        uses = list(self._units.scopes.uses(value))
        rounded = all(isinstance(p, int) and self._quant.of_use(value, op, p) is not None for op, p in uses)
        return bool(uses) and rounded and not self._units.scopes.leaves(value)

    def _joined(self, unit: Unit) -> Iterator[Violation]:
        """Whether all that a join reads and makes has one grid."""
        reads = self._units.inputs(unit)
        found = [self._quant.of_use(value, op, port) for value, op, port in reads]
        made = [self._quant.of_value(value) for value in self._units.outputs(unit)]
        if not any(made):
            return
        found += made
        encodings = [one.encoding for one in found if one is not None and one.encoding is not None]
        if any(not encodings[0].equals(other) for other in encodings[1:]):
            yield Violation(unit.root, "shared grid", "not all that it joins and its result have one grid")

    def _moved(self, op: Op) -> Iterator[Violation]:
        source = op.inputs[0]
        before = self._quant.of_use(source, op, 0) if source is not None else None
        for value in op.outputs:
            after = self._quant.of_value(value) if value is not None and is_plain_float(value) else None
            if before is None or after is None or before.encoding is None or after.encoding is None:
                continue
            joined = value is not None and all(joins_grids(use.op) for use in value.uses)
            if joined and not self._target.lowering.rounds_moved:
                continue  # the pair stands for the join, as none does for what is moved
            if value is not None and not before.encoding.equals(after.encoding):
                text = f"it moves data, and its result '{value.name}' has another grid than its input"
                yield Violation(op, "shared grid", text)


def _is_zero(value: Value) -> bool:
    """Whether a value is a constant of zeros, which any range holds."""
    return value.const is not None and not any(value.const.extremes())


def _fits(rule: FormatRule, weight: Value, quantizer: Quantizer) -> bool:
    """Whether the codes of a weight lie within a narrower format stored alike, such as 7 bits in 8."""
    wanted, given = parse_format(rule.dtype), quantizer.spec.format
    if not isinstance(wanted, IntFormat) or not isinstance(given, IntFormat):
        return False
    const, encoding = weight.original.const, quantizer.encoding
    if const is None or encoding is None:
        return False
    if (wanted.storage_bits, wanted.signed) != (given.storage_bits, given.signed):
        return False
    codes = np.asarray(codes_of(const.numpy(), quantizer))
    return bool(codes.min(initial=0) >= wanted.lowest and codes.max(initial=0) <= wanted.highest)


def _is_stored_for(op_type: str, value: Value) -> bool:
    """Whether it is what an op of that type makes of a constant."""
    producer = value.producer
    read = producer.inputs if producer is not None and producer.is_type(op_type) else ()
    return bool(read) and fixed_constant(read[0]) is not None


def _made(quantizer: Quantizer) -> str:
    """What a quantizer makes of a tensor, in words: a float of 16 bits is no code."""
    format = quantizer.spec.format
    return f"{'quantized' if has_limits(format) else 'rounded'} to {format}"
