"""Which nodes are as plain as most are, so that their line in the text says everything."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from onnx import NodeProto

from ..graph import Op
from ..model import Model
from . import said
from .carried import has_unknown_fields

_LOOKED_AT = 1000  # nodes
_WORDS = ("name", "domain", "overload", "doc_string")
# Whatever else this version of ONNX knows; what it does not know is asked for separately.
_OTHERS = [name for name in NodeProto.DESCRIPTOR.fields_by_name if name not in said.NODE.union(_WORDS)]


class PlainNodes:
    """Tells plain nodes quickly, for graphs of very many of them.

    Args:
        blank: the text fields that nodes of this model have even if they are empty, see :func:`blank_fields`.
    """

    def __init__(self, blank: frozenset[str]) -> None:
        self.blank = blank
        self._name, self._domain, self._overload, self._description = (word in blank for word in _WORDS)

    def is_plain(self, node: NodeProto, op: Op, domain: str) -> bool:
        """Whether a node has exactly the fields that the line of its op shows.

        Args:
            domain: the domain of the op as the line shows it.
        """
        if node.name != op.name or node.domain != domain or node.doc_string or has_unknown_fields(node):
            return False
        for field in _OTHERS:
            if getattr(node, field):
                return False
        has = node.HasField
        return (
            (domain != "" or has("domain") is self._domain)
            and (op.overload != "" or has("overload") is self._overload)
            and (op.name != "" or has("name") is self._name)
            and has("doc_string") is self._description
        )


def blank_fields(model: Model) -> frozenset[str]:
    """The text fields that most nodes without such a text have nonetheless; this differs by exporter."""
    nodes = (op.proto for graph in model.graphs() for op in graph.ops() if op.proto is not None)
    written: Counter[str] = Counter()
    for node in islice(nodes, _LOOKED_AT):
        for field in _WORDS:
            if not getattr(node, field):
                written[field] += 1 if node.HasField(field) else -1  # type: ignore[arg-type]
    return frozenset(field for field, balance in written.items() if balance > 0)
