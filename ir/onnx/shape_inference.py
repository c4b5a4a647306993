"""ONNX's shape inference, kept from what it crashes on and from what it never finishes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import onnx
from google.protobuf.message import EncodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.helper import make_attribute, make_function, make_node, make_opsetid

from ..errors import ModelError
from ..facts.op_table import traits_of
from ..facts.runtime_ops import MAIN_DOMAINS, is_of_runtime
from ..tensor_ref import TensorRef
from .names_apart import forget, tell_apart
from .protos import Body, nested_graphs, walk_bodies

# These read the type of an input without asking whether it is known; the process dies if it is not.
_FRAGILE = frozenset({"DictVectorizer", "EyeLike", "LabelEncoder", "RegexFullMatch", "TreeEnsemble"})
# Of these ONNX infers no shape; it is that of their input, and the result is float32.
_FLOATS_ALIKE = frozenset({"Normalizer", "Scaler"})
_ML = "ai.onnx.ml"
# What ONNX Runtime's optimizer makes of several ops: with an activation, or a result like the first input.
_ACTIVATED = frozenset({"FusedConv", "FusedGemm"})
_SHAPED_ALIKE = frozenset({"BiasGelu", "FastGelu", "Gelu", "QuickGelu", "RotaryEmbedding"})
_SUMMED = frozenset({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
_QUANTIZED = frozenset({"QuantizeLinear", "DequantizeLinear"})  # with types that ONNX's had not before
_SUM = 3  # which result of these is what they normalize
_MICROSOFT = "com.microsoft"
_HIDDEN = "qc.hidden"
_TWICE = "Twice"  # a function in that domain: what it reads, two times
_LONG = 1 << 16
_MISFIT = re.compile(
    r"\(op_type:(?P<op>\w+)(?:, node name: (?P<node>.*?))?\): \[ShapeInferenceError\] (?P<cause>.*)"
)


def infer_shapes(model: ModelProto) -> ModelProto:
    """The model with the types that can be told, as far as that works; ``model`` itself may be changed.

    Raises:
        ModelError: the model is too large for protobuf.
    """
    bodies = list(walk_bodies(model))
    hidden = _hide_fragile(model, bodies)
    _show_alike(model, bodies)
    tell_apart(model)
    longest = max(map(_longest_vector, bodies))
    quick = longest <= _LONG and not any(map(_asks_for_a_long_vector, bodies))
    known = _infer(model, quick)
    if hidden:
        typed = {info.name for info in _infos(known.graph) if info.type.tensor_type.elem_type}
        typed.update(tensor.name for tensor in known.graph.initializer)
        for index, domain in hidden.items():
            if typed.issuperset(filter(None, model.graph.node[index].input)):
                model.graph.node[index].domain = domain
        known = _infer(model, quick)
    forget(known)
    return known


def main_opset(model: ModelProto) -> int:
    """The version of ONNX's own domain that a model imports; 0 for none."""
    return next((one.version for one in model.opset_import if one.domain in MAIN_DOMAINS), 0)


def hide_ops_of_runtime(model: ModelProto) -> None:
    """Moves ops that ONNX Runtime alone has in ONNX's domain into one that ONNX's checker asks nothing of."""
    opset = main_opset(model)
    nodes = (node for body in walk_bodies(model) for node in body.node)
    for node in nodes:
        if is_of_runtime(node.op_type, node.domain, opset):
            node.domain = _HIDDEN
    _import_hidden(model)


def show_ops_of_runtime(model: ModelProto) -> None:
    """Takes back what :func:`hide_ops_of_runtime` did."""
    for node in (node for body in walk_bodies(model) for node in body.node):
        if node.domain == _HIDDEN:
            node.domain = ""
    imports = [entry for entry in model.opset_import if entry.domain != _HIDDEN]
    del model.opset_import[:]
    model.opset_import.extend(imports)


def hide_bodies(model: ModelProto) -> None:
    """Lets the inference know nothing of the results of main ops with bodies, of which one may never run."""
    for node in model.graph.node:
        if nested_graphs(node):
            node.domain = _HIDDEN
    _import_hidden(model)


def misfit(model: ModelProto) -> str:
    """The first op whose inputs do not fit each other by ONNX's shape inference, and why; empty if all do.

    A declared shape that differs from the inferred one is such a misfit, too, although runtimes may run it.
    ``model`` itself may be changed.
    """
    _hide_fragile(model, list(walk_bodies(model)))
    try:
        known = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        found = _MISFIT.search(str(error))
        if found is None:
            return ""
        op, node, cause = found.groups()
        return f"{op} '{node}': {cause}" if node else f"a {op} without a name: {cause}"
    except Exception:  # as in _infer
        return ""
    return next(_below_zero(known.graph), "")


def _below_zero(graph: GraphProto) -> Iterator[str]:
    """The ops of a graph for which the inference gives a length below 0, as of windows beyond the data."""
    below = {
        info.name
        for info in (*graph.input, *graph.value_info, *graph.output)
        if any(dim.dim_value < 0 for dim in info.type.tensor_type.shape.dim)
    }
    for node in graph.node:
        if not below.isdisjoint(node.output) and below.isdisjoint(node.input):
            yield f"{node.op_type} '{node.name or node.output[0]}': its result would have a length below 0"


def _infer(model: ModelProto, propagate: bool) -> ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=propagate)
    except EncodeError as error:
        raise ModelError(
            "the model cannot be read: even without its weights it is larger than 2 GiB, which is more than "
            "protobuf can hold"
        ) from error
    except Exception:  # best effort: declared types remain, the runtime can tell the rest
        return model


def _infos(body: Body) -> list[ValueInfoProto]:
    given = [*body.input, *body.output] if isinstance(body, GraphProto) else []
    return [*given, *body.value_info]


def _hide_fragile(model: ModelProto, bodies: list[Body]) -> dict[int, str]:
    """Moves fragile nodes into a domain nobody knows.

    Returns:
        By place in the main graph, the domain of those that may be shown once their inputs are known.
    """
    hidden = {}
    for body in bodies:
        for index, node in enumerate(body.node):
            if node.op_type in _FRAGILE:
                if body is model.graph:
                    hidden[index] = node.domain
                node.domain = _HIDDEN
            elif node.op_type == "GatherND" and any(attribute.i < 0 for attribute in node.attribute):
                node.domain = _HIDDEN  # its batch_dims must not be negative
    _import_hidden(model)
    return hidden


def _import_hidden(model: ModelProto) -> None:
    if all(entry.domain != _HIDDEN for entry in model.opset_import):
        model.opset_import.add(domain=_HIDDEN, version=1)


def _show_alike(model: ModelProto, bodies: list[Body]) -> None:
    """Puts in place of ops whose shapes ONNX does not infer one of which it does."""
    opset = main_opset(model)
    copies = [make_node("Identity", ["x"], [name]) for name in ("y", "z")]
    imports = [make_opsetid("", max(opset, 1))]
    model.functions.append(make_function(_HIDDEN, _TWICE, ["x"], ["y", "z"], copies, imports))
    for body in bodies:
        constants = {tensor.name: tensor for tensor in getattr(body, "initializer", ())}
        for node in body.node:
            if node.domain == _ML and node.op_type in _FLOATS_ALIKE:
                _stand_in(node, "Cast", 1, [make_attribute("to", TensorProto.FLOAT)])
            elif is_of_runtime(node.op_type, node.domain, opset):
                _stand_in(node, "Identity", 1, [])
            elif node.domain == _MICROSOFT:
                _show_fused(node, constants)


def _show_fused(node: NodeProto, constants: Mapping[str, TensorProto]) -> None:
    """Makes an op of ONNX Runtime's own domain one of ONNX's, if there is one whose result has its shape."""
    if node.op_type in _SHAPED_ALIKE or (node.op_type == "GroupQueryAttention" and any(node.input[1:2])):
        _stand_in(node, "Identity", 1, [])
    elif node.op_type in _QUANTIZED:
        node.domain = ""
    elif node.op_type in _SUMMED:
        if len(node.output) > _SUM:
            results = [node.output[0], node.output[_SUM]]
            _stand_in(node, _TWICE, 1, [], _HIDDEN)
            node.output[:] = results
        else:
            _stand_in(node, "Identity", 1, [])
    elif node.op_type == "EmbedLayerNormalization" and len(node.input) > 2:
        node.input[:2] = [node.input[2], node.input[0]]
        _stand_in(node, "Gather", 2, [])
    elif node.op_type == "Attention" and len(node.input) > 1 and node.input[1] in constants:
        width, columns = [*constants[node.input[1]].dims, 0, 0][:2]
        if columns == 3 * width and not any(one.name == "qkv_hidden_sizes" for one in node.attribute):
            _stand_in(node, "Identity", 1, [])
    elif node.op_type == "MultiHeadAttention" and len(node.input) > 2:
        node.input[1:3] = [node.input[2]]
        _stand_in(node, "Einsum", 2, [make_attribute("equation", "bqi,bkj->bqj")])
    elif node.op_type in _ACTIVATED:
        kept = [one for one in node.attribute if not one.name.startswith("activation")]
        _stand_in(node, node.op_type.removeprefix("Fused"), 3, kept)
    elif node.op_type == "FusedMatMul":
        turned = {one.name for one in node.attribute if one.i or one.ref_attr_name}
        left, right = "ji" if "transA" in turned else "ij", "kj" if "transB" in turned else "jk"
        left, right = (
            f"{term[0]}...{term[1]}" if f"transBatch{side}" in turned else f"...{term}"
            for term, side in ((left, "A"), (right, "B"))
        )
        _stand_in(node, "Einsum", 2, [make_attribute("equation", f"{left},{right}->...ik")])


def _stand_in(
    node: NodeProto, op_type: str, inputs: int, attributes: list[AttributeProto], domain: str = ""
) -> None:
    kept = [AttributeProto.FromString(attribute.SerializeToString()) for attribute in attributes]
    node.op_type, node.domain = op_type, domain
    del node.input[inputs:], node.output[1:], node.attribute[:]
    node.attribute.extend(kept)


def _longest_vector(body: Body) -> int:
    """The greatest declared length of a vector; on the way, negative sizes become unknown, as they are meant.

    The propagation of data writes down every element of a vector, known or not: a declared length of 2**40,
    which costs a file nothing, would keep it busy for days. GatherND takes a negative size for a number.
    """
    longest = 0
    for info in _infos(body):
        sizes = info.type.tensor_type.shape.dim
        for dim in sizes:
            if dim.dim_value < 0:
                dim.Clear()
        if len(sizes) == 1:
            longest = max(longest, sizes[0].dim_value)
    return longest


def _asks_for_a_long_vector(body: Body) -> bool:
    constants: dict[str, TensorProto] = {}
    if isinstance(body, GraphProto):
        constants = {tensor.name: tensor for tensor in body.initializer}
    for node in body.node:
        if node.op_type == "Constant":
            tensors = [attribute.t for attribute in node.attribute if attribute.HasField("t")]
            constants.update(zip(node.output, tensors, strict=False))
        elif traits_of(node.op_type).sized:
            read = (constants[name] for name in node.input if name in constants)
            if any(map(_is_large_number, read)):
                return True
    return False


def _is_large_number(tensor: TensorProto) -> bool:
    if list(tensor.dims) not in ([], [1]) or tensor.data_type not in (TensorProto.INT64, TensorProto.INT32):
        return False
    try:
        return int(TensorRef(tensor).numpy().reshape(-1)[0]) > _LONG
    except ModelError:
        return True  # nobody knows
