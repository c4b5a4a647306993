"""Constants, whichever way a model writes them: as an initializer or as a Constant op."""

from __future__ import annotations

import numpy as np

from ..graph import Op, Value
from ..tensor_ref import TensorRef

# The attributes of Constant that hold numbers or text, with the type that they make.
CONSTANT_FORMS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}

# Before this version of the ONNX format, every initializer had to be a graph input as well, and was fixed.
FREE_INITIALIZERS = 4


def is_default(value: Value) -> bool:
    """Whether a constant is the default of an input, which a caller may override by feeding it."""
    graph = value.graph
    return value.is_input and graph.model.origin.ir_version >= FREE_INITIALIZERS


def initializer(value: Value | None) -> TensorRef | None:
    """The data of an initializer, of this or an enclosing graph; None for what is computed, or left out."""
    return value.original.const if value is not None else None


def constant_data(value: Value) -> TensorRef | None:
    """The data of an initializer or of what a Constant op makes, of this or an enclosing graph."""
    value = value.original
    if value.const is not None:
        return value.const
    producer = value.producer
    return constant_op_data(producer) if producer is not None else None


def constant_numbers(value: Value | None) -> np.ndarray | None:
    """The numbers of a constant; None for what is computed, or left out."""
    data = constant_data(value) if value is not None else None
    return data.numpy() if data is not None else None


def fixed_constant(value: Value | None) -> TensorRef | None:
    """The data of an initializer or of what a Constant op makes, unless a caller may feed something else."""
    return constant_data(value) if value is not None and not is_default(value.original) else None


def constant_op_data(op: Op) -> TensorRef | None:
    """The data that a Constant op makes; None for other ops and for sparse data."""
    if not op.is_type("Constant"):
        return None
    tensor = op.attribute("value")
    if tensor is not None:
        return TensorRef(tensor, op.graph.model.base_dir)
    for name, dtype in CONSTANT_FORMS.items():
        found = op.attribute(name)
        if found is not None:
            return TensorRef.from_array(np.asarray(found, dtype))
    return None
