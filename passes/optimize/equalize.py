"""Balances the ranges of channels between the weights that make them and those that read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from qc.ir.journal import SKIP, Remark
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .scaling.balance import Weight, balanced
from .scaling.channels import Addend, Channels, ScaledLayer
from .scaling.unions import smallest

# The least change of a scale for which weights are written anew, a power of two.
_LEAST_CHANGE = 0.1


@dataclass(frozen=True)
class Equalize(Pass):
    """Balances the ranges of channels between the weights that make them and those that read them.

    Where a weight has one grid, its largest channel takes the steps that the others need. The result of a
    layer may be divided by any scale for each channel, if the layers that read it multiply their weights by
    it: with the square root of the quotient of both ranges they become equal, and the float model computes
    the same (cross-layer equalization, in M. Nagel et al., Data-Free Quantization Through Weight Equalization
    and Bias Correction, 2019).

    Scales pass through Relu, LeakyRelu, PRelu, pooling, padding by zeros, Resize, Reshape, Transpose, Split,
    Concat and the like. What is added has one scale, so a residual stream is balanced as a whole. All scales
    are sought together, until none changes any more. A channel keeps its scale if it reaches an output of the
    graph, an op that lets no scale pass, such as Sigmoid or Clip from 0 to 6, or a weight that is shared.

    It helps where weights have one scale per tensor, most of all those of depthwise convolutions. Those
    with a scale per channel gain little, and may lose: activations become more or less even by chance. To be
    run after ``fold-batch-norms``. It needs no data, and takes seconds for ten million weights.
    """

    name = "equalize"
    stage = Stage.FLOAT
    idempotent = False  # scales that are sought again, from near the balance, may still move a little
    tolerance = 1e-5

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        for graph in model.graphs():
            equalization = _Equalization(Channels.of(model, graph))
            equalization.note_fixed(model)
            for chain in equalization.chains():
                chain.write(rewriter)


@dataclass(frozen=True)
class _Chain:
    """Layers and addends with scales that hang together, which change in one action.

    Attributes:
        scales: for each number of a scale; those of other chains are 1.
        reason: what becomes of their ranges, in words.
    """

    layers: list[ScaledLayer]
    addends: list[Addend]
    scales: np.ndarray
    reason: str

    def write(self, rewriter: Rewriter) -> None:
        first = next(one for one in self.layers if (self.scales[one.outputs] != 1).any())
        with rewriter.action(f"equalize: {self.reason}", first.layer.op):
            for one in self.layers:
                features = one.layer.matrix.shape[2] // one.inputs.shape[1]
                columns = np.repeat(self.scales[one.inputs], features, axis=1)[:, np.newaxis]
                one.layer.with_matrix(
                    rewriter, one.layer.matrix * columns / self.scales[one.outputs][..., np.newaxis]
                )
            for addend in self.addends:
                array = addend.constant.array
                divided = array / self.scales[addend.numbers]
                addend.constant.set(rewriter, divided.reshape(array.shape).astype(array.dtype))


class _Equalization:
    """The scales of one graph, as found."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._sets = channels.unions.sets()
        self._reasons = channels.unions.reasons(self._sets)
        self._free = np.ones(self._sets.size, bool)
        self._free[list(self._reasons)] = False
        self._weights = {
            one: Weight(one.magnitudes, self._sets[one.inputs], self._sets[one.outputs])
            for one in channels.layers
            if self._free[self._sets[one.inputs]].any() or self._free[self._sets[one.outputs]].any()
        }
        self._powers = balanced(list(self._weights.values()), self._free)

    def note_fixed(self, model: Model) -> None:
        """Remarks on the layers none of whose channels has a scale."""
        for one in self._channels.layers:
            sets = self._sets[one.outputs]
            if not self._free[sets].any():
                reason = f"not equalized: {self._reasons[int(sets.flat[0])]}"
                model.journal.note(Remark(SKIP, one.layer.op, one.layer.op.label, reason))

    def chains(self) -> Iterator[_Chain]:
        """Those with scales that are worth it, in the order of the graph."""
        of_sets = smallest(self._sets.size, self._neighbours())
        found = (of_sets[weight.outputs][self._free[weight.outputs]] for weight in self._weights.values())
        for chain in dict.fromkeys(number for numbers in found for number in numbers.tolist()):
            powers = np.where((of_sets == chain) & self._free, self._powers, 0.0)
            if np.abs(powers).max() >= _LEAST_CHANGE:
                yield self._chain(powers)

    def _chain(self, powers: np.ndarray) -> _Chain:
        scales = np.exp2(powers)[self._sets]
        weights = {
            one: weight
            for one, weight in self._weights.items()
            if powers[weight.outputs].any() or powers[weight.inputs].any()
        }
        addends = [one for one in self._channels.addends if (scales[one.numbers] != 1).any()]
        before, after = (_in_words(weights.values(), now, powers != 0) for now in (0 * powers, self._powers))
        return _Chain(list(weights), addends, scales, f"ranges of channels were {before}, are {after}")

    def _neighbours(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Scales that belong to one tensor, in pairs."""
        for weight in self._weights.values():
            for numbers in (weight.inputs, weight.outputs):
                free = numbers[self._free[numbers]]
                yield free[:-1], free[1:]


def _in_words(weights: Iterable[Weight], powers: np.ndarray, which: np.ndarray) -> str:
    """The least and the largest range of some channels, where they are made and where they are read."""
    found = [weight.ranges(powers, made)[which] for weight in weights for made in (True, False)]
    ranges = np.concatenate(found)
    return f"{ranges[ranges > 0].min():.2g} to {ranges.max():.2g}"
