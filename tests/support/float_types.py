"""Models in another float type, made of those in one."""

from __future__ import annotations

from google.protobuf.message import Message
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from qc.ir.onnx.protos import model_tensors, walk_bodies

# Inputs that are float32 whatever the others are.
_FIXED = {"Resize": (1, 2), "Upsample": (1,)}


def in_type(model: ModelProto, elem_type: int, source: int = TensorProto.FLOAT) -> ModelProto:
    """A copy that computes in ``elem_type`` what it does in ``source``: weights, interface, attributes."""
    result = ModelProto()
    result.CopyFrom(model)
    fixed = {
        node.input[port]
        for body in walk_bodies(result)
        for node in body.node
        for port in _FIXED.get(node.op_type, ())
        if port < len(node.input)
    }
    for tensor in model_tensors(result):
        if tensor.data_type == source and tensor.name not in fixed:
            _retype(tensor, elem_type)
    for body in walk_bodies(result):
        for node in body.node:
            _retype_node(node, elem_type, source)
        for info in (*body.input, *body.output, *body.value_info):
            if info.name not in fixed:
                _retype_declaration(info.type, elem_type, source)
    return result


def _retype(tensor: TensorProto, elem_type: int) -> None:
    array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(elem_type))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _retype_node(node: NodeProto, elem_type: int, source: int) -> None:
    for attribute in node.attribute:
        names_type = attribute.name in ("to", "dtype") and attribute.type == AttributeProto.INT
        if names_type and attribute.i == source:
            attribute.i = elem_type
        if node.op_type == "Constant" and attribute.name == "value_float":
            tensor = helper.make_tensor("", TensorProto.FLOAT, [], [attribute.f])
            attribute.CopyFrom(helper.make_attribute("value", tensor))
            _retype(attribute.t, elem_type)


def _retype_declaration(declared: Message, elem_type: int, source: int) -> None:
    if isinstance(declared, TypeProto.Tensor) and declared.elem_type == source:
        declared.elem_type = elem_type
    for field, value in declared.ListFields():
        if field.name in ("tensor_type", "sequence_type", "optional_type", "elem_type") and isinstance(
            value, Message
        ):
            _retype_declaration(value, elem_type, source)
