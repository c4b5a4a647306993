"""What ``qc auto`` finds for real models with labels, beside plain ``qc`` and the tools of others.

    python benches/auto.py                                  all tasks, W8A8 within 1 % and W4A8 within 2 %
    python benches/auto.py digits magika --weights 4        some
    python benches/auto.py --nncf-python NNCF/bin/python --aimet-python AIMET/bin/python

The models, their data and ``score.py`` lie in a folder of their own (``--models``), as for ``accuracy.py``.
``qc auto`` sees the calibration data alone and judges by agreement with the float model; the scores are those
of the tasks, on data that it did not see. Seconds are by the clock, for the whole command. What is done in
integers is what ONNX Runtime runs so, by multiplications, as ``qc check`` counts them; the latency is beside
float, one thread, in turns. Rows are kept in ``benches/results/auto.json`` when they are measured, and used
again; ``--fresh`` measures anew. Ends with exit code 1 where ``qc auto`` misses a limit.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import onnx
from models.labelled import RESULTS, Cache, evaluate, load_tasks, models_option
from rich.console import Console
from rich.table import Table
from rivals import nncf_process
from rivals.onnxruntime_static import prepare, quantize_ort
from rounding import beside

import qc
from qc.auto.trial import weight_bits
from qc.runtime import OpenModel, load_data, model_inputs
from qc.runtime.speed.latency import pinned_processors, time_in_turns

CACHE = RESULTS / "auto.json"
MAX_DROP = {8: 0.01, 4: 0.02}
MAX_GROWTH = {8: 0.03, 4: 0.10}  # of a perplexity
LEAST_SHARE = 0.95
MOST_BITS = 4.2  # of a weight: 5 % have 8 bits, the others 4
MINUTES = 10.0
TIMED_SECONDS, TIMED_ROUNDS = 2.0, 200
COLUMNS = ("task", "bits", "method", "score", "lost", "in integers", "bits of weights", "latency", "seconds")


@dataclass(frozen=True)
class Row:
    """What a method makes of a model; None for what it does not have.

    Attributes:
        score: of the task.
        seconds: that the method took.
        integers: the share of the multiplications that ONNX Runtime does in integers.
        bits: of a weight, on average.
        latency: beside float.
        note: what the method says of it, or why there is no score.
    """

    score: float | None = None
    seconds: float | None = None
    integers: float | None = None
    bits: float | None = None
    latency: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Made:
    """A quantized model."""

    model: onnx.ModelProto
    seconds: float
    bits: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Job:
    """A task, and what is asked for."""

    task: Any
    path: Path
    weights: int
    minutes: float

    @property
    def max_drop(self) -> float:
        """The share of the score that may be lost."""
        return (MAX_GROWTH if self.task.metric == "perplexity" else MAX_DROP)[self.weights]

    def plain(self) -> Made:
        """What ``qc`` makes of it."""
        start = time.perf_counter()
        made = qc.compile(self.path, f"w{self.weights}a8", data=self.task.calib)
        return Made(made.model, time.perf_counter() - start, weight_bits(made.ir)[0])

    def auto(self) -> Made:
        """What ``qc auto`` finds."""
        start = time.perf_counter()
        found = qc.find_recipe(
            self.path,
            data=self.task.calib,
            max_drop=f"{self.max_drop:.0%}",
            weights=self.weights,
            minutes=self.minutes,
            on_trial=lambda trial: print("  ", trial.record(), flush=True),
        )
        trials = f"{len(found.trials)} trial{'' if len(found.trials) == 1 else 's'}"
        note = f"{found.best.recipe.name} ({trials}{'' if found.is_accepted else f', {found.ended}'})"
        return Made(found.compiled.model, time.perf_counter() - start, found.best.weight_bits, note)

    def onnxruntime(self) -> Made:
        """What ``quantize_static`` of all operators makes of it."""
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "quantized.onnx")
            start = time.perf_counter()
            quantize_ort(self.task, prepare(self.path, Path(folder), True), output, None)
            return Made(onnx.load(output), time.perf_counter() - start)

    def nncf(self, python: str, max_drop: float) -> Made:
        """What NNCF makes of it, maybe with control of the accuracy."""
        feeds = load_data(self.task.calib, model_inputs(onnx.load(self.path)))
        with tempfile.TemporaryDirectory() as folder:
            model = prepare(self.path, Path(folder), True)
            return Made(*nncf_process.quantize(python, model, feeds, max_drop=max_drop, minutes=self.minutes))

    def aimet(self, python: str) -> Row:
        """The score of AIMET's simulation with AdaRound."""
        score, seconds = beside(python, self.task, self.path, f"w{self.weights}a8", "adaround", "1000")
        return Row(note=score) if not seconds else Row(float(score), float(seconds))

    def row(self, make: Callable[[], Made]) -> Row:
        """What a method makes, measured; or why there is nothing."""
        try:
            made = make()
            score = evaluate(self.task, made.model)
        except Exception as error:  # tools of others end in errors of many kinds
            words = " ".join(str(error).split())
            return Row(note=f"{type(error).__name__}: {words}"[:160])
        return Row(
            score, made.seconds, self.integers(made.model), made.bits, self.latency(made.model), made.note
        )

    def integers(self, model: onnx.ModelProto) -> float | None:
        """The share of the multiplications that are done in integers."""
        feed = next(iter(load_data(self.task.calib, model_inputs(model))))
        try:
            return qc.check(model, feeds=[feed]).share
        except qc.QcError:
            return None

    def latency(self, model: onnx.ModelProto) -> float:
        """The time of a run, beside float."""
        feed = next(iter(load_data(self.task.calib, model_inputs(model))))
        with pinned_processors(1):
            opened = [OpenModel(self.path, threads=1), OpenModel(model, threads=1)]
            timing = time_in_turns(opened, feed, TIMED_SECONDS, TIMED_ROUNDS)
        assert timing.latencies[1] is not None
        return timing.latencies[1].ratio


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[TASK]...", nargs=-1)
@click.option("--weights", "widths", type=click.Choice(["8", "4"]), multiple=True, help="These bits alone.")
@click.option("--method", "methods", multiple=True, help="These methods alone, such as auto.")
@click.option("--minutes", default=MINUTES, show_default=True)
@click.option("--nncf-python", metavar="PYTHON", help="A Python that has NNCF, to show it beside.")
@click.option("--aimet-python", metavar="PYTHON", help="A Python that has AIMET, to show it beside.")
@click.option("--fresh", is_flag=True, help="Measure these rows anew.")
@models_option
def main(
    names: tuple[str, ...],
    widths: tuple[str, ...],
    methods: tuple[str, ...],
    minutes: float,
    nncf_python: str | None,
    aimet_python: str | None,
    fresh: bool,
    models: Path,
) -> None:
    """Prints one row per task, width and method."""
    tasks, cache = load_tasks(models), Cache(CACHE, fresh=False)
    table, is_missed = Table(*COLUMNS, "note"), False
    for name in names or tasks:
        task = tasks[name]()
        path = models / "models" / task.model
        if not path.is_file():
            print(f"{name}: {task.model} is missing")
            continue
        expected = cache.get(f"{name} float", lambda task=task, path=path: evaluate(task, path))
        table.add_row(name, "", "float", f"{expected:.4f}")
        for weights in map(int, widths or ("8", "4")):
            job = Job(task, path, weights, minutes)
            for method, measure in job_methods(job, nncf_python, aimet_python).items():
                key = f"{name} w{weights} {method}"
                if methods and method not in methods:
                    continue
                if fresh:
                    cache.entries.pop(key, None)
                row = Row(**cache.get(key, lambda measure=measure: asdict(measure())))
                shown = (name, f"w{weights}a8", method, *cells(row, expected, task.metric))
                table.add_row(*shown, row.note)
                print(*shown, row.note, sep=" | ", flush=True)
                is_missed |= method == "auto" and misses(row, expected, job)
    Console(width=200).print(table)
    sys.exit(1 if is_missed else 0)


def job_methods(
    job: Job, nncf_python: str | None, aimet_python: str | None
) -> Mapping[str, Callable[[], Row]]:
    """What is measured, by name."""
    found: dict[str, Callable[[], Row]] = {
        "qc": partial(job.row, job.plain),
        "auto": partial(job.row, job.auto),
    }
    if job.weights == 8:
        found["ONNX Runtime"] = partial(job.row, job.onnxruntime)
    if nncf_python and job.weights == 8:
        found["NNCF"] = partial(job.row, partial(job.nncf, nncf_python, 0.0))
        found["NNCF, accuracy control"] = partial(job.row, partial(job.nncf, nncf_python, job.max_drop))
    if aimet_python:
        found["AIMET AdaRound"] = partial(job.aimet, aimet_python)
    return found


def lost(score: float, expected: float, metric: str) -> float:
    """The share of the float model's score that is lost; of a perplexity, by which it grows."""
    return score / expected - 1 if metric == "perplexity" else 1 - score / expected


def cells(row: Row, expected: float, metric: str) -> list[str]:
    """A row in words."""
    share = None if row.score is None else lost(row.score, expected, metric)
    numbers = (
        ("{:.4f}", row.score),
        ("{:+.1%}", share),
        ("{:.1%}", row.integers),
        ("{:.2f}", row.bits),
        ("{:.2f}", row.latency),
        ("{:.0f}", row.seconds),
    )
    return ["" if number is None else form.format(number) for form, number in numbers]


def misses(row: Row, expected: float, job: Job) -> bool:
    """Whether a row loses more than it may, or has too much in float."""
    if row.score is None or row.bits is None:
        return True
    is_float = row.integers is None or row.integers < LEAST_SHARE
    is_wide = is_float if job.weights == 8 else row.bits > MOST_BITS
    return is_wide or lost(row.score, expected, job.task.metric) > job.max_drop


if __name__ == "__main__":
    main()
