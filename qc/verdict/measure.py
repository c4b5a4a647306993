"""What a compilation made beside the float model, on a few samples and in a few seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from onnx import ModelProto

from qc.auto.agreement import agreement
from qc.checking import Check, check, runs_here
from qc.compiler.compiled import Compiled, check_compiled
from qc.ir.base.files import temporary_folder
from qc.ir.base.shown import Shown
from qc.ir.errors import QcError
from qc.ir.executor import Feed
from qc.ir.facts.op_traits import is_random
from qc.ir.onnx.save import external_files, save_model
from qc.ir.quant.formats import IntFormat
from qc.passes import parse_pipeline
from qc.passes.simplify.fix_inputs import FixInputs
from qc.passes.simplify.fix_shapes import FixShapes
from qc.processor import saturates_here
from qc.reading import runnable_form, with_fixed_inputs
from qc.runtime import Data, InputInfo, Latency, OpenModel, Spread, load_data, model_inputs, parse_metric
from qc.runtime.metrics.metric import Sample
from qc.runtime.native.library import QC_DOMAIN
from qc.runtime.speed.footprint import peak_memory
from qc.runtime.speed.latency import pinned_processors, time_in_turns
from qc.saturation import SaturationCounter

from .growth import cause_of_growth
from .lengths import Sequences, Shortened
from .samples import LEAST_SAMPLES, Score, enough_samples, is_incomparable, not_finite_in

_ROUNDS = 50
_LEAST_ROUNDS = 6  # and the one that warms up
_TIMING_SHARE = 0.2  # of the seconds
_CHECK_RUNS = 4  # the first of which is not counted


@dataclass(frozen=True)
class Accuracy:
    """How close the outputs are to those of the float model.

    Attributes:
        samples: how many were looked at.
        sqnr_db: the signal to quantization noise ratio at the worst output, in dB; infinite if equal, None
            without floats or where they are NaN or infinite.
        agreement: the metric that ``qc auto`` would choose, 1 for the float model; None if it has no value.
        metric: its name.
        not_finite: which of the two, ``result`` or ``float model``, has NaN or infinite outputs where the
            other has not; empty if neither.
        left_out: on how many samples an output has other lengths than that of the float model, as these may
            depend on the data, and counts for nothing; or all outputs are empty.
    """

    samples: int
    sqnr_db: float | None
    agreement: float | None
    metric: str
    not_finite: str = ""
    left_out: int = 0


@dataclass(frozen=True)
class Verdict(Shown):
    """What a result keeps and costs beside the float model.

    Attributes:
        accuracy: None without data that means something, or if the result does not run here.
        sizes: bytes of the float model and of the result; None if the result is not what a device runs.
        latency: of the result on one thread; its ratio is to the float model. None if it was not timed.
        memory: the bytes by which each of the two raises the peak of a process; None if not measured.
        check: what runs in integers; None if it was not looked at.
        growth: why the result is larger, in words; empty if it is not.
        saturated: a sentence for each input that lies beyond its grid.
        not_compared: why there is no accuracy although there is data, in words; empty if there is.
        is_refused: whether that is as the runtime that the result is for runs the float model, and not it.
        unmeasured: why times and memory are missing, in words; empty if they are not.
        wider_on: the target, if it has activations of 16 bits and some have fewer; empty otherwise.
        unsaturated: the target for this processor, if sums of products saturate on it; empty otherwise.
        random: an op that makes other numbers in every run, in float as well; empty for none.
        shortened: what is left at a shorter length, if all sequences have the same; None if not measured.
    """

    accuracy: Accuracy | None = None
    sizes: tuple[int, int] | None = None
    latency: Latency | None = None
    memory: tuple[int, int] | None = None
    check: Check | None = None
    growth: str = ""
    saturated: tuple[str, ...] = ()
    not_compared: str = ""
    is_refused: bool = False
    unmeasured: str = ""
    wider_on: str = ""
    unsaturated: str = ""
    random: str = ""
    shortened: Shortened | None = None


def measure_verdict(
    compiled: Compiled,
    data: object,
    *,
    is_meaningful: bool = True,
    seconds: float = 5.0,
    with_costs: bool = True,
) -> Verdict:
    """Compares a result with the float model, on 8 to 64 samples and on one thread.

    They are from all over the data, and the fewer the more a model multiplies.

    Outputs are those of the QDQ model where ONNX Runtime on this machine is the target, of the simulation
    elsewhere, which makes the codes of the target's device where its arithmetic is known. Times and memory
    are measured in the first case alone. Nothing is begun after ``seconds``, but one sample is looked at in
    any case.

    Args:
        compiled: what a pipeline made.
        data: as for :func:`qc.compile`; None for none, where only sizes are known.
        is_meaningful: whether outputs on the data tell of accuracy, which those on random data do not.
        seconds: after these no further part begins.
        with_costs: whether times, sizes, memory and what runs in integers are wanted beside the accuracy.

    Raises:
        UsageError: ``compiled`` is none.
        DataError: the data does not fit the model.
    """
    check_compiled(compiled, "measure_verdict")
    if not compiled.artifacts:
        return Verdict()
    found = _Measuring(compiled, time.monotonic() + seconds, seconds, with_costs)
    if data is not None:
        feeds = load_data(data, compiled.inputs)
        try:
            found.run(feeds, is_meaningful)
        except QcError as error:  # another device may run what ONNX Runtime does not
            refused = isinstance(error, _ResultError) and found.runs_here
            found.verdict = replace(found.verdict, not_compared=str(error), is_refused=refused)
    if with_costs and "qdq" in compiled.artifacts:
        found.weigh()
    return found.verdict


def _float_source(compiled: Compiled) -> ModelProto | str | Path:
    """The model that was compiled, with the values that inputs were given for good."""
    source: ModelProto | Path = compiled.source or compiled.ir.origin
    texts = [step.text for step in compiled.report.steps if step.name in (FixShapes.name, FixInputs.name)]
    passes = parse_pipeline(",".join(texts)).passes() if texts else []
    return with_fixed_inputs(source, compiled.ir.base_dir, passes)


class _ResultError(QcError):
    """The result cannot be opened or run, on what the float model takes."""


@contextmanager
def _of_result() -> Iterator[None]:
    """A block that does something with the result alone."""
    try:
        yield
    except QcError as error:
        raise _ResultError(str(error)) from error


class _Measuring:
    """A verdict while its parts are measured."""

    def __init__(self, compiled: Compiled, end: float, seconds: float, with_costs: bool) -> None:
        unsaturated, random = _unsaturated(compiled), _random(compiled)
        self.verdict = Verdict(wider_on=_wider_on(compiled), unsaturated=unsaturated, random=random)
        self._with_costs = with_costs
        self._compiled = compiled
        self._base_dir = compiled.ir.base_dir
        self._end, self._seconds = end, seconds
        self.runs_here = "qdq" in compiled.artifacts and runs_here(compiled.target)
        self._source = _float_source(compiled)
        self._taken = 0.0  # seconds for the last sample
        self._feed: Feed | None = None  # the first, where costs are wanted and there is time

    def run(self, data: Data, is_meaningful: bool) -> None:
        """Runs both models on samples, and times them."""
        made = self._compiled.model if self.runs_here else self._compiled.device_simulation
        models = [OpenModel(runnable_form(self._source), base_dir=self._base_dir, threads=1)]
        with _of_result():
            models.append(OpenModel(made, base_dir=self._base_dir, threads=1))
        run = self._samples(models, Spread(data))
        first = list(islice(run, LEAST_SAMPLES if is_meaningful else 1))
        if is_meaningful:
            most = enough_samples(self._compiled.ir.origin, first[0].feed)
            sequences = Sequences(model_inputs(made))
            self._compare(first, islice(run, most - len(first)), data.inputs, sequences)
            self._shorten(models, first, sequences)
        if not (self.runs_here and self._with_costs):
            return
        if _LEAST_ROUNDS * self._taken > self._end - time.monotonic():
            self._leave_out(f"a run of both models takes {self._taken:.1f} s")
            return
        self._feed = first[0].feed
        with pinned_processors(1):
            timing = time_in_turns(models, self._feed, _TIMING_SHARE * self._seconds, _ROUNDS)
        self.verdict = replace(self.verdict, latency=timing.latencies[1])

    def _compare(
        self,
        first: list[Sample],
        more: Iterable[Sample],
        inputs: Sequence[InputInfo],
        sequences: Sequences,
    ) -> None:
        """How close the outputs are; only those of the first samples are held at once."""
        metric = agreement([sample.reference for sample in first], inputs).metric
        sqnr, agreed = Score(parse_metric("sqnr")), Score(metric)
        saturation = SaturationCounter(self._compiled.ir, is_calibration=True)
        count, left_out, not_finite = 0, 0, ""
        for sample in chain(first, more):
            count += 1
            left_out += is_incomparable(sample)
            for score in (sqnr, agreed):
                score.add(sample)
            not_finite = not_finite or not_finite_in(sample)
            saturation.add(sample.feed)
            sequences.add(sample.feed)
        self.verdict = replace(
            self.verdict,
            accuracy=Accuracy(count, sqnr.value(), agreed.value(), metric.name, not_finite, left_out),
            saturated=tuple(saturation.notes()),
        )

    def _shorten(self, models: Sequence[OpenModel], first: list[Sample], sequences: Sequences) -> None:
        """How close the outputs are at a length that no sample has, where the models take it."""
        taken = self._taken
        with suppress(QcError):
            beginnings = sequences.beginnings(sample.feed for sample in first)
            shortened = sequences.judged(first, self._samples(models, beginnings))
            self.verdict = replace(self.verdict, shortened=shortened)
        self._taken = taken  # which is of a whole sample

    def weigh(self) -> None:
        """Measures sizes and memory of both models, and looks at what runs in integers."""
        compiled, made = self._compiled, self._compiled.model
        with temporary_folder() as folder:
            path = folder / "made.onnx"
            files = save_model(made, path, self._base_dir)
            origin = compiled.ir.origin
            outside = sum(file.stat().st_size for file in external_files(origin, self._base_dir))
            inside = compiled.source.stat().st_size if compiled.source is not None else origin.ByteSize()
            sizes = (inside + outside, sum(file.stat().st_size for file in files))
            growth = cause_of_growth(origin, made) if sizes[1] > sizes[0] else ""
            self.verdict = replace(self.verdict, sizes=sizes, growth=growth)
            if self._feed is None or self._is_late("what runs in integers"):
                return
            with suppress(QcError):
                feeds = [self._feed] * _CHECK_RUNS
                checked = check(made, compiled.target, feeds, base_dir=self._base_dir)
                self.verdict = replace(self.verdict, check=checked)
            if self._is_late("peak memory"):
                return
            with suppress(QcError):
                self._measure_memory(folder, path, self._feed)

    def _measure_memory(self, folder: Path, made: Path, feed: Feed) -> None:
        source = runnable_form(self._source)
        if isinstance(source, ModelProto):
            save_model(source, folder / "float.onnx", self._base_dir)
            source = folder / "float.onnx"
        needs_qc = any(entry.domain == QC_DOMAIN for entry in self._compiled.model.opset_import)
        before = peak_memory(Path(source), feed, threads=1, needs_qc=False)
        after = peak_memory(made, feed, threads=1, needs_qc=needs_qc)
        if before and after is not None:
            self.verdict = replace(self.verdict, memory=(before, after))

    def _samples(self, models: Sequence[OpenModel], feeds: Iterable[Feed]) -> Iterator[Sample]:
        """What both give for samples, the first in any case, as long as there is time."""
        for index, feed in enumerate(feeds):
            begin = time.monotonic()
            if index and begin + self._taken > self._end - self._seconds / 2:
                return
            reference = models[0].run(feed)
            with _of_result():
                made = models[1].run(feed)
            self._taken = time.monotonic() - begin
            yield Sample(index, made, reference, feed, None)

    def _is_late(self, part: str) -> bool:
        late = time.monotonic() > self._end
        if late:
            self._leave_out(f"{part} left out after {self._seconds:.0f} s")
        return late

    def _leave_out(self, why: str) -> None:
        self.verdict = replace(self.verdict, unmeasured=why)


def _unsaturated(compiled: Compiled) -> str:
    """The target for this processor, if sums of products saturate on it."""
    saturates = runs_here(compiled.target) and saturates_here(compiled.ir, compiled.target)
    return compiled.target.without_vnni if saturates else ""


def _random(compiled: Compiled) -> str:
    """An op that makes other numbers in every run; with a seed, those of two models are the same."""
    ops = (op for graph in compiled.ir.graphs() for op in graph.ops())
    return next((op.label for op in ops if is_random(op) and op.attribute("seed") is None), "")


def _wider_on(compiled: Compiled) -> str:
    """The target, if it runs activations of more bits than some of these have."""
    specs = [
        quantizer.spec
        for quantizer in compiled.ir.quant.quantizers()
        if any(site.value.original.const is None for site in compiled.ir.quant.sites_of(quantizer))
    ]
    narrow = any(isinstance(spec.format, IntFormat) and spec.format.bits <= 8 for spec in specs)
    return compiled.target.name if narrow and compiled.target.activation.wider else ""
