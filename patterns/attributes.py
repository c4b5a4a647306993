"""Attributes as patterns see them: defaults filled in, parameters that moved to inputs read from there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache, partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import onnx
from onnx import helper

from qc.ir.errors import UsageError, nearest
from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_table import traits_of
from qc.ir.facts.op_traits import traits
from qc.ir.graph import Op
from qc.ir.tensor_ref import TensorRef

from .parameters import (
    SCALARS,
    UNKNOWN,
    Inputs,
    implied,
    implied_names,
    parameter_port,
    rank_of,
)


def attribute_of(op: Op, name: str, inputs: Inputs) -> Any:
    """The value of an attribute after normalization: lists as tuples, axes counted from the front.

    Args:
        op: the op.
        name: the attribute, or a parameter that newer opsets hold in an input.
        inputs: the inputs of ``op`` by port.

    Returns:
        UNKNOWN when the op does not fix it.
    """
    if op.refers(name):
        return UNKNOWN
    found = op.attribute(name)
    port = parameter_port(op, name)
    held = inputs[port] if port is not None and port < len(inputs) else None
    if found is None and held is not None:
        found = _parameter(name, constant_data(held))
    elif found is None:
        found = _default(op, name)
    if found is None or (found == () and traits(op).axes_are_set):
        found = implied(op, name, inputs, partial(_read, op, inputs))
    if found is None:
        found = _newer_default(op.op_type, op.domain, name)
    if name == "pads" and op.is_type("Pad") and isinstance(found, tuple | list):
        found = _pads_of_all_axes(op, tuple(found), inputs)
    return normalized(op, name, found, inputs)


def _read(op: Op, inputs: Inputs, name: str) -> Any:
    return attribute_of(op, name, inputs)


def normalized(op: Op, name: str, found: Any, inputs: Inputs) -> Any:
    """An attribute value in the form in which two of them can be compared."""
    if isinstance(found, list):
        found = tuple(found)
    rank = rank_of(op, inputs) if name in ("axis", "axes") else None
    if rank is None:
        return found
    if isinstance(found, tuple):
        axes = tuple(axis + rank if axis < 0 else axis for axis in found)
        return tuple(sorted(axes)) if traits(op).axes_are_set else axes
    return found + rank if isinstance(found, int) and found < 0 else found


def check_names(op_types: Sequence[str], domain: str, attributes: Iterable[str]) -> None:
    """Raises UsageError for ops or attributes that ONNX has in no version; other domains may have any."""
    if not op_types:
        raise UsageError("a pattern names no op")
    for op_type in op_types if not domain else ():
        known = known_attributes(op_type)
        if known is None:
            raise UsageError(
                f"a pattern names the op '{op_type}', which ONNX does not have{nearest_op_type(op_type)}"
            )
        for name in attributes:
            if name not in known:
                raise UsageError(f"a pattern names the attribute '{name}', which {op_type} does not have")


def plain_test(name: str, test: object) -> Any:
    """What an attribute is compared with, in the form of :func:`normalized`.

    Raises:
        UsageError: it is neither a number, a text, nor a list of either, so no attribute is equal to it.
    """
    listed = _plain(test)
    items = tuple(map(_plain, listed)) if isinstance(listed, list | tuple) else (listed,)
    if not any(all(isinstance(item, kind) for item in items) for kind in (Real, str)):
        raise UsageError(
            f"a pattern compares the attribute '{name}' with {test!r}, which is neither a number, a text, a "
            "list of either, nor attribute(...)"
        )
    found = tuple(item if isinstance(item, str) else plain_number(item) for item in items)
    return found if isinstance(listed, list | tuple) else found[0]


def _plain(given: object) -> Any:
    """What Python has for a number or an array of numpy: a number or a list; all else as it is."""
    return given.tolist() if isinstance(given, np.generic | np.ndarray) else given


def plain_number(given: object) -> int | float | None:
    """A number of Python, for one of numpy as well; None for what is no number."""
    number = _plain(given)
    if isinstance(number, Integral):
        return int(number)
    return float(number) if isinstance(number, Real) else None


def scalar_of(data: TensorRef) -> float | None:
    """The only element of a numeric one-element tensor."""
    if data.size != 1 or data.data_type == onnx.TensorProto.STRING:
        return None
    return float(data.numpy().reshape(-1)[0])


@cache
def known_attributes(op_type: str) -> frozenset[str] | None:
    """All names that any version of a standard op has as attribute or parameter; None: no such op."""
    return _vocabulary().get(op_type)


@cache
def all_attributes() -> frozenset[str]:
    """All names that any standard op has as attribute or parameter."""
    return frozenset().union(*_vocabulary().values())


def nearest_op_type(op_type: str) -> str:
    """A suggestion for a misspelled op."""
    return nearest(op_type, sorted(_vocabulary()))


@lru_cache(maxsize=1)
def _vocabulary() -> dict[str, frozenset[str]]:
    names: defaultdict[str, set[str]] = defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            parameters = traits_of(schema.name).parameters
            names[schema.name].update(schema.attributes, parameters, implied_names(schema.name))
    return {op_type: frozenset(attributes) for op_type, attributes in names.items()}


def _parameter(name: str, data: TensorRef | None) -> Any:
    if data is None or not data.is_small or data.data_type == onnx.TensorProto.STRING:
        return UNKNOWN
    array = data.numpy()
    if name in SCALARS and array.size == 1:
        return array.reshape(-1)[0].item()
    return tuple(array.tolist()) if array.ndim else array.item()


def _pads_of_all_axes(op: Op, pads: tuple[int, ...], inputs: Inputs) -> Any:
    """The pads of every axis, if only those of some axes are given."""
    axes, rank = attribute_of(op, "axes", inputs), rank_of(op, inputs)
    if not isinstance(axes, tuple) or rank is None:
        return pads if len(inputs) < 4 or inputs[3] is None else UNKNOWN
    found = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        found[axis], found[axis + rank] = pads[index], pads[index + len(axes)]
    return tuple(found)


def _default(op: Op, name: str) -> Any:
    """The default of the model's opset; None if it has none, UNKNOWN if it has no such op."""
    return _schema_default(op.op_type, op.domain, op.graph.model.opset_imports.get(op.domain, 0), name)


@lru_cache(maxsize=4096)
def _schema_default(op_type: str, domain: str, version: int, name: str) -> Any:
    if not onnx.defs.has(op_type, version, domain):
        return UNKNOWN
    return _declared_default(onnx.defs.get_schema(op_type, version, domain), name)


@lru_cache(maxsize=4096)
def _newer_default(op_type: str, domain: str, name: str) -> Any:
    """The default with which a version of the op got an attribute: older ones behave so without it."""
    schemas = [each for each in _all_schemas(op_type, domain) if name in each.attributes]
    found = _declared_default(schemas[0], name) if schemas else None
    return UNKNOWN if found is None else found


def _declared_default(schema: onnx.defs.OpSchema, name: str) -> Any:
    declared = schema.attributes.get(name)
    if declared is None or not declared.default_value.type:
        return None
    found = helper.get_attribute_value(declared.default_value)
    return found.decode() if isinstance(found, bytes) else found


def _all_schemas(op_type: str, domain: str) -> list[onnx.defs.OpSchema]:
    """The versions of an op, oldest first."""
    schemas = onnx.defs.get_all_schemas_with_history()
    found = [each for each in schemas if (each.name, each.domain) == (op_type, domain)]
    return sorted(found, key=lambda schema: schema.since_version)
