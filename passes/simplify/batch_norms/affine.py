"""A scale and a shift of each channel, and the constants that they are folded into."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qc.ir.graph import Graph, Op, Value
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef


@dataclass(frozen=True)
class Affine:
    """``y = x * scale + shift`` with one scale and shift (float64, shape ``(channels,)``) per channel."""

    scale: np.ndarray
    shift: np.ndarray


def stored(graph: Graph, value: Value | None) -> Value | None:
    """The constant that a value is, or that Identity ops hand on to it."""
    while value is not None and graph.constant(value) is None:
        producer = graph.producer(value)
        value = (
            graph.op_inputs(producer)[0] if producer is not None and producer.is_type("Identity") else None
        )
    return value


def constant_of(graph: Graph, value: Value | None) -> TensorRef | None:
    """The data of :func:`stored`."""
    found = stored(graph, value)
    return graph.constant(found) if found is not None else None


def set_constant(rewriter: Rewriter, graph: Graph, op: Op, port: int, array: np.ndarray) -> None:
    """Lets an op read other numbers: in its constant, or in a new one if others read that, too."""
    read = graph.op_inputs(op)[port] if port < op.num_inputs else None
    old = stored(graph, read)
    const = old.const if old is not None else None  # not of the graph around
    if old is not None and const is not None and const.shape == array.shape and _is_alone(graph, read):
        if graph.is_input(old):
            rewriter.fix_default(old)
        rewriter.set_constant(old, array)
        rewriter.set_input(op, port, old)
    else:
        name = f"{old.name}_folded" if old is not None else f"{op.name or op.op_type}.bias"
        rewriter.set_input(op, port, rewriter.add_constant(graph, array, name))
    erase_unread(rewriter, graph, read)


def _is_alone(graph: Graph, value: Value | None) -> bool:
    """Whether a constant, and all that hands it on up to a value, is read once."""
    while value is not None:
        if len(graph.uses(value)) != 1 or graph.is_output(value):
            return False
        producer = graph.producer(value)
        value = graph.op_inputs(producer)[0] if producer is not None else None
    return True


def erase_unread(rewriter: Rewriter, graph: Graph, value: Value | None) -> None:
    """Removes a constant that nothing reads any more, and the ops that handed it on."""
    while value is not None and value.id in graph.nx and not graph.is_read(value):
        producer = graph.producer(value)
        source = graph.op_inputs(producer)[0] if producer is not None else None
        if producer is not None:
            rewriter.erase_op(producer)
        else:
            rewriter.drop_unread(value)
        value = source
