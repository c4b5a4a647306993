"""What would keep Dropouts from dropping numbers."""

from __future__ import annotations

from qc.ir.graph import Op

_TRAINING = 2  # the input that tells whether it drops numbers, from opset 12 on

_IN_TRAINING = (
    "a Dropout drops other numbers in every run, as in training: export the model for inference "
    "(model.eval() in PyTorch)"
)


def advice(op: Op) -> str:
    """What keeps a Dropout from dropping numbers, in words; empty where that is not known.

    Models of Flax and Equinox have an input for a training and an inference mode; PyTorch writes a constant
    for the mode in which it exports.
    """
    current, wanted = op.inputs[_TRAINING] if op.num_inputs > _TRAINING else None, 0
    while current is not None:
        current = current.original
        producer = current.producer
        if producer is None:
            is_input = current.is_input and current.graph.parent is None
            if is_input:
                mend = f"--fix-input {current.name}={wanted} leaves it out"
                return f"a Dropout drops numbers at random as the input '{current.name}' says: {mend}"
            return _IN_TRAINING if current.const is not None else ""
        if not producer.is_type("Cast", "Identity", "Not", "Reshape", "Squeeze"):
            return ""
        wanted = 1 - wanted if producer.is_type("Not") else wanted
        current = producer.inputs[0]
    return ""
