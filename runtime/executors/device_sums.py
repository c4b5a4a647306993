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
    what these were before is a further input, whose memory the output may have; :class:`DeviceSums` knows how
    to run such a model. An observer adds by itself, what comes out of a body is added by an op.
    """
    graph = model.graph
    observers = {node.output[4]: node for node in graph.node if node.op_type == "Observe" and node.output[4:]}
    for observer in observers.values():  # all bins, so that they can be added
        kept = [attribute for attribute in observer.attribute if attribute.name != "sparse"]
        del observer.attribute[:]
        observer.attribute.extend(kept)
    for name in names:
        graph.input.append(helper.make_tensor_value_info(_before(name), TensorProto.INT64, [BINS]))
        if name in observers:
            observers[name].input.append(_before(name))
            observers[name].output[4] = _after(name)
        else:
            added = helper.make_node("Add", [_before(name), name], [_after(name)], name=_after(name))
            graph.node.append(added)
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
        device = "cuda" if runs_on_cuda(session) else "cpu"
        self._sums = {name: ort.OrtValue.ortvalue_from_numpy(_nothing(), device, 0) for name in names}
        self._binding = session.io_binding()
        for name, value in self._sums.items():  # added to where it is
            self._binding.bind_ortvalue_input(_before(name), value)
            self._binding.bind_ortvalue_output(_after(name), value)

    def run(self, feed: Feed, outputs: Sequence[str]) -> dict[str, np.ndarray]:
        """Runs the model on one feed; the outputs that are not carried.

        Raises:
            ModelError: ONNX Runtime failed.
        """
        fetched = [name for name in outputs if name not in self._sums]
        # Bound values are kept alive here until the run is over.
        inputs = {name: to_value(array) for name, array in accepted_by(self._session, feed).items()}
        with explaining_failures():
            for name, value in inputs.items():
                self._binding.bind_ortvalue_input(name, value)
            for name in fetched:
                self._binding.bind_output(name)
            self._session.run_with_iobinding(self._binding)
            values = self._binding.get_outputs()[len(self._sums) :]
            return {name: value.numpy() for name, value in zip(fetched, values, strict=True)}

    def take(self) -> Iterator[tuple[str, np.ndarray]]:
        """The name and the sum of each carried output, copied from the device; begins again with nothing."""
        for name, value in self._sums.items():
            yield name, value.numpy().copy()
            value.update_inplace(_nothing())


def _nothing() -> np.ndarray:
    return np.zeros(BINS, np.int64)


def _before(name: str) -> str:
    return f"{name}.before"


def _after(name: str) -> str:
    return f"{name}.after"
