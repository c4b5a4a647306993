"""The modules that an op lies in, as an exporter wrote them down."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..graph import Op

# Where PyTorch's exporter on torch.export writes the modules of a node, outermost first, then its own name.
_KEY = "pkg.torch.onnx.name_scopes"


def exporter_scopes(op: Op) -> Sequence[str]:
    """The full names of the modules around an op, outermost first, and its own name; nothing if not known."""
    for entry in op.proto.metadata_props if op.proto is not None else ():
        if entry.key == _KEY:
            try:
                found = ast.literal_eval(entry.value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return ()
            return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else ()
    return ()
