"""What ``qc auto`` finds for real models with labels, beside float and plain ``qc``.

    python benches/auto.py                           all tasks that are not large, weights of 8 bits
    python benches/auto.py digits --weights 4

The models, their data and ``score.py`` lie in a folder of their own (``--models``), as for ``accuracy.py``.
``qc auto`` sees the calibration data alone and judges by agreement with the float model; the scores are those
of the tasks, on data that it did not see. Seconds are by the clock, for the whole search.
"""

from __future__ import annotations

import time
from pathlib import Path

import click
from accuracy import evaluate, load_tasks, models_option
from rich.console import Console
from rich.table import Table
from rounding import TASKS

import qc
from qc.auto import Climb, Judge, MaxDrop, ladder
from qc.runtime import load_data, model_inputs

COLUMNS = ("task", "metric", "float", "plain", "auto", "recipe", "in integers", "trials", "seconds")


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[TASK]...", nargs=-1)
@click.option("--weights", type=click.Choice(["8", "4"]), default="8", show_default=True)
@click.option("--max-drop", default="1%", show_default=True)
@click.option("--minutes", default=10.0, show_default=True)
@models_option
def main(names: tuple[str, ...], weights: str, max_drop: str, minutes: float, models: Path) -> None:
    """Prints one row per task."""
    tasks = load_tasks(models)
    table = Table(*COLUMNS)
    for name in names or TASKS:
        task = tasks[name]()
        path = models / "models" / task.model
        compilation = qc.Compilation(str(path), f"w{weights}a8", data=task.calib, target="ort-cpu")
        plain = evaluate(task, compilation.compile().model)
        start = time.monotonic()
        data = load_data(task.calib, model_inputs(compilation.proto()))
        judge = Judge(compilation.reference(), data, MaxDrop.parse(max_drop))
        found = Climb(compilation, judge, minutes).run(ladder(int(weights)))
        seconds = time.monotonic() - start
        scores = [
            f"{score:.4f}" for score in (evaluate(task, path), plain, evaluate(task, found.compiled.model))
        ]
        verdict = "" if found.best.verdict.is_accepted else f" ({found.ended})"
        counts = f"{found.best.integer_share:.1%}", str(len(found.trials)), f"{seconds:.0f}"
        row = (name, task.metric, *scores, found.best.recipe.name + verdict, *counts)
        table.add_row(*row)
        print(*row, sep=" | ", flush=True)
    Console().print(table)


if __name__ == "__main__":
    main()
