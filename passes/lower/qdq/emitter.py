"""The QuantizeLinear, DequantizeLinear and Cast ops that round tensors, and the constants that they read."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
from onnx import TensorProto

from qc.ir.errors import UsageError
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.scopes import CONTROL_FLOW, Captures, captured_values
from qc.ir.graph import Graph, Use, Value
from qc.ir.model import Model
from qc.ir.quant.arithmetic import codes_of, dequantize, quantize, rounded
from qc.ir.quant.formats import WIDEST_FREE, IntFormat
from qc.ir.quant.spec import Encoding, Quantizer, TwoLevelBlock
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef
from qc.ir.value_type import ValueType

from ..rounding.rewire import numbers
from .moved_pairs import needs_extension, needs_no_zero_point
from .onnx_grids import (
    OLDEST_OPSET,
    extension_knows,
    granularity_attributes,
    in_onnx,
    is_cast,
    opset_needed,
)


class Emitter:
    """Adds the ops; quantizers that are tied share their scale and zero point within a graph.

    Constants are stored once, where they are; the bodies that capture one dequantize it themselves. Those on
    a grid of ``widened`` are stored with one code in each byte. ``sees_through`` says that there are no ops
    behind what moves data.
    """

    def __init__(
        self,
        model: Model,
        rewriter: Rewriter,
        extension: str,
        as_codes: bool,
        widened: Set[Quantizer],
        sees_through: bool,
    ) -> None:
        self._model = model
        self._rewriter = rewriter
        self._extension = extension
        self._as_codes = as_codes
        self._widened = widened
        self._sees_through = sees_through
        self._captures = Captures(rewriter)
        self._stored: dict[tuple[Value, Quantizer], Value] = {}
        self._parameters: dict[tuple[Graph, Quantizer], tuple[Value, ...]] = {}
        self._names: dict[Value, str] = {}
        self._rounded_from: dict[Value, Value] = {}

    def round_value(self, value: Value, quantizer: Quantizer) -> Value:
        """A new value: ``value`` rounded to the grid of ``quantizer``."""
        encoding = in_onnx(self._numbers(quantizer, value), quantizer in self._widened)
        parameters = () if is_cast(encoding) else self._scale_and_zero_point(value, quantizer, encoding)
        codes = self._codes(value, quantizer, encoding, parameters)
        type = value.original.type
        if parameters:
            inputs = (codes, *parameters)
            result = self._add_rounding("DequantizeLinear", inputs, value, encoding, type)
        else:
            result = self._add("Cast", (codes,), value, {"to": TensorProto.FLOAT}, "", type)
        self._names[result] = self._name(value)
        self._rounded_from[result] = value.original
        return result

    def _numbers(self, quantizer: Quantizer, value: Value) -> Encoding:
        """The grid of a tensor, which may have been rounded to it already."""
        return numbers(quantizer, self._rounded_from.get(value.original, value))

    def _name(self, value: Value) -> str:
        """The name of the tensor, also for what it was rounded to."""
        return self._names.get(value.original, value.name)

    def round_again_inside(self, rounded: dict[Value, Quantizer]) -> None:
        """Repeats the rounding of a captured tensor in the bodies that compute with it.

        That changes no number, but runtimes look for integer ops within one graph. What only moves data reads
        the tensor as it is: in a loop it may pick a small part of it at each iteration.
        """
        inside = captured_values(list(self._model.graphs()))
        for value, quantizer in rounded.items():
            scaled = not is_cast(self._numbers(quantizer, value))
            for alias in inside.get(value, ()) if scaled else ():
                readers = [(use.op, use.port) for use in alias.uses if _computes(use)]
                local = self.round_value(alias, quantizer) if readers else alias
                for op, port in readers:
                    assert isinstance(port, int)
                    self._rewriter.set_input(op, port, local)

    def _codes(
        self, value: Value, quantizer: Quantizer, encoding: Encoding, parameters: tuple[Value, ...]
    ) -> Value:
        """The codes of a tensor; the numbers themselves in a format that has no scale."""
        kind, constant = encoding.spec.format.onnx_type, value.original
        as_codes = self._as_codes or encoding.spec.format.bits > WIDEST_FREE  # which no QuantizeLinear makes
        if constant.const is not None and (constant, quantizer) not in self._stored:
            make = self._constant if as_codes else self._limited
            self._stored[constant, quantizer] = make(constant, quantizer, encoding)
        source, is_constant = value, False
        # A body that captures a dequantized constant dequantizes it itself.
        for behind in (constant, self._rounded_from.get(constant, constant)):
            if (behind, quantizer) in self._stored:
                source, is_constant = self._captures.into(value.graph, self._stored[behind, quantizer]), True
        if is_constant and as_codes:
            return source
        type = ValueType(kind, value.original.type.shape)
        if parameters:
            if not is_constant:
                _check_full_range(value, encoding)
            return self._add_rounding("QuantizeLinear", (source, *parameters), value, encoding, type)
        return self._add("Cast", (source,), value, {"to": kind}, "", type)

    def _add_rounding(
        self, op_type: str, inputs: tuple[Value, ...], value: Value, encoding: Encoding, type: ValueType
    ) -> Value:
        attributes = granularity_attributes(encoding)
        if op_type == "QuantizeLinear" and len(inputs) == 2:  # without a zero point that has the type
            attributes["output_dtype"] = type.elem_type
        return self._add(op_type, inputs, value, attributes, self._domain(value, encoding), type)

    def _add(
        self,
        op_type: str,
        inputs: tuple[Value, ...],
        value: Value,
        attributes: dict[str, int],
        domain: str,
        type: ValueType,
    ) -> Value:
        """The result of a new op that stands for ``value``."""
        name = f"{self._name(value)}_{op_type}"
        result = self._rewriter.add_value(value.graph, f"{name}_Output", type)
        self._rewriter.add_op(value.graph, op_type, inputs, [result], attributes, domain, name)
        return result

    def _constant(self, value: Value, quantizer: Quantizer, encoding: Encoding) -> Value:
        assert value.const is not None
        format, data = encoding.spec.format, value.const.numpy()
        if is_cast(encoding):
            codes, suffix = data.astype(np.float32), str(format)
        elif quantizer.spec.shifted:
            codes, suffix = quantize(rounded(data, quantizer), encoding), "quantized"
        else:
            codes, suffix = codes_of(data, quantizer), "quantized"
        tensor = TensorRef.from_array(codes, format.onnx_type)
        return self._rewriter.add_constant(value.graph, tensor, f"{value.name}_{suffix}")

    def _limited(self, value: Value, quantizer: Quantizer, encoding: Encoding) -> Value:
        """The float constant, limited to its grid where QuantizeLinear would use codes beyond."""
        assert value.const is not None
        if not isinstance(encoding.spec.format, IntFormat):
            return value
        array, grid = value.const.numpy(), numbers(quantizer, value)
        ends = (dequantize(np.full(array.shape, code, np.int32), grid) for code in grid.spec.code_range)
        is_rounded = grid.spec.shifted or quantizer.codes is not None
        limited = rounded(array, quantizer) if is_rounded else np.clip(array, *ends)
        if np.array_equal(limited, array):
            return value
        if self._model.quant.sites_on(value) != [Site(value)]:  # others read it as it is
            return self._rewriter.add_constant(value.graph, limited, f"{value.name}_limited")
        self._rewriter.set_constant(value, limited)
        return value

    def _scale_and_zero_point(
        self, value: Value, quantizer: Quantizer, encoding: Encoding
    ) -> tuple[Value, ...]:
        """The inputs behind the codes: the scale, and the zero point where it is written."""
        key = (value.graph, quantizer)
        if key not in self._parameters:
            name = self._name(value)
            self._parameters[key] = (self._scale(value.graph, encoding, f"{name}_scale"),)
            if not self._has_no_zero_point(value, encoding):
                zero_point = TensorRef.from_array(encoding.zero_point, encoding.spec.format.onnx_type)
                zeros = self._rewriter.add_constant(value.graph, zero_point, f"{name}_zero_point")
                self._parameters[key] += (zeros,)
        return self._parameters[key]

    def _has_no_zero_point(self, value: Value, encoding: Encoding) -> bool:
        """Whether zeros are left out: those of biases, and those that ONNX Runtime would stumble over."""
        if encoding.spec.format.bits > WIDEST_FREE:
            return True
        return value.original.const is None and needs_no_zero_point(value, encoding, self._sees_through)

    def _scale(self, graph: Graph, encoding: Encoding, name: str) -> Value:
        """The scale as a constant; of two-level blocks as integers, dequantized with a scale per channel."""
        granularity = encoding.spec.granularity
        if not isinstance(granularity, TwoLevelBlock):
            return self._rewriter.add_constant(graph, encoding.scale, name)
        integers, of_channel = granularity.levels(encoding.scale)
        width = 8 if granularity.scale_bits < 8 else 16  # the largest is 2^scale_bits
        codes = self._rewriter.add_constant(graph, integers.astype(f"uint{width}"), f"{name}_quantized")
        second = self._rewriter.add_constant(graph, of_channel.ravel(), f"{name}_scale")
        result = self._rewriter.add_value(graph, name, ValueType(TensorProto.FLOAT, integers.shape))
        attributes = {"axis": granularity.channel_axis}
        op_name = f"{name}_DequantizeLinear"
        self._rewriter.add_op(graph, "DequantizeLinear", (codes, second), [result], attributes, "", op_name)
        return result

    def _domain(self, value: Value, encoding: Encoding) -> str:
        """The standard domain if the model's opset can say it, else the target's extension domain.

        That is also where grids are that ONNX Runtime refuses in the standard one.
        """
        needed = opset_needed(encoding)
        is_refused = value.original.const is None and needs_extension(self._model, encoding)
        if self._model.opset >= needed and not (is_refused and self._extension):
            return ""
        if not self._extension or self._model.opset < OLDEST_OPSET or not extension_knows(encoding):
            raise UsageError(
                f"'{value.name}' is quantized to {encoding.spec}, which needs opset {needed}; "
                f"the model has {self._model.opset}: convert it first, or leave opset=keep out"
            )
        if self._extension not in self._model.opset_imports:
            self._rewriter.set_opset(self._extension, 1)
        return self._extension


def _computes(use: Use) -> bool:
    """Whether an op does arithmetic with what it reads there, and neither rounds it nor only moves it."""
    reads = isinstance(use.port, int) and not use.op.is_type(*CONTROL_FLOW)
    rounds = use.op.op_type in ("QuantizeLinear", "DequantizeLinear", "Cast")
    return reads and not rounds and not is_grid_preserving(use.op)


def _check_full_range(value: Value, encoding: Encoding) -> None:
    """QuantizeLinear saturates at the limits of the type, so an activation must use all its codes."""
    format = encoding.spec.format
    if not isinstance(format, IntFormat):
        return
    if format.bits not in (2, 4, 8, 16) or encoding.spec.narrow:
        raise UsageError(
            f"'{value.name}' is quantized to {encoding.spec}, which QuantizeLinear cannot express for "
            "activations: use 2, 4, 8 or 16 bits that are not narrow, or --passes that end in to-simulation "
            "instead of insert-qdq"
        )
