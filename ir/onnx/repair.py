"""Mending what runtimes do not mind in a model and ONNX's checker does, where it can mean only one thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import networkx as nx
import onnx
from google.protobuf.message import Message
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from ..base.names import Names
from ..errors import ModelError
from ..facts.constants import FREE_INITIALIZERS
from ..value_type import UNKNOWN
from .lower import free_initializers
from .protos import attributes_of, reads, walk_bodies, walk_graphs, walk_nodes, without_weights
from .qonnx import rounding_in_float
from .screening import TextError, plain_domain, screen_model
from .types import inferred, set_tensor_type, type_of

_WITH_IMPORTS = 3  # the first version of the format that has imports of operator sets
_MICROSOFT = "com.microsoft"  # has had no version but 1
_GROUP_SCALES, _CHANNEL_SCALES = 18, 21  # the first opsets in which a GroupNormalization has a scale for each


class Repaired(NamedTuple):
    """A model and what was wrong with it.

    Attributes:
        model: the model that was given, or a mended copy.
        notes: a sentence for each thing that was mended.
    """

    model: ModelProto
    notes: tuple[str, ...]


# What is wrong, and what mends it.
Defect: TypeAlias = tuple[str, Callable[[], None]]


def repaired(model: ModelProto) -> Repaired:
    """Screens a model, and mends what has one meaning only, by what ONNX Runtime takes it for.

    Raises:
        ModelError: as for :func:`~qc.ir.onnx.screening.screen_model`, but for text that is not UTF-8; or it
            has ops of QONNX with damaged constants, or in an opset that ONNX cannot convert.
    """
    mended, notes = model, []
    try:
        screen_model(model)
    except TextError:
        mended = _copy(model)
        notes.append(_escape_texts(mended))
        screen_model(mended)
    for find in _DEFECTS:
        defect = find(mended)
        if defect is None:
            continue
        if mended is model:
            mended = _copy(model)
            defect = find(mended)
            assert defect is not None
        sentence, mend = defect
        mend()
        notes.append(sentence)
    return Repaired(mended, tuple(f"the model was mended as it was read: {note}" for note in notes))


def _copy(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def _escape_texts(model: ModelProto) -> str:
    """Writes what is not UTF-8 in a text as escapes, and says so."""
    taken, bad = set(), []
    for message, name, index, text in _texts(model):
        if isinstance(text, bytes):
            bad.append((message, name, index, text.decode("utf-8", "backslashreplace")))
        else:
            taken.add(text)
    for message, name, index, text in bad:
        if text in taken:
            raise ModelError(f"the model is damaged: besides '{text}' it has a text that is not in UTF-8")
        if index is None:
            setattr(message, name, text)
        else:
            getattr(message, name)[index] = text
    return f"'{bad[0][3]}' is not text in UTF-8, and is written with escapes now"


def _texts(model: ModelProto) -> Iterator[tuple[Message, str, int | None, str | bytes]]:
    """Every text of a model, with its message, field, and place in a repeated one; bytes if not UTF-8."""
    pending: list[Message] = [model]
    while pending:
        message = pending.pop()
        for field, value in message.ListFields():
            if field.message_type is not None:
                pending.extend([value] if isinstance(value, Message) else value)
            elif field.type == field.TYPE_STRING and isinstance(value, (str, bytes)):
                yield message, field.name, None, value
            elif field.type == field.TYPE_STRING:
                yield from ((message, field.name, index, text) for index, text in enumerate(value))


def _aliased_domain(model: ModelProto) -> Defect | None:
    """The standard domain by its other name."""
    nodes = [node for body in walk_bodies(model) for node in body.node if node.domain == "ai.onnx"]
    if not nodes:
        return None

    def mend() -> None:
        for node in nodes:
            node.ClearField("domain")

    return f"{_named(nodes[0])} is of the domain 'ai.onnx', whose name in a node is ''", mend


def _missing_import(model: ModelProto) -> Defect | None:
    """A domain that nodes use and the model does not import: its newest version counts."""
    known = {plain_domain(entry.domain) for entry in model.opset_import}
    known.update(plain_domain(function.domain) for function in model.functions)
    missing: dict[str, int] = {}
    for node in walk_nodes(model.graph.node):
        domain = plain_domain(node.domain)
        if domain not in known:
            missing[domain] = max(missing.get(domain, 0), _newest_version(domain, node.op_type))
    versions = {domain: version for domain, version in missing.items() if version}
    if not versions:
        return None

    def mend() -> None:
        for domain, version in versions.items():
            model.opset_import.add(domain=domain, version=version)

    shown = ", ".join(f"'{domain or 'ai.onnx'}' (now {version})" for domain, version in versions.items())
    return f"it imports no version of {shown}", mend


def _newest_version(domain: str, op_type: str) -> int:
    """The version of a domain that brought the newest definition of an op; 0 if nothing is known of it."""
    if domain == _MICROSOFT:
        return 1
    if not onnx.defs.has(op_type, domain):
        return 0
    return int(onnx.defs.get_schema(op_type, domain).since_version)


def _old_format(model: ModelProto) -> Defect | None:
    """A version of the format that has no imports, or no initializers that are not inputs."""
    if not model.HasField("ir_version") or model.ir_version >= FREE_INITIALIZERS:
        return None
    inputs = {info.name for info in model.graph.input}
    if all(tensor.name in inputs for tensor in model.graph.initializer):
        if model.ir_version >= _WITH_IMPORTS:
            return None
        version = _WITH_IMPORTS
    else:
        version = FREE_INITIALIZERS

    def mend() -> None:
        if version == FREE_INITIALIZERS:
            free_initializers(model, model)
        model.ir_version = version

    return f"its format has version {model.ir_version}, but what it holds needs version {version}", mend


def _nameless_graph(model: ModelProto) -> Defect | None:
    def mend() -> None:
        model.graph.name = "main_graph"

    return None if model.graph.name else ("its graph has no name", mend)


def _repeated_metadata(model: ModelProto) -> Defect | None:
    """A key that has several values: the last one counts."""
    counts = Counter(entry.key for entry in model.metadata_props)
    repeated = [key for key, count in counts.items() if count > 1]
    if not repeated:
        return None

    def mend() -> None:
        values = {entry.key: entry.value for entry in model.metadata_props}
        del model.metadata_props[:]
        for key, value in values.items():
            model.metadata_props.add(key=key, value=value)

    return f"its metadata has the key '{repeated[0]}' {counts[repeated[0]]} times; the last one counts", mend


def _surplus_initializers(model: ModelProto) -> Defect | None:
    """Initializers that are there already, or that nobody can read as they have no name."""
    first: dict[str, TensorProto] = {}
    surplus: list[int] = []
    for index, tensor in enumerate(model.graph.initializer):
        other = first.setdefault(tensor.name, tensor)
        if not tensor.name or (other is not tensor and other == tensor):
            surplus.append(index)
    if not surplus:
        return None

    def mend() -> None:
        for index in reversed(surplus):
            del model.graph.initializer[index]

    name = model.graph.initializer[surplus[0]].name
    return f"the initializer '{name}' is there twice" if name else "an initializer has no name", mend


def _untyped_outputs(model: ModelProto) -> Defect | None:
    """Outputs without a type or a shape, or declared as one number, where ONNX can tell what they have.

    Paddle's converter declares as one number what it knows no shape of.
    """
    unsure = [info for info in model.graph.output if is_untyped(info) or type_of(info.type).shape == ()]
    if not unsure:
        return None
    open_model = without_weights(model)
    for info in open_model.graph.output:
        if type_of(info.type).shape == ():
            info.type.tensor_type.ClearField("shape")
    known = inferred(open_model).known
    found = [
        info for info in unsure if known.get(info.name, UNKNOWN).shape not in (None, type_of(info.type).shape)
    ]
    if not found:
        return None
    why = "has no shape" if is_untyped(found[0]) else "is declared as one number, and is none"

    def mend() -> None:
        for info in found:
            set_tensor_type(info.type.tensor_type, known[info.name])

    return f"the output '{found[0].name}' {why}", mend


def is_untyped(info: ValueInfoProto) -> bool:
    """Whether neither a whole tensor type nor one of another kind is declared."""
    kind = info.type.WhichOneof("value")
    return kind is None or (kind == "tensor_type" and not info.type.tensor_type.HasField("shape"))


def _unsorted_nodes(model: ModelProto) -> Defect | None:
    """Nodes that are listed before one whose result they read."""
    coming = {name for node in model.graph.node for name in node.output if name}
    for late in model.graph.node:
        if not coming.isdisjoint(reads(late)):
            break
        coming.difference_update(late.output)
    else:
        return None
    flow = _flow(model)
    if not nx.is_directed_acyclic_graph(flow):
        return None

    def mend() -> None:
        nodes = list(model.graph.node)
        order = nx.lexicographical_topological_sort(flow)
        sorted_nodes = [NodeProto.FromString(nodes[index].SerializeToString()) for index in order]
        del model.graph.node[:]
        model.graph.node.extend(sorted_nodes)

    return f"{_named(late)} is listed before a node whose result it reads", mend


def _flow(model: ModelProto) -> nx.DiGraph:
    """Which node makes what which one reads, by their places."""
    makers = {name: index for index, node in enumerate(model.graph.node) for name in node.output if name}
    flow = nx.DiGraph()
    for index, node in enumerate(model.graph.node):
        flow.add_node(index)
        flow.add_edges_from((makers[name], index) for name in reads(node) if name in makers)
    return flow


def _repeated_node_names(model: ModelProto) -> Defect | None:
    """Nodes of one name, which mean nothing to the graph."""
    taken: set[str] = set()
    repeated: list[NodeProto] = []
    for node in model.graph.node:
        if node.name in taken:
            repeated.append(node)
        elif node.name:
            taken.add(node.name)
    if not repeated:
        return None

    def mend() -> None:
        names = Names(taken)
        for node in repeated:
            node.name = names.free(node.name)
            names.claim(node.name)

    return f"several nodes have the name '{repeated[0].name}'", mend


def _group_norms_of_groups(model: ModelProto) -> Defect | None:
    """A GroupNormalization of opset 18 to 20, which ONNX took back: it has a scale for each group."""
    version = {plain_domain(entry.domain): entry.version for entry in model.opset_import}.get("", 0)
    first = next((node for node in walk_nodes(model.graph.node) if _is_group_norm(node)), None)
    if not _GROUP_SCALES <= version < _CHANNEL_SCALES or first is None:
        return None

    def mend() -> None:
        nodes = (node for body in walk_bodies(model) for node in body.node)
        names = Names(name for node in nodes for name in (*node.input, *node.output))
        for graph in walk_graphs(model.graph):
            for given in (*graph.input, *graph.initializer):
                names.claim(given.name)
        for graph in walk_graphs(model.graph):
            made = [new for node in graph.node for new in _normalized_groups(node, names)]
            del graph.node[:]
            graph.node.extend(made)

    return f"{_named(first)} of opset {version} is deprecated; groups are normalized as instances", mend


def _is_group_norm(node: NodeProto) -> bool:
    return node.op_type == "GroupNormalization" and not plain_domain(node.domain)


def _normalized_groups(node: NodeProto, names: Names) -> Iterator[NodeProto]:
    """The node itself, or for a GroupNormalization an InstanceNormalization whose channels are groups."""
    if not _is_group_norm(node):
        yield NodeProto.FromString(node.SerializeToString())
        return
    data, scale, bias = node.input
    made = [names.free(f"{node.output[0]}_{part}") for part in ("lengths", "groups", "grouped", "normalized")]
    for name in made:
        names.claim(name)
    lengths, groups, grouped, normalized = made
    settings = attributes_of(node)
    kept = {"epsilon": settings["epsilon"]} if "epsilon" in settings else {}
    yield helper.make_node("Shape", [data], [lengths])
    yield helper.make_node("Constant", [], [groups], value_ints=[0, settings["num_groups"], -1])
    yield helper.make_node("Reshape", [data, groups], [grouped])
    yield helper.make_node("InstanceNormalization", [grouped, scale, bias], [normalized], node.name, **kept)
    yield helper.make_node("Reshape", [normalized, lengths], node.output)


def _named(node: NodeProto) -> str:
    return f"{node.op_type} '{node.name or next(iter(node.output), '')}'"


_DEFECTS = (
    _aliased_domain,
    rounding_in_float,
    _missing_import,
    _old_format,
    _nameless_graph,
    _repeated_metadata,
    _surplus_initializers,
    _group_norms_of_groups,
    _unsorted_nodes,
    _repeated_node_names,
    _untyped_outputs,
)
