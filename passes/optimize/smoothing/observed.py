"""What layers read in the float model, as scales of channels need it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qc.ir.executor import Executor, Feed, Observation, Statistics
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.spec import Quantizer

from ..layers.layer import Layer
from ..layers.observed import Asked, observed_in_float
from .channels import Channels
from .gates import Gate
from .objective import Ranges, Reading, Rounded


def observed(
    model: Model, channels: Sequence[Channels], feeds: Sequence[Feed], executor: Executor
) -> Iterator[tuple[Channels, list[Reading]]]:
    """What the layers behind each tensor read, in order.

    Grids are made for one half of the feeds and judged on the other; with one feed, both are the same.

    Raises:
        DataError: what they read becomes NaN or infinite.
    """
    asked = [request for one in channels for request in _asked(model, one)]
    seen = _Seen(
        observed_in_float(model, asked, feeds[::2], executor),
        observed_in_float(model, asked, feeds[1::2] or feeds, executor),
    )
    for one in channels:
        yield one, seen.readings(model, one)


@dataclass(frozen=True)
class _Seen:
    """The statistics of both halves of the feeds."""

    covered: Mapping[Asked, Statistics]
    reached: Mapping[Asked, Statistics]

    def readings(self, model: Model, channels: Channels) -> list[Reading]:
        """What the layers behind a tensor read."""
        behind = {gate.value: _product(gate) for gate in channels.gates}
        rounded = tuple(
            self._rounded((value, Observation("moments", axis)), held, behind.get(value))
            for value, held, axis in _on_grids(model, channels)
        )
        found = []
        for layer in channels.readers:
            asked = layer.data, Observation("moments", layer.input_axis)
            covered, reached = (Ranges.of(half[asked]).largest for half in (self.covered, self.reached))
            squares = self.reached[asked].second_moment()
            power = float(self.reached[_result(layer)].second_moment().sum())
            found.append(Reading(layer, covered, np.maximum(covered, reached), squares, power, rounded))
        return found

    def _rounded(self, asked: Asked, held: Quantizer, product: Asked | None) -> Rounded:
        """A tensor whose errors are about as large behind a function that multiplies it, as behind SiLU.

        Grids within the function do not count, as they stay what they are.
        """
        covered, reached = self.covered[asked], self.reached[asked]
        power = np.minimum(reached.second_moment(), self.reached[product or asked].second_moment())
        rows = reached.count / max(power.size, 1)
        return Rounded(held.spec, Ranges.of(covered), Ranges.of(reached), power, rows)


def _asked(model: Model, channels: Channels) -> Iterator[Asked]:
    """What to observe: moments of channels."""
    for gate in channels.gates:
        yield _product(gate)
    for layer in channels.readers:
        yield _result(layer)
        yield layer.data, Observation("moments", layer.input_axis)
    for value, _, axis in _on_grids(model, channels):
        yield value, Observation("moments", axis)


def _product(gate: Gate) -> Asked:
    return gate.result, Observation("moments", len(gate.result.type.shape or ()) + gate.axis)


def _result(layer: Layer) -> Asked:
    return layer.result, Observation("moments", layer.output_axis)


def _on_grids(model: Model, channels: Channels) -> Iterator[tuple[Value, Quantizer, int]]:
    """The scaled tensors on grids, each grid once, and the axes of their channels."""
    grids: set[int] = set()
    for value, axis in channels.scaled:
        for held in model.quant.quantizers_on(value):
            if held.id not in grids:
                grids.add(held.id)
                yield value, held, axis
