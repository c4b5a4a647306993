"""Which fields of the protos the statements of the text show in full; what else there is becomes a note."""

from __future__ import annotations

MODEL = frozenset({"graph", "functions", "opset_import", "ir_version"})
GRAPH = frozenset({"node", "initializer", "sparse_initializer", "input", "output", "value_info"})
NODE = frozenset({"op_type", "input", "output", "attribute"})
INTERFACE = frozenset({"input", "output"})
FUNCTION = INTERFACE | {"node", "attribute", "attribute_proto", "opset_import", "value_info"}
DECLARATION = frozenset({"name", "type"})
GRAPH_ATTRIBUTE = frozenset({"name", "type", "g", "graphs"})
