"""Lowers to standard ONNX: QuantizeLinear and DequantizeLinear around everything that is quantized."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

import numpy as np
from onnx import TensorProto

from qc.ir.errors import UsageError
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.facts.scopes import CONTROL_FLOW, Captures, captured_values
from qc.ir.graph import Graph, Use, Value, ValueType
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.arithmetic import codes_of, dequantize, quantize, rounded
from qc.ir.quant.formats import WIDEST_FREE, IntFormat
from qc.ir.quant.spec import Encoding, Quantizer, TwoLevelBlock
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ..framework.base import Pass, Stage, option
from ..framework.context import Artifact, PassContext
from ..framework.made_for import mark_target
from ..framework.target import Products
from ..framework.target_rules import Storage
from .qdq.dequantize_outside import dequantize_outside
from .qdq.dynamic_products import write_dynamic
from .qdq.fit_kernels import fit_kernels
from .qdq.folded_weights import fold_weights
from .qdq.keep_float import keep_kernels
from .qdq.lookups import look_up_codes
from .qdq.moved_pairs import leave_out_moved, needs_no_zero_point
from .qdq.newer_opset import in_opset
from .qdq.onnx_grids import (
    OLDEST_OPSET,
    extension_knows,
    granularity_attributes,
    in_onnx,
    is_cast,
    of_short_codes,
    opset_needed,
    opset_needed_by,
)
from .qdq.round_captures import round_captures
from .qdq.share_storage import share_storage
from .qdq.stored_products import StoredProducts, only_stored_in, stored_matrices
from .rounding.activation_codes import code_activations
from .rounding.rewire import numbers, rewire

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
    where that does not have them either, the model is converted to a newer one, with a note, unless
    ``opset=keep`` refuses that. Shifted int2 weights become int4 with the same numbers. A convolution on
    somewhat fewer input channels than the target wants (a picture has three) gets more, with codes and
    weights of zero. Where the target has a quicker kernel for weights whose zero points are not 0, codes and
    zero points of a convolution are one lower than they are in the simulation. Both change no result, and
    ``import-qdq`` undoes them. Where the target has kernels for it, a large LSTM or GRU multiplies the codes
    of its weights with its data, which is quantized as it comes, the GRU as a Scan, which ``import-qdq``
    leaves; other recurrent ops have their weights dequantized once, when ONNX Runtime loads the model.

    Products of float data by stored weights, and lookups of stored rows, are written as MatMulNBits and
    GatherBlockQuantized where the target has them, in any opset; a matrix that both read is stored once, and
    captured by bodies that read it. Rows of int8 are looked up by Gather, with their scales, and dequantized
    behind it.
    With ``products=dynamic`` products by 8-bit weights without blocks are MatMulInteger instead, of data that
    DynamicQuantizeLinear rounds in every run, which is quicker; ``import-qdq`` leaves these as they are.
    Stored weights of float convolutions, and small ones of float products, are dequantized by Cast and Mul
    there, which ONNX Runtime computes when it loads the model; below opset 21 each code takes a byte in them.
    ``import-qdq`` undoes both.

    ONNX Runtime quantizes float weights, and float biases, between quantized data by itself, which may ruin
    the result: a LeakyRelu of slope 1 behind such a convolution or product keeps it float, and ``import-qdq``
    takes it away. It computes a product of codes in float in front of a Relu or Clip whose result is not
    rounded, and one of a matrix to which data is added: the same LeakyRelu in between keeps such a product in
    integers.

    What an op only moves to where a body of If, Loop or Scan captures it is rounded to its grid once more, as
    ONNX Runtime cannot open such a model otherwise. Codes and zero points that are equal within a graph are
    stored once, but for equal codes of several grids: ONNX Runtime's provider for QNN gives all that read a
    constant the grid of the first, and so computes wrong numbers; and but for zero points of int8 weights, as
    ONNX Runtime would not open such a model where it is told to turn weights into uint8. The metadata of the
    model names the target.
    """

    name = "insert-qdq"
    stage = Stage.LOWER
    uses = frozenset({"target"})

    weights: Literal["codes", "float"] = option(
        "codes", "store weights as codes, or in float to be quantized"
    )
    opset: Literal["keep", "raise"] = option(
        "raise", "what to do if a grid needs a newer opset: convert the model, or refuse it (keep)"
    )
    storage: Storage | None = option(
        None, "how weights of fewer than 8 bits are stored: packed, or each in a byte; default: the target's"
    )
    products: Products | None = option(
        None,
        "how products of float data by stored weights are written: standard, or in ONNX Runtime's own ops, "
        "which round data to 8 bits as it comes, block by block (fast), or do not (exact), or in ONNX's ops "
        "that round whole tensors (dynamic); default: the target's; small ones are float products there and "
        "with dynamic",
    )
    activations: Literal["placed", "unsigned", "signed", "symmetric"] = option(
        "placed", "codes of activations: as they were placed, or all of one kind, or signed where symmetric"
    )
    pad_channels: bool = option(True, "give a convolution as many input channels as the target wants")
    shift_weights: bool = option(True, "give weights zero points of -1 where the target wants it")
    fit_recurrent: bool = option(True, "write recurrent ops as the target has quick kernels for them")

    def run(self, model: Model, context: PassContext) -> None:
        with model.transaction.trial():
            if self.activations != "placed":
                code_activations(model, self.activations)
            if context.target is not None and not context.target.rounds_moved:
                leave_out_moved(model)
            self._write(model, context)

    def _write(self, model: Model, context: PassContext) -> None:
        target = context.target
        extension = target.extension_domain if target is not None else ""
        in_bytes = (self.storage or (target.weight.storage if target is not None else "packed")) == "int8"
        products = self.products or (target.products if target is not None else "standard")
        if self.weights == "float":
            products = "standard"
        by_size = self.products in (None, "dynamic")
        least = target.stored_products_from if target is not None and by_size else 0
        if self.opset == "raise":
            stored = only_stored_in(stored_matrices(model, products, least), model)
            needed = opset_needed_by(model, extension, in_bytes, stored)
            if needed > model.opset:
                context.notes.append(
                    f"the model was converted from opset {model.opset} to {needed}, which its grids need"
                )
            model = in_opset(model, needed)
        rewriter = Rewriter(model)
        with rewriter.trial():
            matrices = stored_matrices(model, products, least)
            if products == "dynamic":
                unsigned = target is not None and bool(target.most_pair_sum)
                others = write_dynamic(model, rewriter, matrices, context, unsigned)
                matrices = others if target is None or target.products != "standard" else []
            StoredProducts(model, rewriter, products).write(matrices)
            widened = of_short_codes(model) if in_bytes else frozenset()
            if widened:
                context.notes.append(_IN_BYTES)
            as_codes, sees_through = self.weights == "codes", target is not None and not target.rounds_moved
            emitter = _Emitter(model, rewriter, extension, as_codes, widened, sees_through)
            emitter.round_again_inside(rewire(model, rewriter, emitter.round_value))
            if target is not None:
                fit_kernels(
                    model, rewriter, target, self.pad_channels, self.shift_weights, self.fit_recurrent
                )
            if products != "standard":
                context.notes += fold_weights(model, rewriter, least)
                look_up_codes(model, rewriter)
            keep_kernels(model, rewriter, target)
            round_captures(model, rewriter)
            dequantize_outside(model, rewriter)
            share_storage(model, rewriter)
            written = lower(model)
            if target is not None:
                mark_target(written, target.name)
            context.add_artifact("qdq", Artifact("onnx", written, ".onnx"))


class _Emitter:
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
        is_data = value.original.const is None
        return self._sees_through and is_data and needs_no_zero_point(self._model, encoding)

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
        needed = opset_needed(encoding)
        if self._model.opset >= needed:
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
            "activations: use 2, 4, 8 or 16 bits that are not narrow, or lower with 'to-simulation'"
        )
