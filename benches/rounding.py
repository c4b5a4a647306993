"""What each way to choose weights' codes and ranges does to real models with labels.

    python benches/rounding.py                                    all tasks, forms and methods
    python benches/rounding.py cifar_resnet20 --form w3a16        some
    python benches/rounding.py cifar_resnet20 --method beam --method gptq --aimet-python AIMET/bin/python

The models, their data and ``score.py`` lie in a folder of their own (``--models``), as for ``accuracy.py``.
Weights have one scale for each output channel, at first of least squared error; in ``w4-block32`` one for
every 32 inputs, and activations stay float. Each cell is a process of its own with one thread: the score of
the simulation, the median over layers of the error at their results in dB, the processor seconds that the
compilation takes, and the most memory that the process takes. What takes longer than ``--limit`` is ended,
and its cell says so. Cells are kept in ``--results`` as they are done: a run that was interrupted goes on
there. AIMET's AdaRound and SeqMSE are shown for forms with integer activations and for tasks whose feeds do
not depend on earlier results; their seconds are by the clock.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import signal
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

import click
import numpy as np
from models.labelled import RESULTS, Feed, evaluate, load_tasks, models_option
from rich.console import Console
from rich.table import Table
from rivals.aimet_process import Aimet

import qc
from qc.ir.base.files import atomic_write

RESULTS = RESULTS / "rounding.json"
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
    "lm_minimind",
)
FORMS = {
    "w8a8": ("int8", "uint8", ""),
    "w4a8": ("int4", "uint8", ""),
    "w4a16": ("int4", "uint16", ""),
    "w3a16": ("int3", "uint16", ""),
    "w4-block32": ("uint4", "float", "{block_size=32}"),
}
METHODS = {"nearest": "", "ranges": "choose-weight-ranges,"} | {
    name: f"round-weights{{method={name}}},"
    for name in ("gptq", "qronos", "coordinate", "beam", "adaround", "best")
}
PASSES = (
    "inline-functions,convert-to-float32,hoist-loop-invariants,fold-constants,eliminate-identity,fold-batch-norms,"
    "share-constants,eliminate-dead-code,match-supergroups,insert-quantizers{{weight={} activation={}}},"
    "annotate-per-channel{},tie-quantizers,calibrate{{method=mse weights=mse}},{}to-simulation"
)
PEERS = {"adaround": "1000", "seq_mse": "20"}


_APART = multiprocessing.get_context("spawn")


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[TASK]...", nargs=-1)
@click.option("--form", "forms", type=click.Choice(list(FORMS)), multiple=True, help="These alone.")
@click.option("--method", "methods", type=click.Choice(list(METHODS)), multiple=True, help="These alone.")
@click.option("--jobs", default=2, show_default=True, help="Cells to measure at once.")
@click.option("--limit", default=180.0, show_default=True, help="Seconds for a cell, judging included.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
@click.option("--aimet-python", metavar="PYTHON", help="A Python that has AIMET, to show it beside.")
@models_option
def main(
    names: tuple[str, ...],
    forms: tuple[str, ...],
    methods: tuple[str, ...],
    jobs: int,
    limit: float,
    results: Path,
    aimet_python: str | None,
    models: Path,
) -> None:
    """Prints a table for each form, with a row for each task."""
    rows, columns, layers = names or TASKS, forms or tuple(FORMS), methods or tuple(METHODS)
    peers = [f"AIMET {peer}" for peer in PEERS] if aimet_python else []
    wanted = [(name, "float", "") for name in rows]
    wanted += [(name, form, method) for name in rows for form in columns for method in (*layers, *peers)]
    kept: dict[str, str] = json.loads(results.read_text()) if results.exists() else {}
    results.parent.mkdir(parents=True, exist_ok=True)
    kept_at = Lock()
    missing = [cell for cell in wanted if " ".join(cell) not in kept]

    def fill(cell: tuple[str, str, str]) -> None:
        kept[" ".join(cell)] = in_time(limit, models, *cell, aimet_python)
        print(*cell, kept[" ".join(cell)], flush=True)
        with kept_at, atomic_write(results) as file:
            file.write(json.dumps(kept, indent=1, sort_keys=True).encode())

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(fill, missing))
    for form in columns:
        table = Table("task", "float", *layers, *peers, title=form)
        for name in rows:
            table.add_row(
                name, kept[f"{name} float "], *(kept[f"{name} {form} {m}"] for m in (*layers, *peers))
            )
        Console(width=200).print(table)


def in_time(limit: float, *arguments: Any) -> str:
    """A cell, measured in a process of its own, whose memory is not that of others; or why there is none."""
    ours, theirs = _APART.Pipe(duplex=False)
    process = _APART.Process(target=_send, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        return str(ours.recv()) if ours.poll(limit) else f"over {limit:g} s"
    except EOFError:
        return "failed"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with AIMET, which it may have started
        process.kill()
        process.join()


def _send(pipe: Connection, models: Path, name: str, form: str, method: str, aimet: str | None) -> None:
    os.setsid()
    task = load_tasks(models)[name]()
    model = models / "models" / task.model
    if form == "float":
        pipe.send(f"{evaluate(task, model):.4f}")
    elif method.startswith("AIMET "):
        peer = method.removeprefix("AIMET ")
        score, seconds = beside(str(aimet), task, model, form, peer, PEERS[peer])
        pipe.send(f"{score} {seconds} s" if seconds else score)
    else:
        pipe.send(measure(task, model, form, method))


def measure(task: Any, model: Path, form: str, method: str) -> str:
    """What a method does to a task."""
    passes = PASSES.format(*FORMS[form], METHODS[method])
    start = time.process_time()
    made = qc.compile(model, passes, data=task.calib, target="ort-cpu", threads=1)
    seconds = time.process_time() - start
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    simulation = made.open_simulation()
    score = float(task.evaluate(lambda feed: list(simulation.run(feed).values()))[task.metric])
    reasons = (remark.reason for remark in made.ir.journal.remarks)
    found = [float(one[1]) for reason in reasons if (one := re.search(r"([-\d.]+) dB at the result", reason))]
    decibels = f" {statistics.median(found):.1f} dB" if found else ""
    return f"{score:.4f}{decibels} {seconds:.1f} s {megabytes:.0f} MB"


def beside(python: str, task: Any, model: Path, form: str, method: str, steps: str) -> tuple[str, str]:
    """The score of AIMET's simulation after one of its methods, and its seconds; or why there is none."""
    weights, activations = (kind.lstrip("u") for kind in FORMS[form][:2])
    if activations == "float":
        return "activations are float", ""
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
