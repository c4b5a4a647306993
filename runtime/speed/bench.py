"""What models cost: time, memory and size, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qc.ir.base.shown import Shown
from qc.ir.errors import UsageError
from qc.ir.onnx.load import load_model, model_folder
from qc.ir.onnx.save import external_files

from ..data.inputs import model_inputs
from ..data.load import DataSource, load_data
from ..native.library import QC_DOMAIN
from ..sessions.open import check_interface
from ..sessions.providers import choose_provider
from ..sessions.runnable import OpenModel, Runnable
from .footprint import peak_memory
from .latency import LATENCY_SECONDS, Latency, pinned_processors, time_in_turns


@dataclass(frozen=True)
class ModelCost:
    """What one model costs.

    Attributes:
        name: the name that it was given.
        latency: time per run; its ratio is to the first model.
        peak_memory: the bytes by which opening and running it raises the peak of a process; None where the
            operating system does not tell, and on a device or GPU, whose memory it does not count.
        file_size: bytes of the model file together with the files of its external data; None on a device, for
            which it is compiled.
    """

    name: str
    latency: Latency
    peak_memory: int | None
    file_size: int | None


@dataclass(frozen=True)
class Benchmark(Shown):
    """The result of :func:`bench`.

    Attributes:
        rounds: how often each model was timed.
        device: where the models ran, ``"cpu"`` or ``"cuda"``.
        threads: threads within an op.
        pinned: whether the threads were kept on as many processors.
        models: in the order they were given.
    """

    rounds: int
    device: str
    threads: int
    pinned: bool
    models: tuple[ModelCost, ...]


def bench(
    models: Mapping[str, Path],
    data: DataSource,
    *,
    threads: int = 1,
    seconds: float = LATENCY_SECONDS,
    max_rounds: int = 1000,
    provider: str = "cpu",
    others: Mapping[str, Callable[[], Runnable]] | None = None,
    track: Callable[[Sequence[str]], Iterable[str]] = iter,
) -> Benchmark:
    """Measures models on the first feed of some data.

    All models are opened in this process and timed in turns, with threads pinned to processors where that is
    possible. Then, on the CPU, the memory of each is measured in a process of its own, see
    :mod:`qc.runtime.speed.footprint`.

    Args:
        models: files of models with the same inputs and outputs, by name; the first is the reference.
        data: anything that :func:`qc.runtime.load_data` takes.
        threads: threads within an op, the same for all models.
        seconds: time to spend on timing, above 0; at least 5 rounds are run.
        max_rounds: rounds after which timing ends, even if there is time left.
        provider: where the models run, the same for all; see :func:`open_session`.
        others: what opens further forms of the model, by name, such as one on a device; they are timed only.
        track: gives back the names of the models, one after the other; called when their memory is measured.

    Raises:
        UsageError: there is no model, no time, or no provider of that name.
        QcError: CUDA cannot be used here.
        ModelError: a model does not load or run, or has other inputs or outputs than the first.
        DataError: the data is empty or does not fit the first model.
    """
    if not models or seconds <= 0:
        raise UsageError("a benchmark needs a model and more than 0 seconds")
    device = choose_provider(provider)
    reference = load_model(next(iter(models.values())))
    feed = next(iter(load_data(data, model_inputs(reference))))
    with pinned_processors(threads) as pinned:
        opened = _open(models, others or {}, threads, device)
        timing = time_in_turns(list(opened.values()), feed, seconds, max_rounds)
    latencies = {name: found for name, found in zip(opened, timing.latencies, strict=True) if found}
    del opened
    costs = []
    for name in track(list(models)):
        path = models[name]
        proto = load_model(path)
        needs_qc = any(entry.domain == QC_DOMAIN for entry in proto.opset_import)
        files = [path, *external_files(proto, model_folder(path))]
        del proto
        memory = peak_memory(path, feed, threads=threads, needs_qc=needs_qc) if device == "cpu" else None
        costs.append(ModelCost(name, latencies[name], memory, sum(file.stat().st_size for file in files)))
    costs += [ModelCost(name, latencies[name], None, None) for name in others or {}]
    return Benchmark(timing.rounds, device, threads, pinned, tuple(costs))


def _open(
    models: Mapping[str, Path], others: Mapping[str, Callable[[], Runnable]], threads: int, device: str
) -> dict[str, Runnable]:
    """All forms, ready to run."""
    opened = {name: OpenModel(path, threads=threads, provider=device) for name, path in models.items()}
    first, *_ = opened.values()
    for name, one in opened.items():
        check_interface(first.session, one.session, name)
    return {**opened, **{name: make() for name, make in others.items()}}
