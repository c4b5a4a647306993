"""What layers read in the float model, observed for as many tensors at once as fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qc.ir.executor import Executor, Feed, Observation, Statistics
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.spec import Quantizer

from ..layers.observed import Asked, observed_in_float
from .channels import Channels
from .objective import Ranges, Reading, Rounded

# Numbers that the Gram matrices of what is observed at once may have, all together.
_MOST = 1 << 26


def observed(
    model: Model, channels: Sequence[Channels], feeds: Sequence[Feed], executor: Executor
) -> Iterator[tuple[Channels, list[Reading]]]:
    """What the layers behind each tensor read, in order.

    Grids are made for one half of the feeds and judged on the other; with one feed, both are the same.

    Raises:
        DataError: what they read becomes NaN or infinite.
    """
    for batch in _batches(channels):
        asked = [request for one in batch for request in _asked(model, one)]
        ranges = [(value, observation) for value, observation in asked if observation.kind != "gram"]
        seen = _Seen(
            observed_in_float(model, ranges, feeds[::2], executor),
            observed_in_float(model, asked, feeds[1::2] or feeds, executor),
        )
        for one in batch:
            yield one, seen.readings(model, one)


@dataclass(frozen=True)
class _Seen:
    """The statistics of both halves of the feeds."""

    covered: Mapping[Asked, Statistics]
    reached: Mapping[Asked, Statistics]

    def readings(self, model: Model, channels: Channels) -> list[Reading]:
        """What the layers behind a tensor read."""
        rounded = tuple(self._rounded(value, held, axis) for value, held, axis in _on_grids(model, channels))
        found = []
        for layer in channels.readers:
            asked = layer.data, Observation("moments", layer.input_axis)
            covered, reached = (Ranges.of(half[asked]).largest for half in (self.covered, self.reached))
            groups, _, features = layer.matrix.shape
            products = self.reached[layer.data, layer.features].second_moment()
            found.append(
                Reading(
                    layer,
                    covered,
                    np.maximum(covered, reached),
                    products.reshape(groups, features, features),
                    rounded,
                )
            )
        return found

    def _rounded(self, value: Value, held: Quantizer, axis: int) -> Rounded:
        asked = value, Observation("moments", axis)
        covered, reached = self.covered[asked], self.reached[asked]
        power = reached.second_moment()
        rows = reached.count / max(power.size, 1)
        return Rounded(held.spec, Ranges.of(covered), Ranges.of(reached), power, rows)


def _batches(channels: Sequence[Channels]) -> Iterator[list[Channels]]:
    """Tensors in order, as many together as their Gram matrices fit into memory, at least one."""
    batch: list[Channels] = []
    held = 0
    for one in channels:
        size = sum(layer.matrix.shape[0] * layer.matrix.shape[2] ** 2 for layer in one.readers)
        if batch and held + size > _MOST:
            yield batch
            batch, held = [], 0
        batch.append(one)
        held += size
    if batch:
        yield batch


def _asked(model: Model, channels: Channels) -> Iterator[Asked]:
    """What to observe: moments of channels, and the Gram matrices of features."""
    for layer in channels.readers:
        yield layer.data, layer.features
        yield layer.data, Observation("moments", layer.input_axis)
    for value, _, axis in _on_grids(model, channels):
        yield value, Observation("moments", axis)


def _on_grids(model: Model, channels: Channels) -> Iterator[tuple[Value, Quantizer, int]]:
    """The scaled tensors on grids, each grid once, and the axes of their channels."""
    grids: set[int] = set()
    for value, axis in channels.scaled:
        for held in model.quant.quantizers_on(value):
            if held.id not in grids:
                grids.add(held.id)
                yield value, held, axis
