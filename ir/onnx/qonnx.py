"""Ops of QONNX, which round floats to a grid, as ops of ONNX that give the same numbers.

QONNX is how Brevitas, QKeras and HLS4ML exchange networks of few bits. Its ``Quant`` becomes QuantizeLinear,
a Clip of the codes if their format is narrower than its type, and DequantizeLinear (QCDQ), as all that read
quantized models know. Where no such ops make the grid, as with one bit, scales that are computed or another
way to round, ops on floats do what it says. Models of an opset that is too old for all this are converted.
Numbers halfway between two codes may be rounded to the other one where the zero point is odd, as
QuantizeLinear adds it later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ..base.names import Names
from ..errors import ModelError
from ..facts.constants import CONSTANT_FORMS
from ..tensor_ref import TensorRef
from .conversion import converted
from .protos import attributes_of, nested_graphs, walk_bodies, walk_graphs, walk_nodes

_DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
_INPUTS = {"Quant": 4, "IntQuant": 4, "BipolarQuant": 2, "Trunc": 5}  # how many each reads at the least
_OPSET = 13  # the first one whose QuantizeLinear has an axis
_WIDE_OPSET, _WIDE_DOMAIN = 21, "com.microsoft"  # who makes 16 bits: ONNX from there on, and ONNX Runtime
_NUMBERS = (AttributeProto.FLOAT, AttributeProto.FLOATS, AttributeProto.INT, AttributeProto.INTS)
_ROUNDING = {"ROUND": "Round", "HALF_EVEN": "Round", "FLOOR": "Floor", "CEIL": "Ceil"}
_CODES: Mapping[tuple[int, bool], Any] = {
    (8, True): np.int8,
    (8, False): np.uint8,
    (16, True): np.int16,
    (16, False): np.uint16,
}

Constants = Mapping[str, TensorProto]
# Ops, each with what it reads besides the result of the one before.
Steps = Sequence[tuple[str, Sequence[str]]]


def rounding_in_float(model: ModelProto) -> tuple[str, Callable[[], None]] | None:
    """Ops of QONNX, which no runtime has, and what writes them as ops of ONNX."""
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    found = [node for node in walk_nodes(model.graph.node) if _is_rounding(node)]
    if not version or not found:
        return None
    writer = _Writer(model, max(version, _OPSET))
    first = next((node for node, constants in _in_scope(model.graph) if writer.of(node, constants)), None)
    if first is None:
        return None

    def mend() -> None:
        if version < _OPSET:
            _convert(model, version)
        writer = _Writer(model, max(version, _OPSET))
        for graph, constants in _scopes(model.graph):
            made = [new for node in graph.node for new in writer.of(node, constants) or [_copied(node)]]
            del graph.node[:]
            graph.node.extend(made)
        model.graph.initializer.extend(writer.constants)
        if writer.is_wide and not any(entry.domain == _WIDE_DOMAIN for entry in model.opset_import):
            model.opset_import.add(domain=_WIDE_DOMAIN, version=1)

    of_opset = f" of opset {_OPSET}, as are all others now" if version < _OPSET else ""
    named = f"{first.op_type} '{first.name or first.output[0]}'"
    return f"{named} is an op of QONNX, written as ops of ONNX{of_opset}", mend


def _convert(model: ModelProto, version: int) -> None:
    """Makes the model one of the first opset that has the ops which are written."""
    try:
        newer = converted(model, _OPSET)
        interfaces = ([*one.graph.input, *one.graph.output] for one in (model, newer))
        for before, after in zip(*interfaces, strict=True):
            after.type.CopyFrom(before.type)
    except Exception as error:  # the converter raises bare exceptions of its C++ library
        raise ModelError(
            f"the model has opset {version}, its ops of QONNX need {_OPSET}, and ONNX cannot convert it "
            f"({' '.join(str(error).split())}): convert it first"
        ) from error
    model.CopyFrom(newer)


def _is_rounding(node: NodeProto) -> bool:
    if node.domain not in _DOMAINS or node.op_type not in _INPUTS:
        return False
    return len(node.input) >= _INPUTS[node.op_type] and len(node.output) == 1


def _copied(node: NodeProto) -> NodeProto:
    return NodeProto.FromString(node.SerializeToString())


def _scopes(graph: GraphProto) -> Iterator[tuple[GraphProto, Constants]]:
    """Each graph and the constants that its nodes may read, outer graphs behind those inside them."""
    pending: list[tuple[GraphProto, Constants]] = [(graph, {})]
    found = []
    while pending:
        current, around = pending.pop()
        constants = {**around, **_constants(current)}
        found.append((current, constants))
        pending.extend((body, constants) for node in current.node for body in nested_graphs(node))
    yield from reversed(found)


def _in_scope(graph: GraphProto) -> Iterator[tuple[NodeProto, Constants]]:
    for body, constants in _scopes(graph):
        yield from ((node, constants) for node in body.node)


def _constants(graph: GraphProto) -> dict[str, TensorProto]:
    """The initializers of a graph, and the tensors that its Constant nodes hold."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            tensors = [tensor for one in node.attribute for tensor in _held(one)]
            found.update(zip(node.output, tensors, strict=False))
    return found


def _held(attribute: AttributeProto) -> Iterator[TensorProto]:
    """The numbers that an attribute of a Constant holds."""
    if attribute.name == "value":
        yield attribute.t
        return
    dtype = CONSTANT_FORMS.get(attribute.name, object)
    if dtype is not object and attribute.type in _NUMBERS:
        yield numpy_helper.from_array(np.array(helper.get_attribute_value(attribute), dtype))


def _numbers(constants: Constants, name: str) -> np.ndarray | None:
    """The numbers of a constant that lies in the file itself."""
    tensor = constants.get(name)
    if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
        return None
    return TensorRef(tensor).numpy()


class _Limits(NamedTuple):
    """The codes of a width: the lowest and the highest."""

    lowest: int
    highest: int

    @classmethod
    def of(cls, bits: int, signed: bool, narrow: bool) -> _Limits:
        """Narrow formats leave out the lowest code, or the highest one if there are none below 0."""
        if signed:
            return cls(-(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1)
        return cls(0, (1 << bits) - 1 - narrow)


class _Writer:
    """Writes ops of QONNX anew, with the constants that this needs."""

    def __init__(self, model: ModelProto, version: int) -> None:
        self.constants: list[TensorProto] = []
        self.is_wide = False  # whether ops of ONNX Runtime were needed
        self._version = version
        nodes = (node for body in walk_bodies(model) for node in body.node)
        self._names = Names(name for node in nodes for name in (*node.input, *node.output))
        for graph in walk_graphs(model.graph):
            for given in (*graph.input, *graph.initializer):
                self._names.claim(given.name)

    def of(self, node: NodeProto, constants: Constants) -> list[NodeProto] | None:
        """The nodes that take the place of one; None if it stays."""
        if not _is_rounding(node):
            return None
        settings = attributes_of(node)
        if node.op_type == "BipolarQuant":
            return self._signs(node)
        if node.op_type == "Trunc":
            return self._truncated(node, settings, constants)
        bits = _numbers(constants, node.input[3])
        if bits is None or bits.size != 1 or not 1 <= bits.item() <= 32 or bits.item() % 1:
            return None
        signed, narrow = bool(settings.get("signed", 1)), bool(settings.get("narrow", 0))
        if bits.item() == 1 and signed:
            return self._one_bit(node, constants)
        limits = _Limits.of(int(bits.item()), signed, narrow)
        rounding = _rounding(settings.get("rounding_mode", "ROUND"))
        if rounding is None:
            return None
        made = self._pair(node, limits, constants) if rounding == "Round" else None
        return made or self._arithmetic(node, [("Clip", self._ends(node, limits)), (rounding, [])], constants)

    def _pair(self, node: NodeProto, limits: _Limits, constants: Constants) -> list[NodeProto] | None:
        """The same grid by codes; None if there are no such ops."""
        scale, zero = (_numbers(constants, name) for name in node.input[1:3])
        if scale is None or zero is None or scale.dtype != np.float32 or not (scale > 0).all():
            return None
        axes = [axis for axis, length in enumerate(scale.shape) if length > 1]
        if len(axes) > 1 or (zero.size > 1 and zero.shape != scale.shape):
            return None
        on_axis: dict[str, Any] = {"axis": axes[0] - scale.ndim} if axes else {}
        scale = scale.ravel() if axes else scale.reshape(())
        if (zero % 1).any() or zero.min() < limits.lowest or zero.max() > limits.highest:
            return None
        codes = np.broadcast_to(zero.ravel() if zero.size > 1 else zero.reshape(()), scale.shape)
        if limits.highest - limits.lowest > 0xFFFF:
            return None if zero.any() else self._stored(node, limits, scale, on_axis, constants)
        return self._by_codes(node, limits, scale, codes, on_axis)

    def _by_codes(
        self,
        node: NodeProto,
        limits: _Limits,
        scale: np.ndarray,
        zero: np.ndarray,
        on_axis: Mapping[str, Any],
    ) -> list[NodeProto] | None:
        signed, width = limits.lowest < 0, 8 if limits.highest - limits.lowest <= 0xFF else 16
        dtype = np.dtype(_CODES[width, signed])
        is_whole = limits == (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if width == 16 and not is_whole:  # ONNX Runtime limits no codes of 16 bits
            return None
        domain = _WIDE_DOMAIN if width == 16 and self._version < _WIDE_OPSET else ""
        self.is_wide |= bool(domain)
        (data, *_), (result,) = node.input, node.output
        given = [self._constant(result, "scale", scale), self._constant(result, "zero_point", zero, dtype)]
        codes, few = self._free(result, "codes"), ""
        made = [helper.make_node("QuantizeLinear", [data, *given], [codes], domain=domain, **on_axis)]
        if not is_whole:
            few = self._free(result, "limited_codes")
            ends = [self._constant(result, name, end, dtype) for name, end in limits._asdict().items()]
            made.append(helper.make_node("Clip", [codes, *ends], [few]))
        last = helper.make_node(
            "DequantizeLinear", [few or codes, *given], [result], node.name, domain=domain, **on_axis
        )
        return [*made, last]

    def _stored(
        self,
        node: NodeProto,
        limits: _Limits,
        scale: np.ndarray,
        on_axis: Mapping[str, Any],
        constants: Constants,
    ) -> list[NodeProto] | None:
        """A constant of wide codes, as biases are, for which there is no QuantizeLinear."""
        data, (result,) = _numbers(constants, node.input[0]), node.output
        if data is None or limits.highest > np.iinfo(np.int32).max:
            return None
        spread = scale.reshape([-1] + [1] * (-on_axis["axis"] - 1)) if on_axis else scale
        codes = np.clip(np.rint(data.astype(np.float64) / spread), *limits)
        given = [
            self._constant(result, "codes", codes, np.int32),
            self._constant(result, "scale", scale),
        ]
        return [helper.make_node("DequantizeLinear", given, [result], node.name, **on_axis)]

    def _arithmetic(self, node: NodeProto, to_codes: Steps, constants: Constants) -> list[NodeProto]:
        """The same on floats, of which ``to_codes`` makes codes."""
        data, scale, zero, *_ = node.input
        known = _numbers(constants, zero)
        moves = known is None or bool(known.any())
        steps = [("Div", [scale]), *[("Add", [zero])] * moves, *to_codes]
        return self._chain(node, data, [*steps, *[("Sub", [zero])] * moves, ("Mul", [scale])])

    def _ends(self, node: NodeProto, limits: _Limits) -> list[str]:
        result = node.output[0]
        return [self._constant(result, name, end, np.float32) for name, end in limits._asdict().items()]

    def _truncated(
        self, node: NodeProto, settings: Mapping[str, Any], constants: Constants
    ) -> list[NodeProto] | None:
        """Codes that lose their lowest bits; from version 2 on they have a scale and limits of their own."""
        given = [_numbers(constants, name) for name in node.input[1:]]
        rounding = _rounding(settings.get("rounding_mode", "FLOOR"))
        if rounding is None or any(numbers is None or numbers.size != 1 for numbers in given):
            return None
        (data, scale, zero, *_), (result,) = node.input, node.output
        numbers = [float(one.item()) for one in given if one is not None]
        divisor = 2.0 ** (numbers[2] - numbers[3])
        if len(numbers) == 5:
            divisor = 2.0 ** round(math.log2(numbers[3] / numbers[0]))
        by = self._constant(result, "divisor", divisor, np.float32)
        steps: Steps = [("Div", [scale]), ("Add", [zero]), ("Round", []), ("Div", [by])]
        if len(numbers) < 5:
            return self._chain(node, data, [*steps, (rounding, []), ("Sub", [zero]), ("Mul", [scale])])
        limits = _Limits.of(int(numbers[4]), bool(settings.get("signed", 1)), bool(settings.get("narrow", 0)))
        ends = self._ends(node, limits)
        less = self._constant(result, "zero_point", numbers[1] / divisor, np.float32)
        steps = [*steps, ("Clip", ends), (rounding, []), ("Sub", [less]), ("Mul", [node.input[4]])]
        return self._chain(node, data, steps)

    def _one_bit(self, node: NodeProto, constants: Constants) -> list[NodeProto]:
        """Codes of -1 and 1, which is the sign of the data unless it is moved or turned first."""
        scale, zero = (_numbers(constants, name) for name in node.input[1:3])
        if scale is not None and zero is not None and (scale > 0).all() and not zero.any():
            return self._signs(node)
        threshold, positive, negative = (
            self._constant(node.output[0], name, number, np.float32)
            for name, number in (("threshold", 0), ("positive", 1), ("negative", -1))
        )
        signs: Steps = [("GreaterOrEqual", [threshold]), ("Where", [positive, negative])]
        return self._arithmetic(node, signs, constants)

    def _signs(self, node: NodeProto) -> list[NodeProto]:
        """One bit: the scale, with the sign of the data."""
        (data, scale, *_), (result,) = node.input, node.output
        zero = self._constant(result, "threshold", 0, np.float32)
        above, negative = self._free(result, "is_positive"), self._free(result, "negative")
        return [
            helper.make_node("GreaterOrEqual", [data, zero], [above]),
            helper.make_node("Neg", [scale], [negative]),
            helper.make_node("Where", [above, scale, negative], [result], node.name),
        ]

    def _chain(self, node: NodeProto, data: str, steps: Steps) -> list[NodeProto]:
        made = []
        for index, (op_type, given) in enumerate(steps):
            is_last = index == len(steps) - 1
            result = node.output[0] if is_last else self._free(node.output[0], op_type.lower())
            made.append(helper.make_node(op_type, [data, *given], [result], node.name if is_last else None))
            data = result
        return made

    def _constant(self, result: str, part: str, numbers: Any, dtype: Any = None) -> str:
        name = self._free(result, part)
        self.constants.append(numpy_helper.from_array(np.array(numbers, dtype), name))
        return name

    def _free(self, result: str, part: str) -> str:
        name = self._names.free(f"{result}_{part}")
        self._names.claim(name)
        return name


def _rounding(mode: str) -> str | None:
    """The op that rounds in a way of QONNX; None if there is none."""
    return _ROUNDING.get(mode.upper())
