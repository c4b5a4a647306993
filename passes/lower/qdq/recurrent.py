"""Recurrent ops on stored weights, in the forms that ONNX Runtime runs quickly, and back.

A DequantizeLinear of a weight runs in every run, and for a few steps it takes longer than the recurrent op
itself. ONNX Runtime's DynamicQuantizeLSTM multiplies the codes, and quantizes data and state as they come;
below some size that costs more than it saves. For a large GRU a Scan does the same. Elsewhere a Cast and a
Mul dequantize the weights, which ONNX Runtime computes once, when it loads the model: the file is small, and
the time is that of the float op.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from qc.ir.facts.constants import constant_numbers
from qc.ir.facts.op_traits import traits, weight_ports
from qc.ir.facts.scopes import Captures
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.value_type import ValueType

from ...framework.target import Target
from .scanned_gru import ScannedGru, fits_scan
from .stored_weight import BYTES, StoredWeight, stored_weight

_DOMAIN = "com.microsoft"
_DYNAMIC_LSTM = "DynamicQuantizeLSTM"
_LSTM_INPUTS = 8  # behind them DynamicQuantizeLSTM has scales and zero points
_TRANSPOSED = "_transposed"


def fit_recurrent(model: Model, rewriter: Rewriter, target: Target) -> None:
    """Writes recurrent ops on stored weights in the forms that the target asks for."""
    fit = _Fit(rewriter, Captures(rewriter))
    for op in _ops(model):
        weights = {port: stored_weight(op, port) for port in _recurrent_ports(op)}
        found = [weight for weight in weights.values() if weight is not None]
        if len(found) == 2 and _fits_dynamic_lstm(op, found, target.lowering.dynamic_lstm_from):
            fit.make_dynamic_lstm(op, *found)
        elif len(found) == 2 and fits_scan(op, found[1], target.lowering.scanned_gru_from):
            fit.write_as_scan(op, *found)
        elif target.lowering.fold_weights:
            for port, weight in weights.items():
                if weight is not None:
                    fit.fold(op, port, weight)


def unfit_recurrent(model: Model, rewriter: Rewriter) -> None:
    """Puts DequantizeLinear ops and LSTMs back; what cannot be said with them stays as it is."""
    captures = Captures(rewriter)
    for op in _ops(model):
        weights = _transposed_weights(op)
        if weights is not None:
            with rewriter.action("codes in an LSTM to dequantized ones", op):
                _restore_lstm(rewriter, captures, op, weights)
            continue
        for port in _recurrent_ports(op):
            weight = _folded(op, port)
            if weight is not None:
                with rewriter.action("product of codes to dequantized ones", op):
                    _dequantize(rewriter, op, port, weight)


class _Fit:
    """The fitting of one model; weights that several ops read are written once."""

    def __init__(self, rewriter: Rewriter, captures: Captures) -> None:
        self._rewriter = rewriter
        self._captures = captures
        self._transposed: dict[Value, Value] = {}
        self._scanned: dict[tuple[Value, int], Value] = {}
        self._folded: dict[Value, Value] = {}

    def make_dynamic_lstm(self, op: Op, *weights: StoredWeight) -> None:
        """Makes an LSTM one that multiplies codes: transposed, with a scale for each direction and gate."""
        rewriter, graph = self._rewriter, op.graph
        if _DOMAIN not in rewriter.model.opset_imports:
            rewriter.set_opset(_DOMAIN, 1)
        dequantized = op.inputs[1:3]
        for port, weight in enumerate(weights, 1):
            directions, gates, _ = weight.array.shape
            scale = np.broadcast_to(weight.scale, (directions, gates))
            rewriter.set_input(op, port, self._transpose(graph, weight))
            name = weight.codes.name
            points = np.zeros(scale.shape, weight.array.dtype)
            for offset, (array, kind) in enumerate([(scale, "scale"), (points, "zero_point")]):
                constant = rewriter.add_constant(graph, array, f"{name}_{kind}")
                rewriter.set_input(op, _scale_port(port) + offset, constant)
        for value in dequantized:
            rewriter.erase_unread(value)
        rewriter.set_attribute(op, "layout", None)
        rewriter.set_type_of_op(op, _DYNAMIC_LSTM, _DOMAIN)

    def _transpose(self, graph: Graph, weight: StoredWeight) -> Value:
        codes = weight.codes.original
        if codes not in self._transposed:
            array = np.ascontiguousarray(weight.array.transpose(0, 2, 1))
            name = f"{codes.name}{_TRANSPOSED}"
            self._transposed[codes] = self._rewriter.add_constant(codes.graph, array, name)
        return self._captures.into(graph, self._transposed[codes])

    def write_as_scan(self, op: Op, *weights: StoredWeight) -> None:
        """Puts a Scan for each direction in the place of a GRU."""
        dequantized = op.inputs[1:3]
        ScannedGru(self._rewriter, self._captures, self._scanned, op, *weights).write()
        for value in dequantized:
            self._rewriter.erase_unread(value)

    def fold(self, op: Op, port: int, weight: StoredWeight) -> None:
        """Lets an op read a weight that Cast and Mul dequantize."""
        rewriter, graph = self._rewriter, op.graph
        dequantized = op.inputs[port]
        assert dequantized is not None
        if dequantized not in self._folded:
            codes, name = weight.codes, weight.codes.name
            if codes.original.const is not None and codes.type.elem_type not in BYTES:
                codes = rewriter.add_constant(graph, weight.array, name)
            scale = weight.scale[:, np.newaxis] if weight.scale.ndim else weight.scale
            type = ValueType(TensorProto.FLOAT, weight.array.shape)
            cast = rewriter.add_value(graph, f"{name}_cast", type)
            product = rewriter.add_value(graph, f"{name}_product", type)
            rewriter.add_op(graph, "Cast", [codes], [cast], {"to": TensorProto.FLOAT}, "", f"{name}_Cast")
            factor = rewriter.add_constant(graph, scale, f"{name}_factor")
            rewriter.add_op(graph, "Mul", [cast, factor], [product], {}, "", f"{name}_Mul")
            self._folded[dequantized] = product
        rewriter.set_input(op, port, self._folded[dequantized])
        rewriter.erase_unread(dequantized)


def _ops(model: Model) -> list[Op]:
    return [op for graph in model.graphs() for op in graph.ops()]


def _recurrent_ports(op: Op) -> tuple[int, ...]:
    """The ports of the weights of a recurrent op; none for other ops."""
    return weight_ports(op) if traits(op).product == "recurrent" else ()


def _fits_dynamic_lstm(op: Op, weights: list[StoredWeight], least: int) -> bool:
    """Whether ONNX Runtime has a kernel on codes for an LSTM, and it is worth it."""
    total = sum(weight.array.size // weight.array.shape[0] for weight in weights)
    same_codes = weights[0].array.dtype == weights[1].array.dtype
    return op.is_type("LSTM") and not op.attribute("layout", 0) and same_codes and 0 < least <= total


def _scale_port(port: int) -> int:
    """The port of the scale of a weight of DynamicQuantizeLSTM; that of its zero point is the next."""
    return _LSTM_INPUTS + 2 * (port - 1)


# -- back ---------------------------------------------------------------------------------------------------


def _transposed_weights(op: Op) -> list[StoredWeight] | None:
    """The weights of a DynamicQuantizeLSTM, as they are there, if its directions have one grid."""
    if op.domain != _DOMAIN or op.op_type != _DYNAMIC_LSTM:
        return None
    inputs, found = op.inputs, []
    for port in (1, 2):
        codes, scales, points = (
            inputs[port],
            *map(constant_numbers, inputs[_scale_port(port) : _scale_port(port) + 2]),
        )
        if codes is None or codes.original.const is None or scales is None or points is None:
            return None
        if points.any() or not (scales == scales[:1]).all():
            return None
        found.append(StoredWeight(codes, scales[0]))
    return found


def _restore_lstm(rewriter: Rewriter, captures: Captures, op: Op, weights: list[StoredWeight]) -> None:
    for port, weight in enumerate(weights, 1):
        codes = weight.codes.original
        array = np.ascontiguousarray(weight.array.transpose(0, 2, 1))
        plain = rewriter.add_constant(codes.graph, array, codes.name.removesuffix(_TRANSPOSED))
        _dequantize(rewriter, op, port, StoredWeight(captures.into(op.graph, plain), weight.scale))
    for port in range(_LSTM_INPUTS, op.num_inputs):
        value = op.inputs[port]
        rewriter.set_input(op, port, None)
        if value is not None:
            rewriter.drop_unread(value)
    rewriter.set_type_of_op(op, "LSTM")


def _folded(op: Op, port: int) -> StoredWeight | None:
    """A weight that Cast and Mul dequantize."""
    product = op.inputs[port]
    mul = product.producer if product is not None else None
    if mul is None or not mul.is_type("Mul"):
        return None
    result, factor = mul.inputs
    cast = result.producer if result is not None else None
    codes = cast.inputs[0] if cast is not None and cast.is_type("Cast") else None
    scale = constant_numbers(factor)
    if codes is None or codes.original.const is None or scale is None:
        return None
    shape = codes.original.const.shape
    if codes.type.elem_type not in BYTES or len(shape) != 3 or scale.shape not in ((), (shape[1], 1)):
        return None
    return StoredWeight(codes, scale[:, 0] if scale.ndim else scale)


def _dequantize(rewriter: Rewriter, op: Op, port: int, weight: StoredWeight) -> None:
    """Lets an op read a weight that a DequantizeLinear makes, and drops what it read."""
    graph, name, array = op.graph, weight.codes.name, weight.array
    result = rewriter.add_value(graph, f"{name}_dequantized", ValueType(TensorProto.FLOAT, array.shape))
    scale = rewriter.add_constant(graph, weight.scale, f"{name}_scale")
    points = np.zeros(weight.scale.shape, array.dtype)
    zero_point = rewriter.add_constant(graph, points, f"{name}_zero_point")
    inputs, attributes = [weight.codes, scale, zero_point], {"axis": 1} if weight.scale.ndim else {}
    rewriter.add_op(graph, "DequantizeLinear", inputs, [result], attributes)
    read = op.inputs[port]
    rewriter.set_input(op, port, result)
    rewriter.erase_unread(read)
