"""Initializers in place of ops that make constants."""

from __future__ import annotations

from qc.ir.facts.constants import constant_op_data
from qc.ir.graph import Op, Value
from qc.ir.rewriter import Rewriter
from qc.ir.tensor_ref import TensorRef


def initializer_data(op: Op) -> TensorRef | None:
    """What an initializer in the place of a Constant holds; None if there can be none.

    The result of the graph stays what an op makes.
    """
    result = op.outputs[0]
    return constant_op_data(op) if result is not None and not result.is_output else None


def make_initializer(rewriter: Rewriter, op: Op, data: TensorRef) -> Value:
    """Puts an initializer in the place of an op with one result."""
    (result,) = (value for value in op.outputs if value is not None)
    const = rewriter.add_constant(op.graph, data, result.name)
    rewriter.replace_uses(result, const)
    rewriter.swap_names(result, const)
    rewriter.erase_op(op)
    return const
