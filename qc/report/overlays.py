"""Measures what a page colours ops by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from qc.checking import check
from qc.compiler.compiled import Compiled
from qc.ir.errors import UsageError
from qc.layers import layer_errors
from qc.passes import PassContext, Progress
from qc.progress import progress_here
from qc.runtime import Data, load_data
from qc.sensitivity import measure_sensitivity
from qc.view import Overlay, bits_overlay, error_overlay, sensitivity_overlay, time_overlay

_TIMED = 10  # runs, after one that warms up


def measure_overlays(
    compiled: Compiled,
    data: object,
    names: Iterable[str],
    *,
    threads: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Overlay]:
    """Measures a result, for :func:`qc.view.html_page`.

    Args:
        compiled: what a pipeline made, with quantizers that have numbers.
        data: anything :func:`qc.runtime.load_data` takes.
        names: of :data:`OVERLAYS`, in the order of the page.
        threads, device: as for :func:`qc.compile`.
        progress: where it shows how far it is.

    Raises:
        UsageError: nothing is quantized, times are asked for and no QDQ model was made, or there is no such
            name.
        DataError: the data does not fit the model, or there is none.
    """
    feeds = load_data(data, compiled.inputs)
    settings = {"threads": threads, "device": device, "progress": progress or progress_here()}
    return [_measure(name)(compiled, feeds, **settings) for name in dict.fromkeys(names)]


def _measure(name: str) -> Callable[..., Overlay]:
    if name not in _WAYS:
        raise UsageError(f"ops are coloured by {', '.join(OVERLAYS)}, not by '{name}'")
    return _WAYS[name]


def _bits(compiled: Compiled, feeds: Data, **settings: Any) -> Overlay:
    return bits_overlay(compiled.ir)


def _time(compiled: Compiled, feeds: Data, threads: int | None, **settings: Any) -> Overlay:
    if "qdq" not in compiled.artifacts:
        raise UsageError("no times are known: the pipeline makes no QDQ model, which 'insert-qdq' would")
    runs = [next(iter(feeds))] * (1 + _TIMED)
    found = check(compiled.model, "ort-cpu", runs, base_dir=compiled.ir.base_dir, threads=threads or 1)
    return time_overlay(compiled.ir, {op.name: op.seconds for op in found.ops}, found.seconds)


def _error(compiled: Compiled, feeds: Data, progress: Progress, **settings: Any) -> Overlay:
    context = PassContext(progress=progress)
    track = partial(context.track, description="comparing tensors", total=feeds.length)
    found = layer_errors(compiled, feeds, track=track, **settings)
    return error_overlay(
        compiled.ir, _worst((one.op, one.isolated_db) for one in found.layers if one.op is not None)
    )


def _sensitivity(compiled: Compiled, feeds: Data, **settings: Any) -> Overlay:
    found = measure_sensitivity(compiled, feeds, **settings)
    harms = _worst((tensor, one.alone_db) for one in found.quantizers for tensor in one.tensors)
    return sensitivity_overlay(compiled.ir, harms)


def _worst(errors: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    """The lowest by name."""
    found: dict[str, float] = {}
    for name, error in errors:
        found[name] = min(error, found.get(name, error))
    return found


_WAYS: Mapping[str, Callable[..., Overlay]] = {
    "bits": _bits,
    "error": _error,
    "sensitivity": _sensitivity,
    "time": _time,
}
OVERLAYS: Sequence[str] = tuple(_WAYS)
