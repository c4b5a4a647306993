"""Runs a model segment by segment, each from what the ones before it left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TypeProto, helper, numpy_helper

from qc.ir.errors import UsageError
from qc.ir.executor import Feed

from ..protos.detach import detach_weights
from ..protos.parts import Cutter
from ..sessions.open import open_session, run_session


class SegmentRunner:
    """Computes tensors of a model on demand, from the nearest ones that it has computed before.

    Methods that visit the layers one after the other thus run each op about once, where a model of its own
    for each layer would run the first op once per layer. What later segments will read is kept for all feeds,
    and goes one call after the last op that reads it has run.

    Attributes:
        ran: how many nodes were run in all, Constant nodes aside; a node counts once for all feeds.
    """

    def __init__(
        self,
        model: ModelProto,
        feeds: Sequence[Feed],
        *,
        base_dir: Path | None = None,
        provider: str = "cpu",
        threads: int | None = None,
    ) -> None:
        """Runs nothing yet.

        Args:
            model: not changed.
            feeds: arrays for every input without a default; at least one feed.
            base_dir: the folder that external data of ``model`` is relative to.
            provider, threads: as for :func:`qc.runtime.open_session`.
        """
        light, self._weights = detach_weights(model)
        self._nodes = list(light.graph.node)
        self._initializers = {tensor.name: tensor for tensor in light.graph.initializer}
        self._declared = {info.name: info.type for info in light.graph.input}
        self._cutter = Cutter(light)
        self._count = len(feeds)
        self._fed = frozenset(name for feed in feeds for name in feed)
        self._known: dict[str, list[np.ndarray]] = {
            name: [feed[name] for feed in feeds] for name in self._fed
        }
        self._done: set[int] = set()  # the nodes whose results are known, or were and are not needed any more
        self._options: dict[str, Any] = {"base_dir": base_dir, "provider": provider, "threads": threads}
        self.ran = 0

    def tensors(self, names: Sequence[str]) -> dict[str, list[np.ndarray]]:
        """Tensors of the main graph by name: one array for each feed.

        Raises:
            UsageError: the main graph computes no such tensor.
            DataError: an input is missing, or has the wrong dtype or shape.
            ModelError: ONNX Runtime failed.
        """
        self._forget(lambda name: not self._is_read_later(name))
        missing = [name for name in dict.fromkeys(names) if name not in self._known]
        for name in missing:
            if name not in self._cutter.producers:
                raise UsageError(f"the main graph computes no tensor '{name}'")
        found = self._run(missing) if missing else {}
        return {name: self._known[name] if name in self._known else found[name] for name in names}

    def replace(self, name: str, array: np.ndarray) -> None:
        """Gives an initializer other numbers of the same shape and type; what was computed with it goes.

        Raises:
            UsageError: there is no such initializer, or it has another shape or type.
        """
        tensor = self._initializers.get(name)
        array = np.asarray(array, order="C")  # which leaves a scalar one
        new = numpy_helper.from_array(array, name)
        if tensor is None or (tensor.data_type, *tensor.dims) != (new.data_type, *new.dims):
            raise UsageError(f"there is no initializer '{name}' of shape {list(array.shape)} and that type")
        if name in self._weights:
            self._weights[name] = array
        else:
            tensor.CopyFrom(new)
        self._invalidate(name)

    def _run(self, names: list[str]) -> dict[str, list[np.ndarray]]:
        ran = self._cutter.upstream(names, self._known)
        self._done.update(ran)
        later = [name for index in ran for name in self._nodes[index].output if self._is_read_later(name)]
        outputs = list(dict.fromkeys([*names, *later]))
        part = self._cutter.segment(outputs, {name: self._type(name) for name in self._known})
        weights = {t.name: self._weights[t.name] for t in part.graph.initializer if t.name in self._weights}
        session = open_session(part, weights=weights, **self._options)
        inputs = [info.name for info in part.graph.input]
        found: dict[str, list[Any]] = {name: [] for name in outputs}
        for index in range(self._count):
            feed = {name: self._known[name][index] for name in inputs if name in self._known}
            for name, array in zip(outputs, run_session(session, feed, outputs), strict=True):
                found[name].append(array)
        self.ran += sum(self._nodes[index].op_type != "Constant" for index in ran)
        # Sequences and maps are no inputs of a segment: what reads them begins further up.
        tensors = {name: arrays for name, arrays in found.items() if isinstance(arrays[0], np.ndarray)}
        self._known.update(tensors)
        return found

    def _type(self, name: str) -> TypeProto:
        """The type of what is known of a tensor; of what is fed and no array, such as a sequence, its own."""
        arrays = self._known[name]
        if not all(isinstance(array, np.ndarray) for array in arrays):
            return self._declared[name]
        ranks = {array.ndim for array in arrays}
        shape = [None] * ranks.pop() if len(ranks) == 1 else None
        return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(arrays[0].dtype), shape)

    def _is_read_later(self, name: str) -> bool:
        """Whether a node that has not run reads a tensor; a constant is part of what reads it."""
        if not name or self._nodes[self._cutter.producers[name]].op_type == "Constant":
            return False
        return any(index not in self._done for index in self._cutter.readers[name])

    def _forget(self, is_needless: Callable[[str], bool]) -> None:
        for name in [name for name in self._known if name not in self._fed and is_needless(name)]:
            del self._known[name]

    def _invalidate(self, changed: str) -> None:
        """Takes back what ran with a tensor; nodes that have not run yet stop the search."""
        pending = [changed]
        while pending:
            ran = [index for index in self._cutter.readers[pending.pop()] if index in self._done]
            self._done.difference_update(ran)
            pending.extend(name for index in ran for name in self._nodes[index].output)
        self._forget(lambda name: self._cutter.producers[name] not in self._done)
