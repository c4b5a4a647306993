"""Why ONNX Runtime's CPU provider keeps a quantized op in float: the conditions of its integer kernels.

They are those of its QDQ selectors (``qdq_selectors.cc``, ``qdq_selector_action_transformer.cc``), found by
experiment on x86; the tests hold every one of them against what ONNX Runtime does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, numpy_helper

from qc.ir.facts.op_table import traits_of

from ..protos.wiring import Node

_BYTES = (TensorProto.UINT8, TensorProto.INT8)
_CODES = (*_BYTES, TensorProto.UINT4, TensorProto.INT4)
_NEEDS_QUANTIZED_RESULT = frozenset(
    ["Conv", "Add", "Mul", "Concat", "Sigmoid", "LeakyRelu", "AveragePool", "GlobalAveragePool", "Softmax"]
)
_MOVES = frozenset(
    {
        "ArgMax",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "Identity",
        "MaxPool",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Resize",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
_SUPPORTED = _NEEDS_QUANTIZED_RESULT | _MOVES | {"MatMul", "Gemm"}
TWO_SIGNED = ("Add", "Mul", "Concat")  # which have no integer kernel for int8 alone on x86
_DATA_PORTS = {"Conv": (0, 1), "MatMul": (0, 1), "Gemm": (0, 1), "Add": (0, 1), "Mul": (0, 1)}


class FloatReason(NamedTuple):
    """Why an op runs in float.

    Attributes:
        rule: the condition that is not met, in a word or two.
        text: what is missing, in one sentence.
    """

    rule: str
    text: str


# Why a recurrent op whose weights are codes computes in float.
_STORED = {
    "LSTM": "computing in float is as quick as DynamicQuantizeLSTM where there are so few",
    "GRU": "ONNX Runtime has no integer kernel for it on CPU",
    "RNN": "ONNX Runtime has no integer kernel for it on CPU",
}

UNKNOWN = FloatReason("unknown", "ONNX Runtime keeps it in float for a reason that qc does not know")


def why_float(node: Node) -> FloatReason:
    """The first condition of ONNX Runtime's integer kernels that an op of a QDQ model does not meet."""
    if has_stored_weights(node):
        why = _STORED.get(node.op_type)
        text = f"its weights are stored in 8 bits, and {why or 'its data is float'}"
        return FloatReason("stored weights" if why is not None else "float input", text)
    if node.proto.domain or node.op_type not in _SUPPORTED:
        return FloatReason("unsupported op", f"ONNX Runtime has no integer kernel for {node.op_type} on CPU")
    checks = (_float_input, _form, _type_combination, _granularity, _result, _moved, _bias)
    return next((reason for check in checks if (reason := check(node)) is not None), UNKNOWN)


def has_stored_weights(node: Node) -> bool:
    """Whether it reads a weight which Cast and Mul make of stored codes."""
    port = traits_of(node.op_type).trained.get("weight") if traits_of(node.op_type).product else None
    behind = node.producer(port) if port is not None else None
    for op_type in ("Reshape", "Mul", "Sub", "Reshape"):
        if behind is not None and behind.op_type == op_type:
            behind = behind.producer(0)
    codes = behind.constant(0) if behind is not None and behind.op_type == "Cast" else None
    return codes is not None and codes.data_type in _CODES


def _data_ports(node: Node) -> tuple[int, ...]:
    if node.op_type == "Concat":
        return tuple(range(len(node.proto.input)))
    return _DATA_PORTS.get(node.op_type, (0,))


def _float_input(node: Node) -> FloatReason | None:
    for port in _data_ports(node):
        if node.dequantizer(port) is None:
            what = "the constant" if node.constant(port) is not None else "the tensor"
            return FloatReason("float input", f"it reads {what} '{node.proto.input[port]}' in float")
    return None


def _form(node: Node) -> FloatReason | None:
    """Whether the op is in a form, by its attributes and its opset, that has an integer kernel."""
    mode = node.attribute("mode")
    if node.op_type == "Resize" and mode is not None and mode.s != b"nearest":
        return FloatReason("attribute", f"its mode is '{mode.s.decode()}', not 'nearest'")
    if node.op_type == "MaxPool" and 0 < node.graph.opset < 12:
        return FloatReason(
            "opset", f"its integer form begins with opset 12; the model has {node.graph.opset}"
        )
    return None


def _type_combination(node: Node) -> FloatReason | None:
    types = [_code_type(node, port) for port in _data_ports(node)]
    for port, type in zip(_data_ports(node), types, strict=True):
        if type is not None and type not in _BYTES:
            said = f"'{node.proto.input[port]}' has codes of type {_type_name(type)}"
            return FloatReason("type combination", f"{said}; its integer kernels take uint8 and int8")
    made = _result_type(node)
    if made is not None and made not in _BYTES:
        return _wrong_result_type(made)
    return _two_signed(node, [*types, made])


def _two_signed(node: Node, types: list[int | None]) -> FloatReason | None:
    """Whether all is signed, which x86 has no kernels for in some ops."""
    product = node.op_type == "MatMul" and not _is_weighted(node)
    if set(types) != {int(TensorProto.INT8)} or not (product or node.op_type in TWO_SIGNED):
        return None
    text = "all that it reads and makes has codes of type int8; on x86 its integer kernels take uint8"
    return FloatReason("type combination", text)


def _is_weighted(node: Node) -> bool:
    """Whether the second input is a constant that was stored in codes."""
    dequantizer = node.dequantizer(1)
    return dequantizer is not None and dequantizer.constant(0) is not None


def _wrong_result_type(made: int) -> FloatReason:
    said = f"its result has codes of type {_type_name(made)}"
    return FloatReason("type combination", f"{said}; its integer kernels give uint8 and int8")


def _granularity(node: Node) -> FloatReason | None:
    for port in _data_ports(node):
        dequantizer = node.dequantizer(port)
        if dequantizer is None or not _has_several_scales(dequantizer):
            continue
        name = node.proto.input[port]
        if dequantizer.attribute("block_size") is not None:
            return FloatReason("granularity", f"'{name}' has a scale for every block")
        if port != 1 or node.op_type not in ("Conv", "MatMul", "Gemm"):
            return FloatReason("granularity", f"'{name}' has several scales; only weights may")
    return None


def misread(node: Node) -> FloatReason | None:
    """Why the numbers of an integer kernel are wrong: ONNX Runtime ignores along which axis scales are."""
    dequantizer = node.dequantizer(1) if node.op_type in ("Conv", "MatMul", "Gemm") else None
    codes = dequantizer.constant(0) if dequantizer is not None else None
    if dequantizer is None or codes is None or not codes.dims or not _has_several_scales(dequantizer):
        return None
    given, rank = dequantizer.attribute("axis"), len(codes.dims)
    axis = (int(given.i) if given is not None else 1) % rank
    meant = {"Conv": 0, "MatMul": rank - 1}.get(node.op_type, 0 if _is_set(node, "transB") else 1)
    if axis == meant:
        return None
    scales = f"the scales of '{node.proto.input[1]}' are along axis {axis}"
    return FloatReason(
        "granularity", f"{scales}, and are taken for those of axis {meant}: its numbers are wrong"
    )


def _result(node: Node) -> FloatReason | None:
    """Whether the result goes into a quantizer, and nothing else but an activation that can be dropped."""
    between = _activations_behind(node)
    last = between[-1] if between else node
    readers = last.consumers()
    ends = bool(readers) and all(reader.op_type == "QuantizeLinear" for reader in readers)
    if node.op_type in _NEEDS_QUANTIZED_RESULT | _MOVES:
        name = last.proto.output[0]
        if last.is_output():
            return FloatReason("no output quantizer", f"its result '{name}' is a graph output")
        if not ends:
            reader = next((one for one in readers if one.op_type != "QuantizeLinear"), None)
            by = f"read in float by {reader.label}" if reader is not None else "read by nothing"
            return FloatReason("no output quantizer", f"its result '{name}' is {by}")
        if len(readers) > 1 and node.op_type not in _MOVES:
            return FloatReason(
                "no output quantizer", f"its result '{name}' is quantized to {len(readers)} grids"
            )
    return _activation(last, readers[0]) if between and ends and node.op_type != "MatMul" else None


def _activations_behind(node: Node) -> list[Node]:
    """The Relu and Clip ops that alone read a result, one after the other."""
    found: list[Node] = []
    last = node
    while node.op_type not in _MOVES and not last.is_output():
        readers = last.consumers()
        if len(readers) != 1 or readers[0].op_type not in ("Relu", "Clip"):
            break
        last = readers[0]
        found.append(last)
    return found


def _activation(activation: Node, quantizer: Node) -> FloatReason | None:
    """Whether the quantizer behind an activation does its work, so that it can be dropped."""
    zero_point = quantizer.constant(2)
    if zero_point is None:
        return None
    if zero_point.data_type not in _BYTES:
        return _wrong_result_type(int(zero_point.data_type))
    lowest = -128 if zero_point.data_type == TensorProto.INT8 else 0
    number = int(numpy_helper.to_array(zero_point).reshape(-1)[0])
    stays = f"{activation.label} stays between it and a quantizer"
    if number != lowest:
        text = f"{stays} whose zero point is {number}, not {lowest}"
        return FloatReason("activation in between", text)
    if activation.op_type != "Clip":
        return None
    reach = _reach(quantizer)
    limit = _limit(activation)
    if limit is None:
        return FloatReason("activation in between", f"{stays}, and its limits are no constants")
    if reach is not None and reach > limit * (1 + 1e-5):
        text = f"{stays} that reaches to {reach:.4g}, beyond its limit {limit:.4g}"
        return FloatReason("activation in between", text)
    return None


def _reach(quantizer: Node) -> float | None:
    """The largest number of a grid whose zero point is the lowest code; None if it is computed."""
    scale = quantizer.constant(1)
    return 255 * float(numpy_helper.to_array(scale).max()) if scale is not None else None


def _limit(clip: Node) -> float | None:
    """The upper limit of a Clip; None if it is computed, infinite if there is none."""
    given = clip.attribute("max")
    if given is not None:
        return float(given.f)
    if len(clip.proto.input) < 3 or not clip.proto.input[2]:
        return math.inf
    constant = clip.constant(2)
    return float(numpy_helper.to_array(constant).item()) if constant is not None else None


def _moved(node: Node) -> FloatReason | None:
    """Whether what an op moves keeps its grid."""
    given = node.dequantizer(0)
    made = next((one for one in node.consumers() if one.op_type == "QuantizeLinear"), None)
    if node.op_type not in _MOVES or given is None or made is None:
        return None
    if all(_same(given.constant(port), made.constant(port)) for port in (1, 2)):
        return None
    return FloatReason("other grid", "its result has another grid than its input, which it only moves")


def _same(one: TensorProto | None, other: TensorProto | None) -> bool:
    if one is None or other is None:
        return one is other
    return np.array_equal(numpy_helper.to_array(one), numpy_helper.to_array(other))


def _bias(node: Node) -> FloatReason | None:
    if node.op_type in ("Conv", "Gemm") and _has_other_scale(node):
        return FloatReason(
            "bias scale", f"the scale of its bias '{node.proto.input[2]}' is not input times weight"
        )
    if node.op_type == "Gemm" and len(node.proto.input) > 2 and node.proto.input[2]:
        if node.dequantizer(2) is None:
            return FloatReason("float bias", f"its bias '{node.proto.input[2]}' is not quantized to int32")
        beta = node.attribute("beta")
        if beta is not None and beta.f != 1.0:
            return FloatReason("attribute", f"its beta is {beta.f:g}, not 1")
    if node.op_type == "MatMul" and not any(one.op_type == "QuantizeLinear" for one in node.consumers()):
        adds = [one for one in node.consumers() if one.op_type == "Add"]
        if adds and not any(adds[0].dequantizer(port) is not None for port in (0, 1)):
            return FloatReason(
                "float bias", f"{adds[0].label} adds a float bias, and both become a float Gemm"
            )
    return None


def _code_type(node: Node, port: int) -> int | None:
    """The element type of the codes that an input was dequantized from; None if it is not known."""
    dequantizer = node.dequantizer(port)
    if dequantizer is None:
        return None
    zero_point = dequantizer.constant(2)
    codes = dequantizer.constant(0)
    if zero_point is not None:
        return int(zero_point.data_type)
    return int(codes.data_type) if codes is not None else None


def _result_type(node: Node) -> int | None:
    """The element type of the codes that the result is quantized to; None if it is not, or not known."""
    for reader in node.consumers():
        zero_point = reader.constant(2) if reader.op_type == "QuantizeLinear" else None
        if zero_point is not None:
            return int(zero_point.data_type)
    return None


def _type_name(type: int | None) -> str:
    return "unknown" if type is None else str(TensorProto.DataType.Name(type)).lower()


def _has_several_scales(dequantizer: Node) -> bool:
    scale = dequantizer.constant(1)
    return scale is not None and math.prod(scale.dims) > 1


def _has_other_scale(node: Node) -> bool:
    """Whether the bias is quantized with a scale that is not that of the input times that of the weight."""
    found = [node.dequantizer(port) for port in range(3)]
    scales = [dequantizer.constant(1) for dequantizer in found if dequantizer is not None]
    if len(scales) < 3:
        return False
    data, weight, bias = (numpy_helper.to_array(scale) if scale is not None else None for scale in scales)
    if data is None or weight is None or bias is None:
        return False
    return not np.allclose(bias, data * weight, rtol=1e-4, atol=0)


def _is_set(node: Node, name: str) -> bool:
    attribute = node.attribute(name)
    return attribute is not None and bool(attribute.i)
