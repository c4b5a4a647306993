"""Models of one recurrent op with random weights, and how close two results are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from .models import floats, model_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH = 9, 2

Feed = dict[str, np.ndarray]


def recurrent(
    op_type: str,
    hidden: int = 8,
    inputs: int = 12,
    *,
    direction: str = "forward",
    states: bool = False,
    lengths: bool = False,
    peepholes: bool = False,
    outputs: tuple[str, ...] = ("y", "h"),
    opset: int = 17,
    seed: int = 0,
    **attributes: Any,
) -> ModelProto:
    """A model of the op alone; data ``x`` of :data:`STEPS` steps, or of as many as are fed.

    Args:
        states: whether the first states are inputs, ``h0`` and for an LSTM ``c0``.
        lengths: whether the lengths of the sequences are an input, ``lengths``.
        peepholes: whether an LSTM has them.
    """
    rng, directions = np.random.default_rng(seed), 1 + (direction == "bidirectional")
    gates, reach = GATES[op_type] * hidden, 1 / np.sqrt(hidden)
    shapes = {"w": (gates, inputs), "r": (gates, hidden), "b": (2 * gates,), "p": (3 * hidden,)}
    weights = [
        numpy_helper.from_array(rng.uniform(-reach, reach, (directions, *shape)).astype(np.float32), name)
        for name, shape in shapes.items()
        if name != "p" or peepholes
    ]
    given = ["lengths"] * lengths + ["h0"] * states + ["c0"] * (states and op_type == "LSTM")
    read = ["x", "w", "r", "b", *(name if name in given else "" for name in ("lengths", "h0", "c0"))]
    read = [*read[: 7 if op_type == "LSTM" else 6], *["p"] * peepholes]
    while not read[-1]:
        read.pop()
    batch_first = attributes.get("layout", 0)
    declared = {
        "x": floats("x", *(("batch", "steps") if batch_first else ("steps", "batch")), inputs),
        "h0": floats("h0", directions, "batch", hidden),
        "c0": floats("c0", directions, "batch", hidden),
        "lengths": helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]),
    }
    node = helper.make_node(
        op_type, read, outputs, name="cell", hidden_size=hidden, direction=direction, **attributes
    )
    ranks = {0: 4, 1: 3, 2: 3}
    results = [
        floats(name, *(f"{name}{axis}" for axis in range(ranks[port])))
        for port, name in enumerate(outputs)
        if name
    ]
    return model_of([node], [declared[name] for name in ("x", *given)], results, weights, opset)


def recurrent_feeds(model: ModelProto, count: int = 2, steps: int = STEPS) -> list[Feed]:
    """Normal numbers as data, small ones as states, and lengths of which the last is the longest."""
    rng = np.random.default_rng(1)

    def array(info: Any) -> np.ndarray:
        sizes = {"steps": steps, "batch": BATCH}
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in info.type.tensor_type.shape.dim]
        if info.name == "lengths":
            return np.linspace(1, steps, BATCH).astype(np.int32)
        return (rng.normal(size=shape) * (1 if info.name == "x" else 0.5)).astype(np.float32)

    return [{info.name: array(info) for info in model.graph.input} for _ in range(count)]


def decibels(wanted: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> float:
    """The signal to noise ratio of the worst output, in dB."""
    assert wanted.keys() == found.keys()
    with np.errstate(divide="ignore"):
        return min(
            float(10 * np.log10(np.square(wanted[name]).sum() / np.square(wanted[name] - found[name]).sum()))
            for name in wanted
        )
