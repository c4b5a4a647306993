"""A pass, a metric and a supergroup for qc; the folder ``targets`` beside this file brings a target."""

from dataclasses import dataclass

from qc.ir.model import Model
from qc.ir.rewriter import Rewriter
from qc.passes import Pass, PassContext, Stage, option
from qc.patterns import Supergroup, find_all, op, value
from qc.runtime import OutputMetric

_positive = op.Relu(value("x"))
_square = value("x") ** 2

SQUARED_RELU = Supergroup(
    "squared_relu", _positive * _positive, "max(x, 0) squared, the activation of Primer", "activation"
)


@dataclass(frozen=True)
class SquareAsMul(Pass):
    """Writes Pow(x, 2) as Mul(x, x), which integer hardware can compute.

    The result keeps its name. An op whose power is not a constant 2 stays as it is.
    """

    name = "square-as-mul"
    stage = Stage.FLOAT

    keep: tuple[str, ...] = option((), "names of ops to leave alone")

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        for graph in model.graphs():
            for match in find_all(graph, [_square]):
                if match.root.name in self.keep:
                    continue
                result = match.result
                with rewriter.action("square as product", match.root):
                    product = rewriter.add_op(graph, "Mul", [match["x"], match["x"]], ["square"])
                    rewriter.replace_uses(result, product.outputs[0])
                    rewriter.erase_op(match.root)


class SameSign(OutputMetric):
    """The share of elements that have the sign of the reference."""

    name = "same-sign"

    def __init__(self) -> None:
        self._same = self._count = 0

    def add(self, reference, output, place):
        self._same += int(((reference > 0) == (output > 0)).sum())
        self._count += reference.size

    def value(self) -> float | None:
        return self._same / self._count if self._count else None
