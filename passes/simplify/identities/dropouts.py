"""Dropouts: whether they drop numbers, and what would keep them from it."""

from __future__ import annotations

from qc.ir.facts.constants import fixed_constant
from qc.ir.graph import Op, Value

_TRAINING = 2  # the input that tells whether it drops numbers, from opset 12 on


def trains(op: Op) -> bool:
    """Whether a Dropout may drop numbers."""
    training = _training(op)
    said = fixed_constant(training)
    return training is not None and (said is None or bool(said.numpy().item()))


def advice(op: Op) -> str:
    """Which value of an input keeps a Dropout from dropping numbers, in words; empty without such an input.

    Models of Flax and Equinox have such an input, for a training and an inference mode.
    """
    current, wanted = _training(op), 0
    while current is not None:
        current = current.original
        producer = current.graph.producer(current)
        if producer is None:
            is_input = current.graph.is_input(current) and current.graph.parent is None
            mend = f"--fix-input {current.name}={wanted} leaves it out"
            return (
                f"a Dropout drops numbers at random as the input '{current.name}' says: {mend}"
                if is_input
                else ""
            )
        if not producer.is_type("Cast", "Identity", "Not", "Reshape", "Squeeze"):
            return ""
        wanted = 1 - wanted if producer.is_type("Not") else wanted
        current = producer.graph.op_inputs(producer)[0]
    return ""


def _training(op: Op) -> Value | None:
    return op.graph.op_inputs(op)[_TRAINING] if op.num_inputs > _TRAINING else None
