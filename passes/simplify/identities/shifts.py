"""What is taken off scores in front of a Softmax, which takes off their maximum anyway."""

from __future__ import annotations

from qc.ir.graph import Op, Value
from qc.patterns.attributes import attribute_of

_ALONG_ONE_AXIS = 13  # the first opset whose Softmax is along its axis alone, and not all from there on
_SHIFTED = ("LogSoftmax", "Softmax")


def is_needless_shift(op: Op) -> bool:
    """Whether a Sub takes the maximum of each row off scores that only a Softmax along these rows reads.

    Networks with sinks of attention, such as GPT-OSS, do so against overflow.
    """
    (scores, highest), (result,) = op.inputs, op.outputs
    axis = _row(highest.producer, scores) if highest is not None else None
    if axis is None or result is None or result.is_output or result.capturing:
        return False
    readers = [use.op for use in result.uses]
    return bool(readers) and all(_normalizes(reader, axis, result) for reader in readers)


def _row(op: Op | None, scores: Value | None) -> int | None:
    """The axis along which a ReduceMax finds the maxima of scores, and leaves it there; None if none does."""
    if op is None or scores is None or not op.is_type("ReduceMax") or not op.attribute("keepdims", 1):
        return None
    axes, rank = attribute_of(op, "axes", op.inputs), scores.type.rank
    if op.inputs[0] is not scores or rank is None:
        return None
    return axes[0] % rank if isinstance(axes, tuple) and len(axes) == 1 else None


def _normalizes(op: Op, axis: int, scores: Value) -> bool:
    rank = scores.type.rank
    if not op.is_type(*_SHIFTED) or rank is None:
        return False
    is_plain = op.graph.model.opset >= _ALONG_ONE_AXIS
    along = int(op.attribute("axis", -1 if is_plain else 1)) % rank
    return along == axis and (is_plain or axis == rank - 1)
