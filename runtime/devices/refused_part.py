"""Which ops are at fault where a device takes each of them, and then gives the model up as a whole."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from networkx.utils import UnionFind
from onnx import ModelProto, NodeProto

from qc.ir.errors import QcError
from qc.ir.onnx.protos import reads

from ..execution.tensor_types import tensor_types
from ..protos.parts import Cutter
from .device import Device

MOST_COMPILATIONS = 24
MOST_SECONDS = 300.0  # after which no other part is offered
_ROUNDS = ("QuantizeLinear", "DequantizeLinear")

Unit = Sequence[int]  # the places of ops that are offered together


class RefusedPart:
    """Looks for the fewest consecutive ops that a device refuses alone, for the same reason as the model.

    Half of the ops is offered, then half of those that are refused, and so on. Parts begin and end at
    quantized tensors, so that each is as good a QDQ model as the whole; within the last one, at any tensors.

    Attributes:
        ops: those of the smallest part that is refused, in the order of the model; all of them if no part is.
        compilations: how many parts were offered, at most :data:`MOST_COMPILATIONS`.

    Args:
        model: a model of fixed shapes that the device gives up; not changed.
        failure: why it does, in its own words.
        device: the device, which is asked for an execution of each part.
        base_dir: the folder that external data is relative to.
        on_step: called whenever a part was offered.
    """

    def __init__(
        self,
        model: ModelProto,
        failure: str,
        device: Device,
        *,
        base_dir: Path | None = None,
        on_step: Callable[[], object] = lambda: None,
    ) -> None:
        self.compilations = 0
        self._end = time.monotonic() + MOST_SECONDS
        self._failure, self._device, self._base_dir = failure, device, base_dir
        self._on_step = on_step
        self._parts = Parts(model, base_dir)
        self._places: Unit = list(range(len(self._parts.ops)))

    @property
    def ops(self) -> list[NodeProto]:
        """See above."""
        return [self._parts.ops[place] for place in self._places]

    @property
    def is_smaller(self) -> bool:
        """Whether it is not the whole model that alone is refused."""
        return len(self._places) < len(self._parts.ops) or len(self._places) == 1

    def search(self) -> RefusedPart:
        """Does the work, and gives itself."""
        units = self._parts.units()
        with suppress(_NoMoreOffers):
            self._narrow(units)
            if self._places in units:
                self._narrow([[place] for place in self._places])
        return self

    def _narrow(self, units: Sequence[Unit]) -> None:
        """Halves the units, which are refused together, until none of the halves is refused."""
        low, high = 0, len(units)
        while high - low > 1:
            middle = (low + high) // 2
            if self._refuses(units[low:middle]):
                high = middle
            elif self._refuses(units[middle:high]):
                low = middle
            else:
                self._span(units[low:middle], units[middle:high])
                return

    def _span(self, before: Sequence[Unit], behind: Sequence[Unit]) -> None:
        """Takes units away at both ends of what is refused together and in neither half alone."""
        last = bisect_left(
            range(1, len(behind)), True, key=lambda count: self._refuses([*before, *behind[:count]])
        )
        kept = behind[: last + 1]
        bisect_left(range(1, len(before)), True, key=lambda count: self._refuses([*before[-count:], *kept]))

    def _refuses(self, units: Sequence[Unit]) -> bool:
        """Whether the device gives up a part for the reason for which it does the whole."""
        places = sorted(place for unit in units for place in unit)
        part = self._parts.model_of(places)
        if part is None:
            return False
        if self.compilations == MOST_COMPILATIONS or time.monotonic() > self._end:
            raise _NoMoreOffers
        self.compilations += 1
        try:
            refused = self._device.execution(part, base_dir=self._base_dir).failure == self._failure
        except QcError:  # of a part that is no model of its own
            refused = False
        self._on_step()
        if refused:
            self._places = places
        return refused


class Parts:
    """Makes models of some ops of a QDQ model, with the quantizers of what they read and make.

    Attributes:
        ops: all but constants and quantizers, in the order of the model.
    """

    def __init__(self, model: ModelProto, base_dir: Path | None) -> None:
        self._types = tensor_types(model, base_dir, None)
        self._cutter = Cutter(model, self._types)
        self._outputs = {output.name for output in model.graph.output}
        self.ops = [op for op in self._cutter.ops() if op.op_type not in _ROUNDS]
        self._ends = [self._ends_of(op) for op in self.ops]

    def units(self) -> list[list[int]]:
        """The places of ops, together those between which tensors are not quantized; by the last of them."""
        maker = {name: place for place, op in enumerate(self.ops) for name in op.output if name}
        joined = UnionFind(range(len(self.ops)))
        for place, op in enumerate(self.ops):
            joined.union(place, *(maker[name] for name in reads(op) if name in maker))
        return sorted(map(sorted, joined.to_sets()), key=max)

    def model_of(self, places: Collection[int]) -> ModelProto | None:
        """A model of the ops at some places, whose interface is quantized as these tensors are.

        Returns:
            None if they make nothing that others could read.
        """
        chosen = set(places)
        made = [end for place in places for end in self._ends[place]]
        others = [end for place, ends in enumerate(self._ends) if place not in chosen for end in ends]
        given = {name: self._types[name] for name in others if name in self._types}
        nodes = self._cutter.model.graph.node
        read = {name for place in self._cutter.upstream(made, given) for name in reads(nodes[place])}
        left = [name for name in made if name not in read]
        return self._cutter.segment(left, given) if left else None

    def _ends_of(self, op: NodeProto) -> list[str]:
        """The tensors by which the results of an op leave it: their codes, or they themselves."""
        ends: list[str] = []
        for name in filter(None, op.output):
            readers = [self._cutter.model.graph.node[place] for place in self._cutter.readers.get(name, ())]
            codes = [reader.output[0] for reader in readers if reader.op_type == "QuantizeLinear"]
            is_read = len(codes) < len(readers) or name in self._outputs
            ends += [*codes, name] if is_read or not readers else codes
        return ends


class _NoMoreOffers(Exception):
    """As many parts were offered as may be, or for as long."""
