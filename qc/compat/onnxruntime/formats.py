"""ONNX Runtime's number formats in qc's words."""

from __future__ import annotations

from onnxruntime.quantization import QuantType

from qc.ir.errors import UsageError


def format_of(kind: QuantType) -> str:
    """``QuantType.QUInt8`` as ``uint8``; raises UsageError for what is no QuantType."""
    if not isinstance(kind, QuantType):
        raise UsageError(f"a number format is a QuantType, such as QuantType.QInt8, not {kind!r}")
    return kind.name.removeprefix("Q").lower()
