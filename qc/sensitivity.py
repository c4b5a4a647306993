"""How much each quantizer harms the outputs: each on alone, and each off alone, in one session."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from qc.ir.base.shown import Shown
from qc.ir.errors import DataError, UsageError
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.passes import Progress
from qc.runtime import (
    Data,
    Metric,
    SimulatedQuantizer,
    Simulation,
    Spread,
    harm,
    load_data,
    parse_metric,
)
from qc.runtime.evaluation.judge import judge
from qc.runtime.evaluation.simulation import OFF

from .compiler.compiled import Compiled, check_compiled
from .compiler.given import check_services
from .options import check_number
from .progress import progress_here
from .rendering.table import Column, Table, text
from .rendering.words import count, decibels
from .saturation import SaturationCounter

_LOOKED_AT = 256
_LEAST_SAMPLES = 4
_CLOSE_DECIBELS = 1.0


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
class Sensitivity(Shown):
    """The result of :func:`measure_sensitivity`.

    SQNR is that of the worst float output, ``10 log10(sum(x^2) / sum((x - y)^2))`` over all feeds, where x is
    the float model. Biases are those of the float model, too: what a corrected bias takes back is the error
    of all quantizers, and would be one itself where these are off.

    Attributes:
        feeds: how many feeds were run.
        whole_db: SQNR with all quantizers on.
        quantizers: the most harmful alone first.
        saturated: a sentence for each input that lies beyond its grid.
        is_corrected: whether the result has corrected biases, which are left out of all of this.
    """

    feeds: int
    whole_db: float
    quantizers: tuple[QuantizerSensitivity, ...]
    saturated: tuple[str, ...] = ()
    is_corrected: bool = False


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
        samples: run this many feeds from all over the data at most; default: as few of 256 as give the SQNR
            with all quantizers on within 1 dB of that on all of these.
        bits: give all quantizers with integer formats this width instead of their own.
        threads: threads of the runtime; None for one per physical core.
        device: where the simulation runs, as for :func:`qc.compile`.
        progress: where it shows how far it is.

    Raises:
        UsageError: ``compiled`` is none, nothing can be turned on and off, no output is a float tensor,
            ``samples`` or ``threads`` is below 1, or there is no such device.
        QcError: CUDA is asked for but cannot be used.
        DataError: the data does not fit the model, there is none, or on all of it outputs have other lengths
            than those of the float model.
    """
    check_compiled(compiled, "measure_sensitivity")
    check_services({"progress": progress})
    if samples is not None:
        check_number("samples", samples, 1, sys.maxsize)
    whole = compiled.open_simulation(settable_weights=True, float_biases=True, threads=threads, device=device)
    if not whole.quantizers:
        raise UsageError(
            "no quantizer can be turned on and off: the pipeline places none, or on biases alone"
        )
    if bits is not None:
        whole = whole.with_encodings(dict.fromkeys(_integers(whole), bits))
    metric = parse_metric("sqnr")
    metric.check(compiled.ir.origin)
    feeds = Spread(load_data(data, compiled.inputs))
    samples = _enough(whole, metric, feeds) if samples is None else samples
    runs = 1 + 2 * len(whole.quantizers)
    length = samples if feeds.length is None else min(feeds.length, samples)
    task = (progress or progress_here()).start(
        "turning quantizers on and off", None if length is None else length * runs
    )
    groups = {name: [name] for name in whole.quantizers}
    saturation = SaturationCounter(compiled.ir)
    looked_at = saturation.watch(islice(feeds, samples))
    found = harm(whole, groups, metric, looked_at, alone=True, on_run=task.advance)
    task.finish()
    if math.isnan(found.whole):
        raise DataError(
            f"nothing can be compared on {count(found.feeds, 'sample')}: outputs have other lengths there "
            "than those of the float model, as these depend on the data; give other samples"
        )
    rows = [
        QuantizerSensitivity(name, one.tensors, _format(one), found.alone[name], found.changed[name])
        for name, one in whole.quantizers.items()
    ]
    ranked = tuple(sorted(rows, key=lambda row: row.alone_db))
    notes = tuple(saturation.notes())
    return Sensitivity(found.feeds, found.whole, ranked, notes, _has_corrected_biases(compiled.ir))


def _has_corrected_biases(ir: Model) -> bool:
    values = (value for graph in ir.graphs() for value in graph.values())
    return any(value.float_const is not None for value in values)


def sensitivity_heading(result: Sensitivity, shown: int) -> str:
    """What is above a table of the worst quantizers."""
    before = " before biases are corrected" if result.is_corrected else ""
    return (
        f"on {count(result.feeds, 'sample')}, all quantizers on have {decibels(result.whole_db)}{before}; "
        f"the {shown} of {count(len(result.quantizers), 'quantizer')} that harm most"
    )


def sensitivity_table(rows: Sequence[QuantizerSensitivity]) -> Table:
    """A line for each quantizer."""
    numbers = (Column("alone", decibels), Column("without", decibels))
    table = Table((text(""), text("tensor"), text("format"), *numbers))
    for row in rows:
        table.add(row.quantizer, ", ".join(row.tensors), row.format, row.alone_db, row.without_db)
    return table


def _enough(whole: Simulation, metric: Metric, data: Data) -> int:
    """How many of the feeds tell the metric about as well as all that are looked at."""
    off = whole.with_encodings(dict.fromkeys(whole.quantizers, OFF))
    tally = metric.start()
    values: list[float] = []

    def note() -> None:
        values.append(tally.value())

    judge(off, [(whole, [tally])], islice(data, _LOOKED_AT), on_run=note)
    apart = [
        number
        for number, value in enumerate(values, 1)
        if value != values[-1] and not abs(value - values[-1]) <= _CLOSE_DECIBELS
    ]
    return min(max([*apart, _LEAST_SAMPLES - 1]) + 1, len(values))


def _integers(simulation: Simulation) -> list[str]:
    """The quantizers with integer formats."""
    return [
        name
        for name, held in simulation.quantizers.items()
        if held.encoding is not None and isinstance(held.encoding.spec.format, IntFormat)
    ]


def _format(quantizer: SimulatedQuantizer) -> str:
    return str(quantizer.encoding.spec) if quantizer.encoding is not None else OFF
