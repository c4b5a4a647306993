"""What a report tells, measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qc.compiler.compiled import Compiled
from qc.ir.errors import UsageError
from qc.layers import LayerErrors, layer_errors
from qc.passes import PassContext, Progress
from qc.progress import progress_here
from qc.runtime import load_data
from qc.sensitivity import Sensitivity, measure_sensitivity
from qc.verdict.measure import Verdict, measure_verdict

from .histograms import Histogram, histograms_of


@dataclass(frozen=True)
class Findings:
    """What was measured of a result.

    Attributes:
        errors: None if nothing is quantized; without any layers if only bodies have quantized tensors.
        sensitivity: None if it was not asked for.
    """

    compiled: Compiled
    verdict: Verdict
    errors: LayerErrors | None
    histograms: tuple[Histogram, ...]
    sensitivity: Sensitivity | None


def find(
    compiled: Compiled,
    data: object,
    *,
    is_meaningful: bool = True,
    tensors: Sequence[str] = (),
    sensitivity: bool = False,
    threads: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Findings:
    """Measures a result.

    Args:
        compiled: what a pipeline made, with quantizers that have numbers.
        data: anything :func:`qc.runtime.load_data` takes; it is read several times.
        is_meaningful: whether outputs on the data tell of accuracy, which those on random data do not.
        tensors: those to draw a histogram of; default: the ones that lose most.
        sensitivity: whether every quantizer is turned on and off alone, which takes longest.
        threads, device: as for :func:`qc.compile`.

    Raises:
        UsageError: there is no quantized tensor of a name in ``tensors``.
        DataError: the data does not fit the model, or there is none.
    """
    settings: dict[str, Any] = {"threads": threads, "device": device}
    context = PassContext(progress=progress or progress_here())
    feeds = load_data(data, compiled.inputs)
    verdict = measure_verdict(compiled, feeds, is_meaningful=is_meaningful)
    if not compiled.coverage.formats:
        if tensors:
            raise UsageError(f"there is no histogram of '{tensors[0]}': nothing is quantized")
        return Findings(compiled, verdict, None, (), None)
    errors = layer_errors(
        compiled, feeds, track=lambda all: context.track(all, "comparing tensors", feeds.length), **settings
    )
    histograms = tuple(histograms_of(compiled, feeds, errors, tensors)) if errors.layers or tensors else ()
    found = measure_sensitivity(compiled, feeds, progress=progress, **settings) if sensitivity else None
    return Findings(compiled, verdict, errors, histograms, found)
