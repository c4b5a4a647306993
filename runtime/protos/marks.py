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


def marks_in(name: str) -> list[int]:
    """The places of the nodes that a name tells of, be it that of a node made of several.

    >>> marks_in("#3#,#5#/duplicated")
    [3, 5]
    """
    return [int(number) for number in _MARK.findall(name)]
