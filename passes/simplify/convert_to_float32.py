"""Makes float32 the type that a model computes in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx
import numpy as np
from onnx import AttributeProto, GraphProto, TensorProto, TypeProto, ValueInfoProto, helper

from qc.ir.errors import ModelError
from qc.ir.facts.op_table import traits_of
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .constants.initializers import initializer_data, make_initializer

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")  # whose ops take float32 wherever they take another float
_LIMITS = np.finfo(np.float32)


@dataclass(frozen=True)
class ConvertToFloat32(Pass):
    """Lets a model compute in float32 what it computes in float16, bfloat16 or float64.

    All 16-bit floats are converted, and those 64-bit ones that are connected with a convolution, a matrix
    product or a recurrent op; what else is computed in float64, such as sizes, stays. The inputs and outputs
    of the model keep their types, with a Cast beside them. So do stored constants of 16 bits, which are
    exact in float32 and are converted when they are read: a result is no larger for it. A number of 64 bits
    beyond float32 becomes the nearest one that is finite, and none becomes 0 that is not.

    A Cast to one of these types becomes one to float32, so nothing is rounded or overflows there any more.
    An op of a domain that qc does not know, or of a local function, still gets the types that it had.
    """

    name = "convert-to-float32"
    stage = Stage.FLOAT
    tolerance = 1e-2  # what was rounded to 8 or 11 bits at every op no longer is

    def run(self, model: Model, context: PassContext) -> None:
        converted = _converted(model)
        first = next(iter(converted), None)
        if first is None:
            return
        _refuse_sequences(model)
        given = {value for value in (*model.graph.inputs, *model.graph.outputs) if value in converted}
        rewriter = Rewriter(model)
        with rewriter.action("convert to float32", first):
            for graph in list(model.graph.walk()):
                for op in graph.ops():
                    _convert_op(rewriter, op, converted)
            for value in converted:
                _convert_value(rewriter, value)
        names = sorted({helper.tensor_dtype_to_np_dtype(one).name for one in converted.values()})
        kept = "; its inputs and outputs keep their types" if given else ""
        context.notes.append(f"what the model computes in {' and '.join(names)} is compiled in float32{kept}")


def _converted(model: Model) -> dict[Value, int]:
    """The values that change their type, captured ones too, with the type that they have."""
    doubles = _double_networks(model)
    return {
        value: value.type.elem_type
        for graph in model.graph.walk()
        for value in graph.values()
        if value.type.elem_type in _HALVES or value.original in doubles
    }


def _double_networks(model: Model) -> set[Value]:
    """The float64 values that are connected, by whatever ops, with one that sums products with weights."""
    network = nx.Graph()
    heads = []
    for graph in model.graph.walk():
        for op in graph.ops():
            doubles = [value.original for value in _touched(op) if value.type.elem_type == DOUBLE]
            if doubles:
                nx.add_path(network, [op, *doubles])
            if doubles and traits_of(op.op_type, op.domain).product:
                heads.append(op)
    found: set[Value] = set()
    for head in heads:
        if found.isdisjoint(network[head]):
            found.update(one for one in nx.node_connected_component(network, head) if isinstance(one, Value))
    return found


def _touched(op: Op) -> Iterator[Value]:
    """All that an op reads or makes, the interface of its bodies included."""
    bodies = op.subgraphs.values()
    interfaces = [value for body in bodies for value in (*body.inputs, *body.outputs)]
    values = (*op.inputs, *op.outputs, *interfaces)
    return (value for value in values if value is not None)


def _refuse_sequences(model: Model) -> None:
    """Raises ModelError for sequences and optionals of what would be converted: no Cast takes them."""
    for graph in model.graph.walk():
        proto = graph.proto
        if isinstance(proto, GraphProto):
            for info in (*proto.input, *proto.output, *proto.value_info):
                if _holds_halves(info):
                    raise ModelError(
                        f"'{info.name}' is a sequence of 16-bit floats, which qc cannot convert; "
                        "export the model in float32"
                    )


def _holds_halves(info: ValueInfoProto) -> bool:
    inner: TypeProto = info.type
    while not inner.HasField("tensor_type"):
        kind = inner.WhichOneof("value")
        if kind not in ("sequence_type", "optional_type"):
            return False
        inner = getattr(inner, kind).elem_type
    return not info.type.HasField("tensor_type") and inner.tensor_type.elem_type in _HALVES


# -- values -----------------------------------------------------------------------------------------------


def _convert_value(rewriter: Rewriter, value: Value) -> None:
    if value not in value.graph:
        return  # the result of a Constant that became an initializer
    doubles = value.const is not None and value.type.elem_type == DOUBLE
    rewriter.set_element_type(value, FLOAT)
    if doubles and value.const is not None:
        rewriter.set_constant(value, _in_float32(value.const.read_as(DOUBLE).numpy()))


def _in_float32(numbers: np.ndarray) -> np.ndarray:
    """The nearest finite numbers of float32; infinities stay, and what is not 0 does not become 0."""
    if numbers.dtype != np.float64:
        return numbers.astype(np.float32)
    limited = np.where(np.isinf(numbers), numbers, np.clip(numbers, _LIMITS.min, _LIMITS.max))
    tiny = (limited != 0) & (np.abs(limited) < _LIMITS.tiny)
    return np.where(tiny, np.copysign(_LIMITS.tiny, limited), limited).astype(np.float32)


# -- ops --------------------------------------------------------------------------------------------------

# Attributes that name an element type, of whichever op.
_TYPE_ATTRIBUTES = frozenset(
    {"to", "dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision", "precision"}
)


def _convert_op(rewriter: Rewriter, op: Op, converted: dict[Value, int]) -> None:
    if op.domain not in _DOMAINS:
        _keep_types(rewriter, op, converted)
        return
    constant = initializer_data(op)
    if constant is not None and constant.data_type in _HALVES:  # an initializer is stored as it was
        converted[make_initializer(rewriter, op, constant)] = constant.data_type
        return
    changed = _HALVES | {converted[value] for value in op.outputs if value in converted}
    for name, attribute in op.attributes.items():
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in changed:
            numbers = TensorRef(attribute.t, op.graph.model.base_dir).numpy()
            tensor = TensorRef.from_array(_in_float32(numbers)).renamed(attribute.t.name)
            rewriter.set_attribute(op, name, tensor)
        elif attribute.type == AttributeProto.INT and name in _TYPE_ATTRIBUTES and attribute.i in changed:
            rewriter.set_attribute(op, name, FLOAT)


def _keep_types(rewriter: Rewriter, op: Op, converted: dict[Value, int]) -> None:
    """Puts casts around an op, so that it reads and makes what it did."""
    graph = op.graph
    for port, value in enumerate(op.inputs):
        if value in converted:
            type = value.type._replace(elem_type=converted[value])
            given = rewriter.add_value(graph, f"{value.name}_cast", type)
            rewriter.add_op(graph, "Cast", [value], [given], {"to": type.elem_type})
            rewriter.set_input(op, port, given)
    for value in op.outputs:
        if value in converted:
            result = rewriter.add_value(graph, f"{value.name}_cast", value.type)
            rewriter.replace_uses(value, result)
            rewriter.add_op(graph, "Cast", [value], [result], {"to": FLOAT})
            converted[result] = converted.pop(value)
