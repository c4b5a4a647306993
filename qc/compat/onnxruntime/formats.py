"""ONNX Runtime's number formats in qc's words."""

from __future__ import annotations

from onnxruntime.quantization import QuantType

from qc.ir.errors import UsageError
from qc.ir.quant.formats import IntFormat, parse_format

from ..missing import refuse


def format_of(kind: QuantType | int) -> str:
    """``QuantType.QUInt8``, or the same as a type of tensors, ``TensorProto.UINT8``, as ``uint8``.

    Raises:
        UsageError: it is no QuantType, nor a type of tensors that one stands for.
        NotProvidedError: it is one of floats.
    """
    if not isinstance(kind, QuantType):
        kind = next((one for one in QuantType if one.tensor_type == kind), kind)
    if not isinstance(kind, QuantType):
        raise UsageError(f"a number format is a QuantType, such as QuantType.QInt8, not {kind!r}")
    name = kind.name.removeprefix("Q").lower()
    if not isinstance(parse_format(name), IntFormat):
        refuse(f"'QuantType.{kind.name}'", f"formats are of integers; qc's rule 'Conv={name}' sets others")
    return name


def is_signed(kind: QuantType) -> bool:
    """Whether a format has negative codes."""
    format = parse_format(format_of(kind))
    return isinstance(format, IntFormat) and format.signed
