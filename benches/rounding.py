"""What each way to choose weights' codes and ranges does to real models with labels.

    python benches/rounding.py                                    all tasks that are not large, W4A8
    python benches/rounding.py cifar_resnet20 --form w3a16        some, in another form
    python benches/rounding.py cifar_resnet20 --method beam --method gptq --aimet-python AIMET/bin/python

The models, their data and ``score.py`` lie in a folder of their own (``--models``), as for ``accuracy.py``.
Weights have one scale for each output channel, at first of least squared error. Each row is a process of its
own: the score of the simulation, the median over layers of the error at their results, the seconds that the
compilation takes by the clock, and the most memory that the process takes. AIMET's AdaRound and SeqMSE are
shown for tasks whose feeds do not depend on earlier results.
"""

from __future__ import annotations

import multiprocessing
import re
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from accuracy import Feed, evaluate, load_tasks, models_option
from aimet_process import Aimet
from rich.console import Console
from rich.table import Table

import qc

TASKS = (
    "digits",
    "cifar_resnet20",
    "cifar_mobilenetv2",
    "cifar_vit",
    "magika",
    "silero_op15",
    "ocr_rec_v6t",
    "ocr_det_v4",
    "layout_picodet",
    "basic_pitch",
)
FORMS = {
    "w8a8": ("int8", "uint8"),
    "w4a8": ("int4", "uint8"),
    "w4a16": ("int4", "uint16"),
    "w3a16": ("int3", "uint16"),
}
METHODS = {"nearest": "", "ranges": "choose-weight-ranges,"} | {
    name: f"round-weights{{method={name}}},"
    for name in ("gptq", "qronos", "coordinate", "beam", "adaround", "best")
}
PASSES = (
    "inline-functions,convert-to-float32,hoist-loop-invariants,eliminate-identity,fold-constants,fold-batch-norms,"
    "share-constants,eliminate-dead-code,match-supergroups,insert-quantizers{{weight={} activation={}}},"
    "annotate-per-channel,tie-quantizers,calibrate{{method=mse weights=mse}},{}to-simulation"
)
PEERS = {"adaround": "1000", "seq_mse": "20"}


@dataclass(frozen=True)
class Row:
    """What a method does to a task; ``decibels`` is None where no layer is told of."""

    score: float
    decibels: float | None
    seconds: float
    megabytes: float


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[TASK]...", nargs=-1)
@click.option("--form", type=click.Choice(list(FORMS)), default="w4a8", show_default=True)
@click.option("--method", "methods", type=click.Choice(list(METHODS)), multiple=True, help="These alone.")
@click.option("--aimet-python", metavar="PYTHON", help="A Python that has AIMET, to show it beside.")
@models_option
def main(
    names: tuple[str, ...], form: str, methods: tuple[str, ...], aimet_python: str | None, models: Path
) -> None:
    """Prints one row per task and method."""
    table = Table("task", "method", "score", "layers, dB", "seconds", "MB")
    tasks = load_tasks(models)
    for name in names or TASKS:
        task = tasks[name]()
        table.add_row(name, "float", f"{evaluate(task, models / 'models' / task.model):.4f}")
        for method in methods or METHODS:
            row = apart(measure, models, name, form, method)
            decibels = "" if row.decibels is None else f"{row.decibels:.1f}"
            numbers = f"{row.score:.4f}", decibels, f"{row.seconds:.1f}", f"{row.megabytes:.0f}"
            table.add_row(name, method, *numbers)
            print(name, form, method, *numbers, flush=True)
        for peer, steps in PEERS.items() if aimet_python else ():
            score, seconds = beside(
                str(aimet_python), task, models / "models" / task.model, form, peer, steps
            )
            table.add_row(name, f"AIMET {peer}", score, "", seconds)
            print(name, form, f"AIMET {peer}", score, seconds, flush=True)
    Console().print(table)


def apart(work: Any, *arguments: Any) -> Row:
    """Runs in a process of its own, whose memory is not that of others."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return Row(*pool.submit(work, *arguments).result())


def measure(models: Path, name: str, form: str, method: str) -> tuple[Any, ...]:
    """A row, as a tuple."""
    task = load_tasks(models)[name]()
    passes = PASSES.format(*FORMS[form], METHODS[method])
    start = time.perf_counter()
    made = qc.compile(models / "models" / task.model, passes, data=task.calib, target="ort-cpu")
    seconds = time.perf_counter() - start
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    simulation = made.open_simulation()
    score = float(task.evaluate(lambda feed: list(simulation.run(feed).values()))[task.metric])
    reasons = (remark.reason for remark in made.ir.journal.remarks)
    found = [float(one[1]) for reason in reasons if (one := re.search(r"([-\d.]+) dB at the result", reason))]
    return astuple(Row(score, statistics.median(found) if found else None, seconds, megabytes))


def beside(python: str, task: Any, model: Path, form: str, method: str, steps: str) -> tuple[str, str]:
    """The score of AIMET's simulation after one of its methods, and its seconds; or why there is none."""
    weights, activations = (kind.lstrip("u") for kind in FORMS[form])
    seen: list[Feed] = []
    session = qc.runtime.OpenModel(model)

    def record(feed: Feed) -> list[np.ndarray]:
        seen.append({name: np.array(array) for name, array in feed.items()})
        return list(session.run(feed).values())

    task.evaluate(record)
    settings = {"config": "default", "parameters": weights, "activations": activations}
    with Aimet(python) as aimet:
        answer = aimet.ask(model, list(task.calib()), seen, **settings, method=method, steps=steps)
    if answer.error:
        return answer.error.partition(":")[0], ""
    answers = iter(zip(seen, answer.outputs, strict=True))

    def replay(feed: Feed) -> list[np.ndarray]:
        expected, outputs = next(answers)
        if any(not np.array_equal(feed[name], array) for name, array in expected.items()):
            raise ValueError("feeds follow from results")
        return list(outputs.values())

    try:
        return f"{float(task.evaluate(replay)[task.metric]):.4f}", f"{answer.seconds:.1f}"
    except ValueError as error:
        return str(error), ""


if __name__ == "__main__":
    main()
