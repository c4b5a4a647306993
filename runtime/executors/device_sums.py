"""Sums that stay in the memory of the device from run to run of a model, until they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper

from qc.ir.executor import Feed

from ..observers.insert import list_early
from ..sessions.open import accepted_by, explaining_failures, to_value
from ..sessions.providers import runs_on_cuda
from ..statistics.tensor import BINS


def carry_histograms(model: ModelProto, names: Sequence[str]) -> None:
    """Lets a model made by :func:`add_observers` add histograms to those of the runs before.

    The outputs ``names`` (int64, of shape ``(65536,)`` or ``(1,)``) give way to outputs with the sums, and
    what these were before is a further input; :class:`DeviceSums` knows how to run such a model.
    """
    graph = model.graph
    for node in graph.node:
        if node.op_type == "Observe":  # all bins, so that they can be added
            kept = [attribute for attribute in node.attribute if attribute.name != "sparse"]
            del node.attribute[:]
            node.attribute.extend(kept)
    for name in names:
        graph.node.append(helper.make_node("Add", [_before(name), name], [_after(name)], name=_after(name)))
        graph.input.append(helper.make_tensor_value_info(_before(name), TensorProto.INT64, [BINS]))
    list_early(graph)
    carried = frozenset(names)
    for output in graph.output:
        if output.name in carried:
            output.name = _after(output.name)


class DeviceSums:
    """Runs a model that was changed by :func:`carry_histograms`.

    Only the other outputs are copied to the memory of the processor in every run.
    """

    def __init__(self, session: ort.InferenceSession, names: Sequence[str]) -> None:
        """Takes over a session; ``names`` are what :func:`carry_histograms` was given."""
        self._session = session
        self._device = "cuda" if runs_on_cuda(session) else "cpu"
        self._names = tuple(names)
        self._sums = self._nothing()

    def run(self, feed: Feed, outputs: Sequence[str]) -> dict[str, np.ndarray]:
        """Runs the model on one feed; the outputs that are not carried.

        Raises:
            ModelError: ONNX Runtime failed.
        """
        fetched = [name for name in outputs if name not in self._sums]
        # Bound values are kept alive here until the run is over.
        inputs = {name: to_value(array) for name, array in accepted_by(self._session, feed).items()}
        inputs |= {_before(name): value for name, value in self._sums.items()}
        with explaining_failures():
            binding = self._session.io_binding()
            for name, value in inputs.items():
                binding.bind_ortvalue_input(name, value)
            for name in fetched:
                binding.bind_output(name)
            for name in self._names:
                binding.bind_output(_after(name), self._device)
            self._session.run_with_iobinding(binding)
            values = binding.get_outputs()
            self._sums = dict(zip(self._names, values[len(fetched) :], strict=True))
            return {name: value.numpy() for name, value in zip(fetched, values, strict=False)}

    def take(self) -> Iterator[tuple[str, np.ndarray]]:
        """The name and the sum of each carried output, copied from the device; begins again with nothing."""
        sums, self._sums = self._sums, self._nothing()
        for name, value in sums.items():
            yield name, value.numpy()

    def _nothing(self) -> dict[str, ort.OrtValue]:
        zeros = np.zeros(BINS, np.int64)
        return {name: ort.OrtValue.ortvalue_from_numpy(zeros, self._device, 0) for name in self._names}


def _before(name: str) -> str:
    return f"{name}.before"


def _after(name: str) -> str:
    return f"{name}.after"
