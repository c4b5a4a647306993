"""The raw data of a small tensor as numbers, for all element types that are bools, integers or floats."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .scanner import Scanner
from .words import single

_BOOL = re.compile(r"true|false")
# For each kind of element types, one of numpy that has all its numbers.
_WIDE = {"BOOL": np.bool_, "UINT": np.uint64, "INT": np.int64, "FLOAT": np.float32, "DOUBLE": np.float64}
_KIND = re.compile("|".join(_WIDE))


@lru_cache
def _wide(data_type: int) -> np.dtype | None:
    if data_type not in TensorProto.DataType.values():
        return None
    kind = _KIND.search(TensorProto.DataType.Name(data_type))
    return np.dtype(_WIDE[kind[0]]) if kind else None


def numbers_text(tensor: TensorProto) -> str:
    """The raw data as numbers; empty if these would not give the same bytes again."""
    wide = _wide(tensor.data_type)
    if wide is None:
        return ""
    try:
        numbers = numpy_helper.to_array(tensor).ravel().astype(wide).tolist()
    except (ValueError, TypeError):  # damaged
        return ""
    numbers = [math.nan if number != number else number for number in numbers]  # of many, the usual one
    if len(numbers) != math.prod(tensor.dims) or _packed(tensor, numbers) != tensor.raw_data:
        return ""
    if wide.kind == "b":
        items = [str(number).lower() for number in numbers]
    else:
        items = list(map(single if wide == np.float32 else repr, numbers))
    return f"[{', '.join(items)}]" if tensor.dims else items[0]


def _packed(tensor: TensorProto, numbers: list[Any]) -> bytes:
    """The raw data that numbers are in the type of a tensor; empty if they do not fit in it."""
    wide = np.array(numbers, _wide(tensor.data_type))
    with np.errstate(over="ignore"):
        array = wide.astype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    if wide.dtype.kind != "f" and array.astype(wide.dtype).tolist() != numbers:
        return b""
    return numpy_helper.from_array(array).raw_data


def read_numbers(scanner: Scanner, tensor: TensorProto) -> bytes:
    """The raw data of a tensor of the type and shape of ``tensor``, as :func:`numbers_text` wrote them."""
    start, wide = scanner.position, _wide(tensor.data_type)
    if wide is None:
        raise scanner.error("{...}, since this type has no numbers")

    def number() -> float:
        if wide.kind == "b":
            return scanner.take(_BOOL, "true or false") == "true"
        if wide.kind == "f":
            return scanner.real()
        return scanner.integer("a number", 0, (1 << 64) - 1) if wide.kind == "u" else scanner.integer()

    numbers = scanner.items(number, "]") if scanner.accept("[") else [number()]
    size = math.prod(tensor.dims)
    if len(numbers) != size:
        raise scanner.problem(f"there are {len(numbers)} numbers where the shape needs {size}", start)
    raw = _packed(tensor, numbers)
    if numbers and not raw:
        raise scanner.problem("a number is too large for its type", start)
    return raw
