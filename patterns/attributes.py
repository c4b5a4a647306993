"""Attributes as patterns see them: defaults filled in, parameters that moved to inputs read from there."""

from __future__ import annotations

from collections import defaultdict
from functools import cache, lru_cache
from typing import Any

import onnx
from onnx import helper

from qc.ir.errors import nearest
from qc.ir.graph import Op, Value
from qc.ir.tensor_ref import TensorRef

_REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)

PARAMETER_PORTS: dict[str, dict[str, int]] = {
    **{reduction: {"axes": 1} for reduction in _REDUCTIONS},
    "Squeeze": {"axes": 1},
    "Unsqueeze": {"axes": 1},
    "Clip": {"min": 1, "max": 2},
    "Reshape": {"shape": 1},
    "Expand": {"shape": 1},
    "Pad": {"pads": 1, "value": 2, "axes": 3},
    "Slice": {"starts": 1, "ends": 2, "axes": 3, "steps": 4},
    "Split": {"split": 1},
    "Tile": {"repeats": 1},
    "TopK": {"k": 1},
    "Dropout": {"ratio": 1, "training_mode": 2},
}
"""Inputs that are parameters: attributes in some opset, constants in nearly every model."""

_AXES = ("axis", "axes")


class Unknown:
    """Stands for an attribute that cannot be told: no default, or computed by the graph."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()


def attribute_of(op: Op, name: str, inputs: tuple[Value | None, ...]) -> Any:
    """The value of an attribute after normalization: lists as tuples, axes counted from the front.

    Args:
        op: the op.
        name: the attribute, or a parameter that newer opsets hold in an input.
        inputs: the inputs of ``op`` by port.

    Returns:
        UNKNOWN when the op does not fix it.
    """
    found = op.attribute(name)
    port = PARAMETER_PORTS.get(op.op_type, {}).get(name) if not op.domain else None
    if found is None and port is not None and port < len(inputs) and inputs[port] is not None:
        found = _parameter(constant_data(inputs[port]))
    elif found is None:
        found = _default(op, name)
    if (
        op.op_type in _REDUCTIONS
        and name == "axes"
        and found in (UNKNOWN, ())
        and not _reads_axes(op, inputs)
    ):
        found = _all_axes(op, inputs)
    return normalized(op, name, found, inputs)


def normalized(op: Op, name: str, found: Any, inputs: tuple[Value | None, ...]) -> Any:
    """An attribute value in the form in which two of them can be compared."""
    if isinstance(found, list):
        found = tuple(found)
    rank = _rank(op, inputs)
    if name not in _AXES or rank is None:
        return found
    if isinstance(found, tuple):
        return tuple(sorted(axis + rank if axis < 0 else axis for axis in found))
    return found + rank if isinstance(found, int) and found < 0 else found


def constant_data(value: Value | None) -> TensorRef | None:
    """The data of an initializer or of the output of a Constant op, in this or an enclosing graph."""
    while value is not None and value.captured is not None:
        value = value.captured
    if value is None or value.const is not None:
        return value.const if value is not None else None
    producer = value.graph.producer(value)
    if producer is None or not producer.is_type("Constant"):
        return None
    return _constant_op_data(producer)


def scalar_of(data: TensorRef) -> float | None:
    """The only element of a numeric one-element tensor."""
    if data.size != 1 or data.data_type == onnx.TensorProto.STRING:
        return None
    return float(data.numpy().reshape(-1)[0])


@cache
def known_attributes(op_type: str) -> frozenset[str] | None:
    """All names that any version of a standard op has as attribute or parameter; None: no such op."""
    return _vocabulary().get(op_type)


def nearest_op_type(op_type: str) -> str:
    """A suggestion for a misspelled op."""
    return nearest(op_type, sorted(_vocabulary()))


@lru_cache(maxsize=1)
def _vocabulary() -> dict[str, frozenset[str]]:
    names: defaultdict[str, set[str]] = defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            names[schema.name].update(schema.attributes, PARAMETER_PORTS.get(schema.name, ()))
    return {op_type: frozenset(attributes) for op_type, attributes in names.items()}


def _constant_op_data(op: Op) -> TensorRef | None:
    tensor = op.attribute("value")
    if tensor is not None:
        return TensorRef(tensor, op.graph.model.base_dir)
    for name, data_type in _CONSTANT_FORMS.items():
        found = op.attribute(name)
        if found is not None:
            shape = [len(found)] if isinstance(found, list) else []
            values = found if isinstance(found, list) else [found]
            return TensorRef(helper.make_tensor(name, data_type, shape, values))
    return None


_CONSTANT_FORMS = {
    "value_float": onnx.TensorProto.FLOAT,
    "value_floats": onnx.TensorProto.FLOAT,
    "value_int": onnx.TensorProto.INT64,
    "value_ints": onnx.TensorProto.INT64,
}


def _parameter(data: TensorRef | None) -> Any:
    if data is None or not data.is_small or data.data_type == onnx.TensorProto.STRING:
        return UNKNOWN
    array = data.numpy()
    return tuple(array.tolist()) if array.ndim else array.item()


def _default(op: Op, name: str) -> Any:
    version = op.graph.model.opset_imports.get(op.domain)
    if version is None:
        return UNKNOWN
    return _schema_default(op.op_type, op.domain, version, name)


@lru_cache(maxsize=4096)
def _schema_default(op_type: str, domain: str, version: int, name: str) -> Any:
    if not onnx.defs.has(op_type, version, domain):
        return UNKNOWN
    declared = onnx.defs.get_schema(op_type, version, domain).attributes.get(name)
    if declared is None or not declared.default_value.type:
        return UNKNOWN
    found = helper.get_attribute_value(declared.default_value)
    return found.decode() if isinstance(found, bytes) else found


def _reads_axes(op: Op, inputs: tuple[Value | None, ...]) -> bool:
    return len(inputs) > 1 and inputs[1] is not None and constant_data(inputs[1]) is None


def _all_axes(op: Op, inputs: tuple[Value | None, ...]) -> Any:
    """The axes of a reduction that names none: all of them, unless it is told to do nothing then."""
    rank = _rank(op, inputs)
    if rank is None or op.attribute("noop_with_empty_axes", 0):
        return UNKNOWN
    return tuple(range(rank))


def _rank(op: Op, inputs: tuple[Value | None, ...]) -> int | None:
    first = op.graph.op_outputs(op)[0] if op.op_type == "Unsqueeze" else (inputs[0] if inputs else None)
    shape = first.type.shape if first is not None else None
    return len(shape) if shape is not None else None
