"""What is known of a tensor before it is computed: its element type and its shape."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from onnx import TensorProto

Dimension: TypeAlias = int | str | None
"""The length of a dimension; of a free one its name, or None."""

Shape: TypeAlias = tuple[Dimension, ...]
"""The lengths of a tensor."""

KnownShape: TypeAlias = tuple[int, ...]
"""The lengths of a tensor without a free one."""

FLOAT_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})


class ValueType(NamedTuple):
    """Element type (``TensorProto.DataType``; 0 unknown) and shape (None: unknown rank) of a value."""

    elem_type: int = 0
    shape: Shape | None = None

    @property
    def rank(self) -> int | None:
        """The number of dimensions; None if it is unknown."""
        return len(self.shape) if self.shape is not None else None

    def __str__(self) -> str:
        name = TensorProto.DataType.Name(self.elem_type).lower() if self.elem_type else "?"
        if self.shape is None:
            return name
        return f"{name}[{','.join('?' if n is None else str(n) for n in self.shape)}]"


UNKNOWN = ValueType()
