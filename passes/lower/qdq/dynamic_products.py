"""Products by stored weights whose data is quantized as it comes, by the range of the whole tensor.

ONNX has ops for that from opset 11 on: DynamicQuantizeLinear, and MatMulInteger of its codes. ONNX Runtime
runs them, with the products by the scales and the bias behind them, as one kernel.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from qc.ir.facts.scopes import Captures
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.arithmetic import codes_of
from qc.ir.quant.spec import Quantizer
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import Shape, ValueType

from ...framework.context import PassContext
from .stored_products import Stored

_OLDEST_OPSET = 11
_ZERO_OF_BYTES = 128
_LARGEST_PRODUCT = 255 * 255
_INT32 = TensorProto.INT32
_BYTE = ValueType(TensorProto.UINT8, ())


def write_dynamic(
    model: Model, rewriter: Rewriter, matrices: list[Stored], context: PassContext, unsigned: bool
) -> list[Stored]:
    """Writes the products by matrices that MatMulInteger takes, and tells of them; returns the others.

    Args:
        unsigned: signed codes of weights are stored as uint8 with zero points of 128 more, of which
            processors of x86 without VNNI compute exact sums.
    """
    taken = [one for one in matrices if model.opset >= _OLDEST_OPSET and _is_taken(one)]
    context.dynamic |= {stored.op.label for stored in taken}
    products = _DynamicProducts(model, rewriter, unsigned)
    for stored in taken:
        products.write(stored)
    context.notes.append(_told(len(taken)))
    return [one for one in matrices if one not in taken]


def _told(count: int) -> str:
    if count:
        products = "one product by a stored weight" if count == 1 else f"{count} products by stored weights"
        return f"the data of {products} is quantized in every run, each tensor by its own range"
    return (
        "no product has data that is quantized in every run: of convolutions, small matrices, and below "
        f"opset {_OLDEST_OPSET} none has; a pipeline such as w8a8 quantizes data by calibration"
    )


def _is_taken(stored: Stored) -> bool:
    """Whether a matrix has codes of 8 bits, no blocks, is no transposed table, and sums of it fit 32 bits."""
    is_own = stored.site.op is stored.op and not stored.op.is_type("Gather")
    fits = stored.shape[1] * _LARGEST_PRODUCT < 1 << 31
    return is_own and stored.bits == 8 and not stored.has_blocks and fits


class _DynamicProducts:
    """Writes them; data that several products read is quantized once, and a matrix stored once."""

    def __init__(self, model: Model, rewriter: Rewriter, unsigned: bool) -> None:
        self._model = model
        self._rewriter = rewriter
        self._unsigned = unsigned
        self._captures = Captures(rewriter)
        self._data: dict[Value, list[Value]] = {}
        self._weights: dict[tuple[Value, Quantizer, bool], list[Value]] = {}

    def write(self, stored: Stored) -> None:
        """Puts the ops in the place of a product."""
        op, rewriter = stored.op, self._rewriter
        data, weight, bias = (*op.inputs, None)[:3]
        (result,) = op.outputs
        assert data is not None and weight is not None and result is not None
        codes, scale, zero_point = self._quantized(data)
        stored_codes, stored_scale, *stored_zero = self._stored(stored)
        self._model.quant.remove(stored.site, "stored as codes")
        shape = result.type.shape
        sums = self._op(op, "MatMulInteger", [codes, stored_codes, zero_point, *stored_zero], shape, _INT32)
        floats = self._op(op, "Cast", [sums], shape, to=TensorProto.FLOAT)
        both = self._op(op, "Mul", [scale, stored_scale], stored_scale.type.shape)
        inputs = [floats, both]
        if bias is not None:
            inputs = [self._op(op, "Mul", inputs, shape), bias]
        for port, value in enumerate((*inputs, *(None,) * (op.num_inputs - 2))):
            rewriter.set_input(op, port, value)
        rewriter.set_type_of_op(op, "Mul" if bias is None else "Add")
        for name in list(op.attributes):
            rewriter.set_attribute(op, name, None)
        rewriter.drop_unread(weight)

    def _quantized(self, data: Value) -> list[Value]:
        """The codes of data, their scale and their zero point."""
        if data not in self._data:
            types = (ValueType(TensorProto.UINT8, data.type.shape), ValueType(TensorProto.FLOAT, ()))
            found = [
                self._rewriter.add_value(data.graph, f"{data.name}_{name}", type)
                for name, type in zip(("quantized", "scale", "zero_point"), (*types, _BYTE), strict=True)
            ]
            self._rewriter.add_op(data.graph, "DynamicQuantizeLinear", [data], found)
            self._data[data] = found
        return self._data[data]

    def _stored(self, stored: Stored) -> list[Value]:
        """The codes of a weight by columns, their scales, and zero points that are not 0."""
        key = (stored.constant, stored.quantizer, stored.by_rows)
        if key not in self._weights:
            constant, encoding = stored.constant.const, stored.quantizer.encoding
            assert constant is not None and encoding is not None
            codes = codes_of(constant.numpy(), stored.quantizer)
            codes = np.ascontiguousarray(codes.T if stored.by_rows else codes)
            signed, zeros = encoding.spec.code_range[0] < 0, encoding.zero_point
            shift = _ZERO_OF_BYTES if signed and self._unsigned else 0
            kind = np.dtype(np.int8 if signed and not shift else np.uint8)
            arrays: dict[str, np.ndarray] = {"quantized": (codes + shift).astype(kind)}
            arrays["scale"] = encoding.scale.astype(np.float32)
            if shift or zeros.any():
                arrays["zero_point"] = (zeros + shift).astype(kind)
            add, graph = self._rewriter.add_constant, stored.constant.graph
            self._weights[key] = [add(graph, a, f"{stored.constant.name}_{n}") for n, a in arrays.items()]
        return [self._captures.into(stored.op.graph, value) for value in self._weights[key]]

    def _op(
        self,
        beside: Op,
        op_type: str,
        inputs: list[Value],
        shape: Shape | None,
        elem_type: int = TensorProto.FLOAT,
        **attributes: int,
    ) -> Value:
        (result,) = beside.outputs
        assert result is not None
        made = self._rewriter.add_value(beside.graph, f"{result.name}_{op_type}", ValueType(elem_type, shape))
        self._rewriter.add_op(beside.graph, op_type, inputs, [made], attributes)
        return made
