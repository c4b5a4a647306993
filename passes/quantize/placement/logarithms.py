"""What is computed in front of a logarithm, as spectra are in models that take sound."""

from __future__ import annotations

from qc.ir.analysis import STRUCTURE, analysis
from qc.ir.facts.op_traits import reads_shape_only, traits
from qc.ir.facts.scopes import Scopes, scopes_of
from qc.ir.graph import Graph, Op, Value

# They keep relations between magnitudes, or raise them to a power: what is small is still small behind them.
_ARITHMETIC = (
    *("Abs", "Add", "Cast", "Clip", "Div", "Max", "Mean", "Min", "Mul", "Neg", "Pad", "Pow", "Reciprocal"),
    *("Sqrt", "Sub", "Sum", "AveragePool", "Einsum"),
    *("ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"),
)
_LOGARITHMS = ("Log", "ReduceLogSum")


@analysis(STRUCTURE)
def before_logarithms(graph: Graph) -> frozenset[Op]:
    """The ops of which only logarithms see the results: sums, products, powers, and what moves their numbers.

    The error of an integer grid is the same for loud and quiet numbers, and a logarithm tells quiet ones
    apart: below half a step of the grid all of them become the logarithm of zero. Activations,
    normalizations and Softmax end the search, as numbers behind them are of one order of magnitude.
    """
    scopes = scopes_of(graph)
    found: set[Op] = set()
    for op in reversed(scopes.ops):
        results = [value for value in op.graph.op_outputs(op) if value is not None]
        keeps = op.is_type(*_ARITHMETIC) or traits(op).product in ("convolution", "matrix") or traits(op).grid
        if keeps and op not in scopes.branch_edges and all(_is_heard(scopes, one, found) for one in results):
            found.add(op)
    return frozenset(found)


def _is_heard(scopes: Scopes, value: Value, found: set[Op]) -> bool:
    """Whether logarithms, and nothing else, see a value."""
    if scopes.is_exposed(value) or scopes.onward(value):
        return False
    readers = [op for op, _ in scopes.uses(value) if not reads_shape_only(op)]
    return bool(readers) and all(op in found or op.is_type(*_LOGARITHMS) for op in readers)
