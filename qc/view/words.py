"""Short texts for what a picture shows."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from onnx import TensorProto, defs

from qc.diff.wiring import Read
from qc.ir.facts.constants import constant_data
from qc.ir.graph import Op, Value
from qc.ir.quant.spec import Encoding
from qc.ir.tensor_ref import TensorRef
from qc.ir.value_type import Shape

TIMES = "\u00d7"
_FEW = 8
_LONGEST_SIZE = 10  # characters of the name of a size


def op_type(op: Op) -> str:
    """The type, with the domain if it is not the standard one."""
    return f"{op.domain}::{op.op_type}" if op.domain else op.op_type


def format_of(read: Read) -> str:
    """The number format of what is read, such as ``uint8``; empty if it is not quantized."""
    return str(read.quantizations[-1].spec.format) if read.quantizations else ""


def element_type(data_type: int) -> str:
    """The name of an ONNX element type, such as ``float``."""
    return TensorProto.DataType.Name(data_type).lower() if data_type else "unknown type"


def shape_text(shape: Shape | None) -> str:
    """The sizes with multiplication signs between; ``scalar`` without any; empty if the rank is unknown.

    A size whose name ONNX made up is unknown.
    """
    if shape is None:
        return ""
    known = (None if str(size).startswith("unk__") else size for size in shape)
    return TIMES.join("?" if size is None else str(size) for size in known) or "scalar"


def short_shape(shape: Shape | None) -> str:
    """The sizes as :func:`shape_text` has them, of long names the end."""
    return shape_text(None if shape is None else tuple(_short_size(size) for size in shape))


def constant_text(value: Value) -> str:
    """The number that a constant with one element holds, else its shape between brackets."""
    data = constant_data(value)
    assert data is not None
    return f"= {numbers_text(data)}" if data.size == 1 else f"\u27e8{shape_text(data.shape)}\u27e9"


def numbers_text(data: TensorRef) -> str:
    """The elements of a constant, as far as they are few."""
    array = data.numpy().reshape(-1)
    shown = ", ".join(_number(item) for item in array[:_FEW].tolist())
    return f"{shown}, ..." if array.size > _FEW else shown


def encoding_texts(encoding: Encoding) -> dict[str, str]:
    """Scale, zero point and range of an encoding; for many scales, the first ones and how many there are."""
    return {
        "scale": _numbers(encoding.scale),
        "zero point": _numbers(encoding.zero_point),
        "range": f"{float(np.min(encoding.minimum)):.6g} to {float(np.max(encoding.maximum)):.6g}",
    }


def port_name(op: Op, port: int) -> str:
    """The name that ONNX gives to an input, such as ``W`` of a Conv; its number for unknown ops."""
    version = op.graph.model.opset_imports.get(op.domain, 1)
    names = _input_names(op.op_type, op.domain, version)
    if not names:
        return f"input {port}"
    return names[port] if port < len(names) else f"{names[-1]}{port - len(names) + 1}"


@lru_cache(maxsize=4096)
def _input_names(op_type: str, domain: str, version: int) -> tuple[str, ...]:
    if not defs.has(op_type, version, domain):
        return ()
    return tuple(parameter.name for parameter in defs.get_schema(op_type, version, domain).inputs)


def _short_size(size: int | str | None) -> int | str | None:
    if not isinstance(size, str) or size.startswith("unk__") or len(size) <= _LONGEST_SIZE:
        return size
    return f"…{size[1 - _LONGEST_SIZE :]}"


def _number(item: object) -> str:
    if isinstance(item, float):
        return f"{item:.6g}"
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)


def _numbers(array: np.ndarray) -> str:
    shown = ", ".join(_number(item) for item in array.reshape(-1)[:_FEW].tolist())
    return f"{shown}, ... {array.size} in all" if array.size > _FEW else shown
