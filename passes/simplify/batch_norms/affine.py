"""A scale and a shift of each channel, and the constants that they are folded into."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qc.ir.graph import Graph, Op
from qc.ir.rewriter import Rewriter


@dataclass(frozen=True)
class Affine:
    """``y = x * scale + shift`` with one scale and shift (float64, shape ``(channels,)``) per channel."""

    scale: np.ndarray
    shift: np.ndarray


def set_constant(rewriter: Rewriter, graph: Graph, op: Op, port: int, array: np.ndarray) -> None:
    """Lets an op read a new constant, named after the one that it read."""
    old = graph.op_inputs(op)[port] if port < op.num_inputs else None
    hint = old.name if old is not None else f"{op.name or op.op_type}.bias"
    rewriter.set_input(op, port, rewriter.add_constant(graph, array, f"{hint}_folded"))
    if old is not None:
        rewriter.drop_unread(old)
