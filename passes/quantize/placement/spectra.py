"""What is computed in front of logarithms and roots, as spectra are in models of sound, or as an angle."""

from __future__ import annotations

from collections.abc import Callable

from qc.ir.analysis import STRUCTURE, analysis
from qc.ir.facts.op_traits import reads_shape_only, traits
from qc.ir.facts.scopes import Scopes, scopes_of
from qc.ir.graph import Graph, Op, Value
from qc.ir.model import Model

from ...framework.target import Target
from .unit import Reason

_ALL_THE_SAME = "the option spectra=integer of 'insert-quantizers' quantizes it all the same"
_SPECTRUM = Reason(
    "only a logarithm sees its result, and tells apart numbers that are one on a grid",
    suggestion=_ALL_THE_SAME,
)
_ANGLE = Reason(
    "only a sine and a cosine see its result, an angle, of which a step of a grid may be most of a turn",
    suggestion=_ALL_THE_SAME,
)
# They keep relations between magnitudes, or raise them to a power: what is small is still small behind them.
_ARITHMETIC = (
    *("Abs", "Add", "Cast", "Clip", "Div", "Max", "Mean", "Min", "Mul", "Neg", "Pad", "Pow", "Reciprocal"),
    *("Sqrt", "Sub", "Sum", "AveragePool", "Einsum"),
    *("ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"),
)
LOGARITHMS = frozenset({"Log", "ReduceLogSum"})
SINE_AND_COSINE = frozenset({"Sin", "Cos"})
ROOTS = frozenset({"Sqrt"})


def left_float_as_spectra(model: Model, target: Target) -> dict[Op, Reason]:
    """The ops in front of logarithms, and of sines and cosines, that run in float there, with the reason."""
    found: dict[Op, Reason] = {}
    for end, before, reason in (("Log", before_logarithms, _SPECTRUM), ("Sin", before_angles, _ANGLE)):
        if target.rule_for(end).runs == "float":
            found |= dict.fromkeys(before(model.graph), reason)
    return found


@analysis(STRUCTURE)
def before_logarithms(graph: Graph) -> frozenset[Op]:
    """The ops of which only logarithms see the results: sums, products, powers, and what moves their numbers.

    The error of an integer grid is the same for loud and quiet numbers, and a logarithm tells quiet ones
    apart: below half a step of the grid all of them become the logarithm of zero. Activations,
    normalizations and Softmax end the search, as numbers behind them are of one order of magnitude.
    """
    return _only_seen_by(graph, LOGARITHMS, lambda types: types <= LOGARITHMS)


@analysis(STRUCTURE)
def before_angles(graph: Graph) -> frozenset[Op]:
    """The ops of which only a sine and a cosine see the results, as positions in a sentence have them.

    Angles go through many turns, and a step of a grid over all of them can be most of a turn. A sine alone
    is taken for an activation.
    """
    return _only_seen_by(graph, SINE_AND_COSINE, lambda types: types in (SINE_AND_COSINE, frozenset()))


@analysis(STRUCTURE)
def before_roots(graph: Graph) -> frozenset[Op]:
    """The ops of which only a root sees the results, as of the squares in a magnitude, without products.

    A step of 8 bits of a square is a sixteenth of the largest number.
    """
    found = _only_seen_by(graph, ROOTS, lambda types: types <= ROOTS)
    return frozenset(op for op in found if not traits(op).product)


def _only_seen_by(
    graph: Graph, types: frozenset[str], ends: Callable[[frozenset[str]], bool]
) -> frozenset[Op]:
    """The ops of which each result has readers: ops of this kind, or of types that end the search."""
    scopes = scopes_of(graph)
    found: set[Op] = set()
    if not any(op.is_type(*types) for op in scopes.ops):
        return frozenset()
    for op in reversed(scopes.ops):
        results = [value for value in op.outputs if value is not None]
        keeps = op.is_type(*_ARITHMETIC) or traits(op).product in ("convolution", "matrix") or traits(op).grid
        if (
            keeps
            and op not in scopes.branch_edges
            and all(_is_seen(scopes, one, found, ends) for one in results)
        ):
            found.add(op)
    return frozenset(found)


def _is_seen(scopes: Scopes, value: Value, found: set[Op], ends: Callable[[frozenset[str]], bool]) -> bool:
    if scopes.is_exposed(value) or scopes.onward(value):
        return False
    readers = [op for op, _ in scopes.uses(value) if not reads_shape_only(op)]
    others = frozenset(op.op_type for op in readers if op not in found)
    return bool(readers) and ends(others)
