"""What is checked of a model before other libraries read it, some of which would crash or never end on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import networkx as nx
from google.protobuf.message import Message
from onnx import ModelProto, TensorProto, TypeProto

from ..errors import ModelError
from .protos import walk_nodes

_MOST_CALLED = 100_000
_VALUE_TYPES = frozenset(TensorProto.DataType.values())
_DATA_TYPES = _VALUE_TYPES - {TensorProto.UNDEFINED}

Key: TypeAlias = tuple[str, str, str]
_MAIN: Key = ("", "", "")  # no function has this name


class TextError(ModelError):
    """Text that is not UTF-8."""


def screen_model(model: ModelProto) -> None:
    """Refuses what would harm the libraries that read the model next.

    Raises:
        TextError: text that is not UTF-8.
        ModelError: an element type that this version of ONNX does not know; a domain that is imported in two
            versions; local functions that call themselves, or call so many others that a small file becomes
            millions of ops.
    """
    _check_messages(model)
    _check_imports(model)
    _check_calls(model)


def _check_messages(model: ModelProto) -> None:
    pending: list[Message] = [model]
    while pending:
        message = pending.pop()
        if isinstance(message, TypeProto) and message.HasField("tensor_type"):
            _check_tensor_type(message.tensor_type)
            continue
        if isinstance(message, TensorProto):
            _check_element_type(message.data_type, _DATA_TYPES, f"the constant '{_shown(message.name)}'")
        for field, value in message.ListFields():
            if isinstance(value, (str, int, float)):
                continue
            if isinstance(value, Message):
                pending.append(value)
            elif field.message_type is not None:
                pending.extend(value)
            elif field.type == field.TYPE_STRING:
                # protobuf gives bytes for text that is not UTF-8
                _check_texts([value] if isinstance(value, bytes) else value, f"field '{field.full_name}'")


def _check_imports(model: ModelProto) -> None:
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = plain_domain(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"the model is invalid: it imports domain '{domain or 'ai.onnx'}' in version "
                f"{versions[domain]} and in version {entry.version}"
            )


def _check_tensor_type(tensor: TypeProto.Tensor) -> None:
    _check_element_type(tensor.elem_type, _VALUE_TYPES, "a tensor")
    _check_texts((dim.dim_param for dim in tensor.shape.dim), "a dimension")


def _check_element_type(elem_type: int, known: frozenset[int], owner: str) -> None:
    if elem_type not in known:
        raise ModelError(
            f"the model is invalid: {owner} has element type {elem_type}, which this version of ONNX does "
            "not know; a newer one may"
        )


def _check_texts(texts: Iterable[str | bytes], place: str) -> None:
    for text in texts:
        if isinstance(text, bytes):
            raise TextError(
                f"the model is damaged: {place} holds '{_shown(text)}', which is not text in UTF-8"
            )


def _shown(text: str | bytes) -> str:
    return text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text


def _check_calls(model: ModelProto) -> None:
    if not model.functions:
        return
    bodies = {_key(f.domain, f.name, f.overload): f.node for f in model.functions} | {_MAIN: model.graph.node}
    calls, sizes = nx.MultiDiGraph(), {}
    for caller, nodes in bodies.items():
        keys = [_key(node.domain, node.op_type, node.overload) for node in walk_nodes(nodes)]
        sizes[caller] = len(keys)
        calls.add_node(caller)
        calls.add_edges_from((caller, key) for key in keys if key in bodies)
    try:
        callees_first = list(nx.topological_sort(calls))[::-1]
    except nx.NetworkXUnfeasible:
        caller = nx.find_cycle(calls)[0][0]
        raise ModelError(f"the model is invalid: the local function {_named(caller)} calls itself") from None
    for caller in callees_first:
        inner = sum(sizes[callee] for _, callee in calls.out_edges(caller))
        if inner > _MOST_CALLED:
            raise ModelError(
                f"{_named(caller)} calls local functions that stand for {inner:,} ops in all; qc takes at "
                f"most {_MOST_CALLED:,}"
            )
        sizes[caller] += inner


def _key(domain: str, name: str, overload: str) -> Key:
    return (plain_domain(domain), name, overload)


def plain_domain(domain: str) -> str:
    """The name of a domain; the standard one has two."""
    return "" if domain == "ai.onnx" else domain


def _named(key: Key) -> str:
    return "the main graph" if key == _MAIN else f"'{key[0]}::{key[1]}'"
