"""Models in another opset, by ONNX's converter but for what it gets wrong."""

from __future__ import annotations

from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, version_converter

from ..errors import ModelError
from ..tensor_ref import TensorRef
from .inlining import inlined
from .protos import model_tensors, walk_bodies, walk_nodes, without_initializers
from .shape_inference import hide_ops_of_runtime, show_ops_of_runtime

_PLACES = 11  # the first opset in which a Resize says how places correspond
_FREE_CONSTANTS = 4  # the first version of the IR in which initializers need not be inputs
_READ = 11  # the first in which a Pad reads lengths and the number that it fills with
_ALONE = 13  # the first in which a Hardmax is along one axis, and not of all axes from one on
_SMALL = 1 << 10  # elements of a constant that the converter may want to read, such as axes or factors


def converted(model: ModelProto, opset: int, base_dir: Path | None = None) -> ModelProto:
    """The model in another opset; weights in other files, relative to ``base_dir``, stay there.

    ONNX's converter leaves a Resize of opset 10, and so an Upsample, to the default of newer ones, half of a
    place further; here it keeps its places. It leaves a Pad by reflection, or of edges, the attribute of a
    number to fill with, which newer ones do not have. It changes a Hardmax of several axes, which is refused
    here. It adds initializers to models that are too old for any that are no inputs; here these are Constant
    nodes. It knows nothing of constants in other files, nor of ops that ONNX Runtime alone has, and it loses
    the functions of the model, which are inlined first.

    Raises:
        Exception: ONNX cannot convert the model; its converter raises bare exceptions of its C++ library.
        ValueError: the model has a Hardmax that newer opsets do not have, or functions that stay.
    """
    own = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
    if own < _ALONE <= opset:
        _refuse_hardmax(model)
    given, weights = without_initializers(model, _is_large)
    if model.functions:
        given = _without_functions(given)
    if own < _READ <= opset:
        _drop_unused_numbers(given)
    _take_in_small_constants(given, base_dir)
    hide_ops_of_runtime(given)
    made = version_converter.convert_version(given, opset)
    show_ops_of_runtime(made)
    if made.ir_version < _FREE_CONSTANTS:
        for body in walk_bodies(made):
            if isinstance(body, GraphProto):
                _move_into_nodes(body)
    if own < _PLACES <= opset:
        for node in walk_nodes(made.graph.node):
            if node.op_type == "Resize" and not node.domain:
                _keep_places(node)
    for tensor in made.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(weights[tensor.name])
    return made


def convert_in_place(model: ModelProto, version: int, opset: int, needing: str) -> None:
    """Makes a model one of a newer opset, with the interface as it was declared.

    Raises:
        ModelError: ONNX cannot convert it; the sentence says that the ops that are ``needing`` it do.
    """
    try:
        newer = converted(model, opset)
        interfaces = ([*one.graph.input, *one.graph.output] for one in (model, newer))
        for before, after in zip(*interfaces, strict=True):
            after.type.CopyFrom(before.type)
    except Exception as error:  # the converter raises bare exceptions of its C++ library
        raise ModelError(
            f"the model has opset {version}, its {needing} need {opset}, and ONNX cannot convert it "
            f"({' '.join(str(error).split())}): convert it first"
        ) from error
    model.CopyFrom(newer)


def _is_large(tensor: TensorProto) -> bool:
    """Whether it lies in the model, and the converter has nothing to read in it but would copy it often."""
    return tensor.data_location != TensorProto.EXTERNAL and TensorRef(tensor).size > _SMALL


def _move_into_nodes(graph: GraphProto) -> None:
    """Makes Constant nodes of the initializers that are no inputs, as the converter adds them."""
    inputs = {info.name for info in graph.input}
    added = [tensor for tensor in graph.initializer if tensor.name not in inputs]
    nodes = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in added]
    nodes += graph.node
    if added:
        del graph.node[:]
        graph.node.extend(nodes)
    for tensor in added:
        graph.initializer.remove(tensor)


def _drop_unused_numbers(model: ModelProto) -> None:
    """Takes the number to fill with from each Pad that does not fill with one."""
    for node in walk_nodes(model.graph.node):
        attributes = {one.name: one for one in node.attribute} if node.op_type == "Pad" else {}
        if "value" in attributes and "mode" in attributes and attributes["mode"].s != b"constant":
            node.attribute.remove(attributes["value"])


def _without_functions(model: ModelProto) -> ModelProto:
    model = inlined(model)
    called = {(node.domain, node.op_type) for node in walk_nodes(model.graph.node)}
    left = next((one.name for one in model.functions if (one.domain, one.name) in called), None)
    if left is not None:
        raise ValueError(f"function '{left}' is of another opset than the model")
    del model.functions[:]
    return model


def _take_in_small_constants(model: ModelProto, base_dir: Path | None) -> None:
    for tensor in model_tensors(model):
        ref = TensorRef(tensor, base_dir)
        if ref.is_external and ref.size <= _SMALL:
            tensor.CopyFrom(TensorRef.from_array(ref.numpy(), tensor.data_type).renamed(tensor.name))


def _refuse_hardmax(model: ModelProto) -> None:
    for node in walk_nodes(model.graph.node):
        axis = next((one.i for one in node.attribute if one.name == "axis"), 1)
        if node.op_type == "Hardmax" and not node.domain and axis != -1:
            raise ValueError(f"Hardmax '{node.name}' is of all axes from {axis} on")


def _keep_places(node: NodeProto) -> None:
    """Says of a Resize what opset 10 means: places are multiplied, and the nearest is that below."""
    known = {one.name for one in node.attribute}
    for name, value in (("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "floor")):
        if name not in known:
            node.attribute.append(helper.make_attribute(name, value))
