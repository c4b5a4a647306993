"""What is computed for logarithms, for roots, or for a sine and a cosine alone."""

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
_LOGARITHMS = frozenset({"Log", "ReduceLogSum"})
_SINE_AND_COSINE = frozenset({"Sin", "Cos"})
_ROOTS = frozenset({"Sqrt"})


def left_float_as_spectra(model: Model, target: Target) -> dict[Op, Reason]:
    """The ops in front of logarithms, and of sines and cosines, that run in float there, with the reason."""
    found: dict[Op, Reason] = {}
    for ends, before, reason in ENDS:
        if reason is not None and any(target.rule_for(end).runs == "float" for end in ends):
            found |= dict.fromkeys(before(model.graph), reason)
    return found


@analysis(STRUCTURE)
def before_logarithms(graph: Graph) -> frozenset[Op]:
    """The ops of which only logarithms see the results: sums, products, powers, and what moves their numbers.

    The error of an integer grid is the same for loud and quiet numbers, and a logarithm tells quiet ones
    apart: below half a step of the grid all of them become the logarithm of zero. Activations,
    normalizations and Softmax end the search, as numbers behind them are of one order of magnitude.
    """
    return _only_seen_by(graph, _LOGARITHMS, lambda types: types <= _LOGARITHMS)


@analysis(STRUCTURE)
def before_angles(graph: Graph) -> frozenset[Op]:
    """The ops of which only a sine and a cosine see the results, as positions in a sentence have them.

    Angles go through many turns, and a step of a grid over all of them can be most of a turn. A sine alone
    is taken for an activation.
    """
    return _only_seen_by(graph, _SINE_AND_COSINE, lambda types: types in (_SINE_AND_COSINE, frozenset()))


@analysis(STRUCTURE)
def before_roots(graph: Graph) -> frozenset[Op]:
    """The ops of which only a root sees the results, as of the squares in a magnitude.

    Numbers below a sixteenth of the largest have squares below a step of 8 bits. Products of matrices end the
    search, with a limit that devices run as one with them.
    """
    return _only_seen_by(graph, _ROOTS, lambda types: types <= _ROOTS, through_products=False)


def _only_seen_by(
    graph: Graph,
    types: frozenset[str],
    ends: Callable[[frozenset[str]], bool],
    through_products: bool = True,
) -> frozenset[Op]:
    """The ops of which each result has readers: ops of this kind, or of types that end the search."""
    scopes = scopes_of(graph)
    found: set[Op] = set()
    if not any(op.is_type(*types) for op in scopes.ops):
        return frozenset()
    for op in reversed(scopes.ops):
        results = [value for value in op.outputs if value is not None]
        is_product = traits(op).product in ("convolution", "matrix")
        keeps = op.is_type(*_ARITHMETIC) or is_product or traits(op).grid
        ends_here = not through_products and (is_product or limits_product(op))
        if (
            keeps
            and not ends_here
            and op not in scopes.branch_edges
            and all(_is_seen(scopes, one, found, ends) for one in results)
        ):
            found.add(op)
    return frozenset(found)


def limits_product(op: Op) -> bool:
    """Whether an op is a Relu or a Clip of what a product made, as one with which devices run it."""
    data = op.inputs[0] if op.is_type("Relu", "Clip") else None
    maker = data.original.producer if data is not None else None
    return maker is not None and bool(traits(maker).product)


def _is_seen(scopes: Scopes, value: Value, found: set[Op], ends: Callable[[frozenset[str]], bool]) -> bool:
    if scopes.is_exposed(value) or scopes.onward(value):
        return False
    readers = [op for op, _ in scopes.uses(value) if not reads_shape_only(op)]
    others = frozenset(op.op_type for op in readers if op not in found)
    return bool(readers) and ends(others)


# What tells apart far smaller numbers than a step of 8 bits, what is computed for it alone, and why that
# stays float where the end does.
ENDS: tuple[tuple[frozenset[str], Callable[[Graph], frozenset[Op]], Reason | None], ...] = (
    (_LOGARITHMS, before_logarithms, _SPECTRUM),
    (_SINE_AND_COSINE, before_angles, _ANGLE),
    (_ROOTS, before_roots, None),
)
