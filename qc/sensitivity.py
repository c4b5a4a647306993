"""How much each quantizer harms the outputs: each on alone, and each off alone, in one session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from qc.ir.errors import UsageError
from qc.ir.quant.formats import IntFormat
from qc.passes import NullProgress, Progress
from qc.runtime import Data, load_data, model_inputs
from qc.runtime.evaluation.scores import Sums

from .compiled import Compiled
from .simulation import OFF, Setting, Simulation


@dataclass(frozen=True)
class QuantizerSensitivity:
    """What one quantizer does to the outputs.

    Attributes:
        quantizer: its name, such as ``q3``.
        tensors: the tensors that are rounded to its grid.
        format: its format in words.
        alone_db: SQNR of the outputs while all other quantizers are off; infinite if it changes nothing.
        without_db: SQNR of the outputs while it is off and all others are on.
    """

    quantizer: str
    tensors: tuple[str, ...]
    format: str
    alone_db: float
    without_db: float


@dataclass(frozen=True)
class Sensitivity:
    """The result of :func:`measure_sensitivity`.

    SQNR is that of the worst float output, ``10 log10(sum(x^2) / sum((x - y)^2))`` over all feeds, where x is
    the simulation with all quantizers off.

    Attributes:
        feeds: how many feeds were run.
        whole_db: SQNR with all quantizers on.
        quantizers: the most harmful alone first.
    """

    feeds: int
    whole_db: float
    quantizers: tuple[QuantizerSensitivity, ...]


def measure_sensitivity(
    compiled: Compiled,
    data: object,
    *,
    samples: int | None = None,
    bits: int | None = None,
    threads: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Sensitivity:
    """Turns every quantizer of a compiled model on alone, and off alone, and compares the outputs.

    Activations and weights alike; biases, and weights on shifted grids, stay as the model has them. All runs
    share one session, which rounds the weights at every run: for n quantizers it runs 2 n + 2 times per feed.

    Args:
        compiled: a model whose quantizers have numbers.
        data: anything :func:`qc.runtime.load_data` takes.
        samples: run this many feeds at most.
        bits: give all quantizers with integer formats this width instead of their own.
        threads: threads of the runtime; None for one per physical core.
        device: where the simulation runs, as for :func:`qc.compile`.
        progress: where it shows how far it is.

    Raises:
        UsageError: nothing can be turned on and off, no output is a float tensor, or there is no such device.
        QcError: CUDA is asked for but cannot be used.
        DataError: the data does not fit the model, or there is none.
    """
    whole = compiled.open_simulation(settable_weights=True, threads=threads, device=device)
    if not whole.quantizers:
        raise UsageError(
            "no quantizer can be turned on and off: the pipeline places none, or on biases alone"
        )
    if bits is not None:
        whole = whole.with_encodings(_integers(whole, bits))
    none = whole.with_encodings(dict.fromkeys(whole.quantizers, OFF))
    variants = [whole]
    for name, quantizer in whole.quantizers.items():
        assert quantizer.encoding is not None
        variants += [none.with_encodings({name: quantizer.encoding}), whole.with_encodings({name: OFF})]
    feeds = load_data(data, model_inputs(compiled.ir.origin))
    count, noises = _compare(none, variants, feeds, samples, progress or NullProgress())
    rows = [
        QuantizerSensitivity(name, quantizer.tensors, str(spec), alone.sqnr_db, without.sqnr_db)
        for (name, quantizer), alone, without in zip(
            whole.quantizers.items(), noises[1::2], noises[2::2], strict=True
        )
        if (spec := quantizer.encoding and quantizer.encoding.spec)
    ]
    return Sensitivity(count, noises[0].sqnr_db, tuple(sorted(rows, key=lambda row: row.alone_db)))


def _integers(simulation: Simulation, bits: int) -> dict[str, Setting]:
    """A width for every quantizer with an integer format."""
    return {
        name: bits
        for name, quantizer in simulation.quantizers.items()
        if quantizer.encoding is not None and isinstance(quantizer.encoding.spec.format, IntFormat)
    }


def _compare(
    reference: Simulation,
    variants: Sequence[Simulation],
    feeds: Data,
    samples: int | None,
    progress: Progress,
) -> tuple[int, list[_Noise]]:
    """Runs the first feeds; their number, and how far each variant is from the reference."""
    length = samples if feeds.length is None else min(feeds.length, samples or feeds.length)
    task = progress.start("turning quantizers on and off", None if length is None else length * len(variants))
    noises = [_Noise() for _ in variants]
    count = 0
    for feed in islice(feeds, samples):
        expected = reference.run(feed)
        for variant, noise in zip(variants, noises, strict=True):
            noise.add(expected, variant.run(feed))
            task.advance()
        count += 1
    task.finish()
    if not noises[0].is_known:
        raise UsageError("no output of the model is a float tensor, so there is nothing to compare")
    return count, noises


class _Noise:
    """How far the outputs are from those of the reference, summed up over any number of feeds."""

    def __init__(self) -> None:
        self._sums: dict[str, Sums] = {}

    def add(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Adds the outputs of one feed."""
        for output, value in expected.items():
            self._sums.setdefault(output, Sums()).add_value(value, found[output], f"output '{output}'")

    @property
    def is_known(self) -> bool:
        """Whether any output is a float tensor."""
        return any(sums.floating for sums in self._sums.values())

    @property
    def sqnr_db(self) -> float:
        """Of the worst float output."""
        return min(sums.sqnr_db for sums in self._sums.values() if sums.floating)
