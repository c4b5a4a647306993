"""Parameters of ops: attributes in one opset and inputs in another, and what leaving them out means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qc.ir.facts.op_table import TABLE
from qc.ir.facts.op_traits import measures_batch, traits
from qc.ir.graph import Op, Value


class Unknown:
    """Stands for an attribute that cannot be told: no default, or computed by the graph."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()

Inputs = tuple[Value | None, ...]
Read = Callable[[str], Any]
"""Reads another attribute of the same op, normalized."""

SCALARS = frozenset(("axis", "k", "max", "min", "ratio", "training_mode", "value"))
"""Parameters that are one number, which models write as a scalar or as a list of one."""


def parameter_port(op: Op, name: str) -> int | None:
    """The input that holds a parameter in the model's opset or in a newer one; None for an attribute."""
    if op.is_type("Resize") and op.graph.model.opset < 11:
        return 1 if name == "scales" else None
    return traits(op).parameters.get(name)


def rank_of(op: Op, inputs: Inputs) -> int | None:
    """The rank that the axes of ``op`` refer to, as far as it is known."""
    counts_output = op.is_type("Unsqueeze", "OneHot")
    first = op.outputs[0] if counts_output else (inputs[0] if inputs else None)
    return first.type.rank if first is not None else None


def implied(op: Op, name: str, inputs: Inputs, read: Read) -> Any:
    """What it means that ``op`` leaves a parameter out.

    Args:
        op: the op.
        name: the parameter.
        inputs: the inputs of ``op`` by port.
        read: reads another parameter of ``op``.

    Returns:
        UNKNOWN if it cannot be told, None if there is no rule for it.
    """
    rule = _IMPLIED.get((op.op_type, name)) if not op.domain else None
    return rule(op, inputs, read) if rule is not None else None


def implied_names(op_type: str) -> tuple[str, ...]:
    """The parameters that a standard op can leave out, or has without saying so, as pools have axes."""
    return tuple(name for known, name in _IMPLIED if known == op_type)


Rule = Callable[[Op, Inputs, Read], Any]


def _always(content: object) -> Rule:
    return lambda op, inputs, read: content


def _all_axes(op: Op, inputs: Inputs, read: Read) -> Any:
    rank = rank_of(op, inputs)
    return tuple(range(rank)) if rank is not None else UNKNOWN


def _reduced_axes(op: Op, inputs: Inputs, read: Read) -> Any:
    return () if op.attribute("noop_with_empty_axes", 0) else _all_axes(op, inputs, read)


def _axes_of_positions(op: Op, inputs: Inputs, read: Read) -> Any:
    """Those behind samples and channels."""
    rank = rank_of(op, inputs)
    return tuple(range(2, rank)) if rank is not None and rank > 2 else UNKNOWN


def _first_axes(op: Op, inputs: Inputs, read: Read) -> Any:
    starts = read("starts")
    return tuple(range(len(starts))) if isinstance(starts, tuple) else UNKNOWN


def _single_steps(op: Op, inputs: Inputs, read: Read) -> Any:
    starts = read("starts")
    return (1,) * len(starts) if isinstance(starts, tuple) else UNKNOWN


def _axes_of_extent_one(op: Op, inputs: Inputs, read: Read) -> Any:
    shape = inputs[0].type.shape if inputs and inputs[0] is not None else None
    if shape is None or not all(isinstance(size, int) for size in shape):
        return UNKNOWN
    return tuple(axis for axis, size in enumerate(shape) if size == 1)


def _equal_parts(op: Op, inputs: Inputs, read: Read) -> Any:
    shape = inputs[0].type.shape if inputs and inputs[0] is not None else None
    axis = read("axis")
    size = shape[axis] if shape is not None and isinstance(axis, int) and axis < len(shape) else None
    if not isinstance(size, int):
        return UNKNOWN
    part = -(-size // op.num_outputs)
    return tuple(max(0, min(part, size - index * part)) for index in range(op.num_outputs))


# What Clip took for no limit while its limits were attributes: the ends of float32.
_LARGEST = 3.4028234663852886e38

_IMPLIED: dict[tuple[str, str], Rule] = {
    **{(reduction, "axes"): _reduced_axes for reduction in TABLE if reduction.startswith("Reduce")},
    ("BatchNormalization", "training_mode"): lambda op, inputs, read: int(measures_batch(op)),
    ("Clip", "max"): _always(_LARGEST),
    ("Clip", "min"): _always(-_LARGEST),
    ("DFT", "axis"): _always(-2),
    ("Dropout", "ratio"): _always(0.5),
    ("Dropout", "training_mode"): _always(False),
    ("GlobalAveragePool", "axes"): _axes_of_positions,
    ("Pad", "axes"): _all_axes,
    ("Pad", "value"): _always(0.0),
    ("Slice", "axes"): _first_axes,
    ("Slice", "steps"): _single_steps,
    ("Split", "num_outputs"): lambda op, inputs, read: op.num_outputs,
    ("Split", "split"): _equal_parts,
    ("Squeeze", "axes"): _axes_of_extent_one,
    ("Trilu", "k"): _always(0),
    # Older opsets behave as the default of the newer one, except here.
    ("Resize", "coordinate_transformation_mode"): _always("asymmetric"),
    ("Resize", "nearest_mode"): _always(UNKNOWN),
    ("RoiAlign", "coordinate_transformation_mode"): _always("output_half_pixel"),
}
