"""What would keep Dropouts from dropping numbers."""

from __future__ import annotations

from qc.ir.graph import Op

_TRAINING = 2  # the input that tells whether it drops numbers, from opset 12 on


def advice(op: Op) -> str:
    """Which value of an input keeps a Dropout from dropping numbers, in words; empty without such an input.

    Models of Flax and Equinox have such an input, for a training and an inference mode.
    """
    current, wanted = op.graph.op_inputs(op)[_TRAINING] if op.num_inputs > _TRAINING else None, 0
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
