"""Lowers to standard ONNX: QuantizeLinear and DequantizeLinear around everything that is quantized."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from onnx import TensorProto

from qc.ir.errors import UsageError
from qc.ir.facts.equal_constants import share_constants
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.scopes import CONTROL_FLOW, Captures, captured_values
from qc.ir.graph import Graph, Use, Value, ValueType
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.arithmetic import codes_of, dequantize, quantize, rounded
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, Quantizer, TwoLevelBlock
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ..framework.base import Pass, Stage, option
from ..framework.context import Artifact, PassContext
from ..framework.target_rules import Storage
from .qdq.dequantize_outside import dequantize_outside
from .qdq.fit_kernels import fit_kernels
from .qdq.keep_float import keep_float
from .qdq.newer_opset import in_opset
from .qdq.round_captures import round_captures
from .rounding.rewire import numbers, rewire

# The first opset with QuantizeLinear. Below it ONNX Runtime takes its own version of that operator, and fuses
# it to operators that only later opsets have.
OLDEST_OPSET = 10
_WIDEST_QUANTIZED = 16  # bits; QuantizeLinear makes no 32-bit integers, which only DequantizeLinear takes
_BYTE = IntFormat(8, signed=True)
_IN_BYTES = (
    "weights of fewer than 8 bits are stored with one code in each byte, which is quicker; "
    "insert-qdq{storage=packed} makes a smaller file"
)


@dataclass(frozen=True)
class InsertQdq(Pass):
    """Makes an ONNX model with QuantizeLinear and DequantizeLinear (Cast pairs for 16-bit floats).

    Weights and biases are stored quantized, with a DequantizeLinear behind them; with ``weights=float``
    weights stay float with both ops behind them, limited to what their grid reaches, which gives the same
    codes. Weights of fewer than 8 bits are packed, several in a byte, or with ``storage=int8`` stored with
    one code in each byte, unless there is a scale for every block: the same numbers in twice the bytes of
    int4, for devices that would unpack them in every run, as ONNX Runtime does on CPUs. Types and
    granularities that the model's opset does not have use the operators of the target's extension domain;
    where that does not have them either, ``opset=raise`` converts the model. Shifted int2 weights become int4
    with the same numbers. A convolution on somewhat fewer input channels than the target wants (a picture has
    three) gets more, with codes and weights of zero. Where the target has a quicker kernel for weights whose
    zero points are not 0, codes and zero points of a convolution are one lower than they are in the
    simulation. Both change no result, and ``import-qdq`` undoes them. Where the target has kernels for it, a
    large LSTM or GRU multiplies the codes of its weights with its data, which is quantized as it comes, the
    GRU as a Scan, which ``import-qdq`` leaves; other recurrent ops have their weights dequantized once, when
    ONNX Runtime loads the model.

    ONNX Runtime quantizes float weights, and float biases, between quantized data by itself, which may ruin
    the result: a LeakyRelu of slope 1 behind such a convolution or product keeps it float, and ``import-qdq``
    takes it away.

    What an op only moves to where a body of If, Loop or Scan captures it is rounded to its grid once more, as
    ONNX Runtime cannot open such a model otherwise. Codes and zero points that are equal within a graph are
    stored once.
    """

    name = "insert-qdq"
    stage = Stage.LOWER

    weights: Literal["codes", "float"] = option(
        "codes", "store weights as codes, or in float to be quantized"
    )
    opset: Literal["keep", "raise"] = option(
        "keep", "what to do if a grid needs a newer opset: refuse it, or convert the model"
    )
    storage: Storage | None = option(
        None, "how weights of fewer than 8 bits are stored: packed, or each in a byte; default: the target's"
    )
    pad_channels: bool = option(True, "give a convolution as many input channels as the target wants")
    shift_weights: bool = option(True, "give weights zero points of -1 where the target wants it")
    fit_recurrent: bool = option(True, "write recurrent ops as the target has quick kernels for them")

    def run(self, model: Model, context: PassContext) -> None:
        extension = context.target.extension_domain if context.target is not None else ""
        stored = context.target.weight.storage if context.target is not None else "packed"
        in_bytes = (self.storage or stored) == "int8"
        if self.opset == "raise":
            model = in_opset(model, _opset_needed_by(model, extension, in_bytes))
        rewriter = Rewriter(model)
        with rewriter.trial():
            widened = _of_short_codes(model) if in_bytes else frozenset()
            if widened:
                context.notes.append(_IN_BYTES)
            emitter = _Emitter(model, rewriter, extension, self.weights == "codes", widened)
            emitter.round_again_inside(rewire(model, rewriter, emitter.round_value))
            if context.target is not None:
                wanted = self.pad_channels, self.shift_weights, self.fit_recurrent
                fit_kernels(model, rewriter, context.target, *wanted)
            if context.target is None or context.target.provider:
                keep_float(model, rewriter)
            round_captures(model, rewriter)
            dequantize_outside(model, rewriter)
            for graph in model.graph.walk():
                share_constants(rewriter, [value for value in graph.values() if _is_storage(value)])
            context.add_artifact("qdq", Artifact("onnx", lower(model), ".onnx"))


class _Emitter:
    """Adds the ops; quantizers that are tied share their scale and zero point within a graph.

    Constants are stored once, where they are; the bodies that capture one dequantize it themselves. Those on
    a grid of ``widened`` are stored with one code in each byte.
    """

    def __init__(
        self, model: Model, rewriter: Rewriter, extension: str, as_codes: bool, widened: Set[Quantizer]
    ) -> None:
        self._model = model
        self._rewriter = rewriter
        self._extension = extension
        self._as_codes = as_codes
        self._widened = widened
        self._captures = Captures(rewriter)
        self._stored: dict[tuple[Value, Quantizer], Value] = {}
        self._parameters: dict[tuple[Graph, Quantizer], tuple[Value, ...]] = {}
        self._names: dict[Value, str] = {}
        self._rounded_from: dict[Value, Value] = {}

    def round_value(self, value: Value, quantizer: Quantizer) -> Value:
        """A new value: ``value`` rounded to the grid of ``quantizer``."""
        encoding = _in_onnx(self._numbers(quantizer, value), quantizer in self._widened)
        parameters = () if _is_cast(encoding) else self._scale_and_zero_point(value, quantizer, encoding)
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
            scaled = not _is_cast(self._numbers(quantizer, value))
            for alias in inside.get(value, ()) if scaled else ():
                readers = [(use.op, use.port) for use in alias.graph.uses(alias) if _computes(use)]
                local = self.round_value(alias, quantizer) if readers else alias
                for op, port in readers:
                    assert isinstance(port, int)
                    self._rewriter.set_input(op, port, local)

    def _codes(
        self, value: Value, quantizer: Quantizer, encoding: Encoding, parameters: tuple[Value, ...]
    ) -> Value:
        """The codes of a tensor; the numbers themselves in a format that has no scale."""
        kind, constant = encoding.spec.format.onnx_type, value.original
        as_codes = self._as_codes or encoding.spec.format.bits > _WIDEST_QUANTIZED
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
        attributes = _granularity_attributes(encoding)
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
        if _is_cast(encoding):
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
        return self._rewriter.add_constant(value.graph, limited, f"{value.name}_limited")

    def _scale_and_zero_point(
        self, value: Value, quantizer: Quantizer, encoding: Encoding
    ) -> tuple[Value, ...]:
        """The inputs behind the codes; those of a bias, whose zero points are 0, are its scales alone."""
        key = (value.graph, quantizer)
        if key not in self._parameters:
            name = self._name(value)
            self._parameters[key] = (self._scale(value.graph, encoding, f"{name}_scale"),)
            if encoding.spec.format.bits <= _WIDEST_QUANTIZED:
                zero_point = TensorRef.from_array(encoding.zero_point, encoding.spec.format.onnx_type)
                zeros = self._rewriter.add_constant(value.graph, zero_point, f"{name}_zero_point")
                self._parameters[key] += (zeros,)
        return self._parameters[key]

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
        """The standard domain if the model's opset can say it, else the target's extension domain."""
        needed = _opset_needed(encoding)
        if self._model.opset >= needed:
            return ""
        if not self._extension or self._model.opset < OLDEST_OPSET or not _extension_knows(encoding):
            raise UsageError(
                f"'{value.name}' is quantized to {encoding.spec}, which needs opset {needed}; "
                f"the model has {self._model.opset}: convert it first, or let insert-qdq{{opset=raise}} do it"
            )
        if self._extension not in self._model.opset_imports:
            self._rewriter.set_opset(self._extension, 1)
        return self._extension


def _is_storage(value: Value) -> bool:
    """Whether a value is a constant, and no single scale: those that are one constant say what is tied."""
    return value.const is not None and not (value.is_float and value.const.size == 1)


def _of_short_codes(model: Model) -> frozenset[Quantizer]:
    """The quantizers of constants alone whose codes have fewer than 8 bits, and not in blocks.

    Devices that multiply bytes do so with one scale for each channel at most.
    """
    return frozenset(
        quantizer
        for quantizer in model.quant.quantizers()
        if isinstance(quantizer.spec.format, IntFormat)
        and quantizer.spec.format.storage_bits < _BYTE.bits
        and not isinstance(quantizer.spec.granularity, PerBlock)
        and all(site.value.original.const is not None for site in model.quant.sites_of(quantizer))
    )


def _opset_needed_by(model: Model, extension: str, in_bytes: bool) -> int:
    """The first opset that has all that the extension domain lacks."""
    widened = _of_short_codes(model) if in_bytes else frozenset()
    encodings = (
        _in_onnx(quantizer.encoding, quantizer in widened)
        for quantizer in model.quant.quantizers()
        if quantizer.encoding is not None
    )
    lacking = (
        _opset_needed(encoding)
        for encoding in encodings
        if not _is_cast(encoding) and not (extension and _extension_knows(encoding))
    )
    return max(lacking, default=model.opset)


def _computes(use: Use) -> bool:
    """Whether an op does arithmetic with what it reads there, and neither rounds it nor only moves it."""
    reads = isinstance(use.port, int) and not use.op.is_type(*CONTROL_FLOW)
    rounds = use.op.op_type in ("QuantizeLinear", "DequantizeLinear", "Cast")
    return reads and not rounds and not is_grid_preserving(use.op)


def _in_onnx(encoding: Encoding, in_bytes: bool) -> Encoding:
    """The grid in a format of ONNX: a shifted one of int2 is every other code of int4, in half steps.

    Args:
        in_bytes: whether each code is stored in a byte.
    """
    spec, scale, zero_point = encoding.spec, encoding.scale, encoding.zero_point
    if spec.shifted:
        format, scale, zero_point = IntFormat(4, signed=True), scale / 2, 2 * zero_point
        spec = replace(spec, format=format, shifted=False)
    if in_bytes:
        spec = replace(spec, format=_BYTE)
    return Encoding(spec, scale, zero_point)


def _is_cast(encoding: Encoding) -> bool:
    """Whether a Cast does the rounding: to a format that has no scale."""
    format = encoding.spec.format
    return not isinstance(format, IntFormat) and not format.scaled


def _extension_knows(encoding: Encoding) -> bool:
    """Whether the ops of ONNX Runtime's domain ``com.microsoft`` know the type and the granularity."""
    format = encoding.spec.format
    integer = isinstance(format, IntFormat) and format.storage_bits >= 4
    return integer and not isinstance(encoding.spec.granularity, PerBlock)


def _opset_needed(encoding: Encoding) -> int:
    """The first opset whose QuantizeLinear and DequantizeLinear know the type and the granularity."""
    spec = encoding.spec
    if not isinstance(spec.format, IntFormat):
        by_type = 19
    else:
        by_type = {2: 25, 4: 21, 8: OLDEST_OPSET, 16: 21, 32: OLDEST_OPSET}[spec.format.storage_bits]
    by_granularity = {PerChannel: 13, PerBlock: 21, TwoLevelBlock: 21}
    return max(by_type, by_granularity.get(type(spec.granularity), OLDEST_OPSET))


def _granularity_attributes(encoding: Encoding) -> dict[str, int]:
    granularity = encoding.spec.granularity
    if isinstance(granularity, PerChannel):
        return {"axis": granularity.axis}
    if isinstance(granularity, PerBlock):
        return {"axis": granularity.axis, "block_size": granularity.size}
    return {}


def _check_full_range(value: Value, encoding: Encoding) -> None:
    """QuantizeLinear saturates at the limits of the type, so an activation must use all its codes."""
    format = encoding.spec.format
    if isinstance(format, IntFormat) and (format.bits != format.storage_bits or encoding.spec.narrow):
        raise UsageError(
            f"'{value.name}' is quantized to {encoding.spec}, which QuantizeLinear cannot express for "
            "activations: use 2, 4, 8 or 16 bits that are not narrow, or lower with 'to-simulation'"
        )
