"""Numbers for names: how nodes are told apart after a runtime has made others of them."""

from __future__ import annotations

import re

from onnx import ModelProto

from .wiring import all_nodes

_MARK = re.compile(r"#(\d+)#")


def mark_nodes(model: ModelProto) -> None:
    """Renames every node after its place in :func:`all_nodes`; the model is changed."""
    for index, node in enumerate(all_nodes(model.graph)):
        node.proto.name = f"#{index}#"


def marked_copy(model: ModelProto) -> ModelProto:
    """A copy of a model whose nodes are renamed by :func:`mark_nodes`."""
    marked = ModelProto()
    marked.CopyFrom(model)
    mark_nodes(marked)
    return marked


def marks_in(name: str) -> list[int]:
    """The places of the nodes that a name tells of, be it that of a node made of several.

    >>> marks_in("#3#,#5#/duplicated")
    [3, 5]
    """
    return [int(number) for number in _MARK.findall(name)]


def with_names(sentence: str, model: ModelProto) -> str:
    """A sentence about a marked model, with the names of the nodes in place of the marks.

    Args:
        model: the model before it was marked.
    """
    nodes = [node.proto for node in all_nodes(model.graph)]
    names = [node.name or next(iter(node.output), node.op_type) for node in nodes]
    return _MARK.sub(lambda mark: names[int(mark[1])], sentence)
