"""Lowers to standard ONNX: QuantizeLinear and DequantizeLinear around everything that is quantized."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from qc.ir.arithmetic import quantize
from qc.ir.errors import UsageError
from qc.ir.formats import Format, IntFormat
from qc.ir.graph import Value, ValueType
from qc.ir.lower import lower
from qc.ir.model import Model
from qc.ir.quant import Encoding, PerBlock, PerChannel, Quantizer
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ..base import Pass, Stage
from ..context import Artifact, PassContext
from .rewire import numbers, rewire

# The first opset with QuantizeLinear. Below it ONNX Runtime takes its own version of that operator, and fuses
# it to operators that only later opsets have.
OLDEST_OPSET = 10


@dataclass(frozen=True)
class InsertQdq(Pass):
    """Makes an ONNX model with QuantizeLinear and DequantizeLinear (Cast pairs for 16-bit floats).

    Weights and biases are stored quantized, with a DequantizeLinear behind them. Types and granularities that
    the model's opset does not have use the operators of the target's extension domain.
    """

    name = "insert-qdq"
    stage = Stage.LOWER

    def run(self, model: Model, context: PassContext) -> None:
        extension = context.target.extension_domain if context.target is not None else ""
        rewriter = Rewriter(model)
        with rewriter.trial():
            emitter = _Emitter(model, rewriter, extension)
            rewire(model, rewriter, emitter.round_value)
            context.add_artifact("qdq", Artifact("onnx", lower(model), ".onnx"))


class _Emitter:
    """Adds the ops; quantizers that are tied share their scale and zero point."""

    def __init__(self, model: Model, rewriter: Rewriter, extension: str) -> None:
        self._model = model
        self._rewriter = rewriter
        self._extension = extension
        self._parameters: dict[Quantizer, tuple[Value, Value]] = {}

    def round_value(self, value: Value, quantizer: Quantizer) -> Value:
        """A new value: ``value`` rounded to the grid of ``quantizer``."""
        encoding = numbers(quantizer, value)
        if isinstance(encoding.spec.format, IntFormat) or encoding.spec.format.scaled:
            return self._quantized(value, quantizer, encoding)
        return self._cast(value, encoding.spec.format)

    def _quantized(self, value: Value, quantizer: Quantizer, encoding: Encoding) -> Value:
        scale, zero_point = self._scale_and_zero_point(value, quantizer, encoding)
        attributes = _granularity_attributes(encoding)
        domain = self._domain(value, encoding)
        if value.const is not None:
            codes = self._constant(value, encoding)
        else:
            _check_full_range(value, encoding)
            codes = self._add("QuantizeLinear", (value, scale, zero_point), value, attributes, domain)
            self._rewriter.set_type(codes, ValueType(encoding.spec.format.onnx_type, value.type.shape))
        result = self._add("DequantizeLinear", (codes, scale, zero_point), value, attributes, domain)
        self._rewriter.set_type(result, value.type)
        return result

    def _cast(self, value: Value, format: Format) -> Value:
        if value.const is not None:
            array = value.const.numpy().astype(np.float32)
            small = self._rewriter.add_constant(
                value.graph, TensorRef.from_array(array, format.onnx_type), f"{value.name}_{format}"
            )
        else:
            small = self._add("Cast", (value,), value, {"to": format.onnx_type}, "")
            self._rewriter.set_type(small, ValueType(format.onnx_type, value.type.shape))
        result = self._add("Cast", (small,), value, {"to": TensorProto.FLOAT}, "")
        self._rewriter.set_type(result, value.type)
        return result

    def _add(
        self, op_type: str, inputs: tuple[Value, ...], value: Value, attributes: dict[str, int], domain: str
    ) -> Value:
        names = [f"{value.name}_{op_type}_Output"]
        op = self._rewriter.add_op(
            value.graph, op_type, inputs, names, attributes, domain, name=f"{value.name}_{op_type}"
        )
        result = value.graph.op_outputs(op)[0]
        assert result is not None
        return result

    def _constant(self, value: Value, encoding: Encoding) -> Value:
        assert value.const is not None
        codes = quantize(value.const.numpy(), encoding)
        tensor = TensorRef.from_array(codes, encoding.spec.format.onnx_type)
        return self._rewriter.add_constant(value.graph, tensor, f"{value.name}_quantized")

    def _scale_and_zero_point(
        self, value: Value, quantizer: Quantizer, encoding: Encoding
    ) -> tuple[Value, Value]:
        if quantizer not in self._parameters:
            zero_point = TensorRef.from_array(encoding.zero_point, encoding.spec.format.onnx_type)
            self._parameters[quantizer] = (
                self._rewriter.add_constant(value.graph, encoding.scale, f"{value.name}_scale"),
                self._rewriter.add_constant(value.graph, zero_point, f"{value.name}_zero_point"),
            )
        return self._parameters[quantizer]

    def _domain(self, value: Value, encoding: Encoding) -> str:
        """The standard domain if the model's opset can say it, else the target's extension domain."""
        needed = _opset_needed(encoding)
        if self._model.opset >= needed:
            return ""
        if not self._extension or self._model.opset < OLDEST_OPSET or not _extension_knows(encoding):
            raise UsageError(
                f"'{value.name}' is quantized to {encoding.spec}, which needs opset {needed}; "
                f"the model has {self._model.opset}: convert it first"
            )
        if self._extension not in self._model.opset_imports:
            self._rewriter.set_opset(self._extension, 1)
        return self._extension


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
    by_granularity = {PerChannel: 13, PerBlock: 21}.get(type(spec.granularity), OLDEST_OPSET)
    return max(by_type, by_granularity)


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
