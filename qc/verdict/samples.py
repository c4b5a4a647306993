"""On how many samples a result is compared with the float model, and the metrics that are summed up there."""

from __future__ import annotations

import math

import numpy as np
from onnx import ModelProto

from qc.coverage import multiplied_by, repetitions
from qc.ir import lift
from qc.ir.errors import QcError
from qc.ir.executor import Feed
from qc.ir.onnx.protos import without_weights
from qc.runtime import Metric
from qc.runtime.metrics.metric import Sample, Tally
from qc.runtime.metrics.sums import differ_in_size, is_floating

LEAST_SAMPLES = 8
_MOST_SAMPLES = 64
# Multiplications in all samples together, for which a processor takes about a second on one thread. They are
# counted, and no clock is asked, so that the same model and data give the same numbers.
_MULTIPLICATIONS = 10**10


def enough_samples(model: ModelProto, feed: Feed) -> int:
    """On how many samples a model is looked at: 64, or as many as do not take long, but 8 at least.

    The SQNR of a few samples may be some dB from that of all, most where samples differ as speech and silence
    do.
    """
    return min(max(_MULTIPLICATIONS // max(_multiplied(model, feed), 1), LEAST_SAMPLES), _MOST_SAMPLES)


def _multiplied(model: ModelProto, feed: Feed) -> int:
    """How often a run on a sample multiplies, as far as shapes can be told."""
    light = without_weights(model)
    del light.graph.value_info[:]  # which may name lengths that the sample tells
    for info in light.graph.input:
        dims = info.type.tensor_type.shape.dim
        for dim, length in zip(dims, feed[info.name].shape if info.name in feed else (), strict=False):
            dim.dim_value = length
    graphs = list(lift(light).graphs())
    return sum(repetitions(graph) * multiplied_by(op) for graph in graphs for op in graph.ops())


class Score:
    """A metric that is summed up over samples, or none if it is not for such outputs."""

    def __init__(self, metric: Metric) -> None:
        self._tally: Tally[float] | None = metric.start()

    def add(self, sample: Sample) -> None:
        """Takes in one more sample, unless its outputs are empty."""
        try:
            if self._tally is not None and not _is_empty(sample):
                self._tally.add(sample)
        except QcError:
            self._tally = None

    def value(self) -> float | None:
        """The metric over all samples; None if it has no value, as where outputs are NaN or infinite."""
        try:
            found = self._tally.value() if self._tally is not None else None
        except QcError:
            return None
        return None if found is None or math.isnan(found) or found == -math.inf else found


def is_incomparable(sample: Sample) -> bool:
    """Whether an output has other lengths than that of the float model, or all are empty."""
    given = sample.outputs
    pairs = ((one, given[name]) for name, one in sample.reference.items() if name in given)
    return _is_empty(sample) or any(differ_in_size(one, other) for one, other in pairs)


def _is_empty(sample: Sample) -> bool:
    return all(isinstance(one, np.ndarray) and not one.size for one in sample.reference.values())


def not_finite_in(sample: Sample) -> str:
    """Which model, ``result`` or ``float model``, has NaN or infinity where the other has another number.

    Empty if neither has.
    """
    found = ""
    for name, wanted in sample.reference.items():
        made = sample.outputs.get(name)
        if not (isinstance(wanted, np.ndarray) and isinstance(made, np.ndarray)):
            continue
        if not is_floating(wanted.dtype) or wanted.shape != made.shape:
            continue
        is_number = np.isfinite(wanted)
        if np.any(is_number & ~np.isfinite(made)):
            return "result"
        others = ~is_number & (wanted != made) & ~(np.isnan(wanted) & np.isnan(made))
        found = "float model" if np.any(others) else found
    return found
