"""Accuracy of real models with labels, without and with the pass ``correct-bias``.

    python benches/bias_correction.py                           all models that it was tried on
    python benches/bias_correction.py cifar_resnet20 digits     some

The models, their data and ``score.py`` lie in a folder of their own (``--models``), as for ``accuracy.py``.
Activations are uint8 and weights int8 or int4, with one scale for each tensor or for each output channel, all
by min-max; the QDQ model is executed by ONNX Runtime. Calibration data serve for the correction, too.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import click
import onnx
from models.labelled import evaluate, load_tasks, models_option
from rich.console import Console
from rich.table import Table

import qc

TASKS = ("digits", "cifar_resnet20", "cifar_mobilenetv2", "cifar_vit")
PREPARE = "fold-constants,eliminate-identity,fold-batch-norms,eliminate-dead-code,match-supergroups"


def quantized(model: Path, task: Any, weight: str, granularity: str, correction: str) -> onnx.ModelProto:
    """The QDQ model."""
    place = f"insert-quantizers{{activation=uint8 weight={weight}}},{granularity}tie-quantizers"
    passes = f"{PREPARE},{place},calibrate,{correction}insert-qdq"
    return qc.compile(model, passes, data=task.calib, target="ort-cpu").model


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[TASK]...", nargs=-1)
@models_option
def main(names: tuple[str, ...], models: Path) -> None:
    """Prints one row per task, width of weights and granularity."""
    tasks = load_tasks(models)
    table = Table("task", "metric", "float", "weights", "scales", "plain", "corrected")
    for name in names or TASKS:
        task = tasks[name]()
        path = models / "models" / task.model
        full = evaluate(task, path)
        for weight, granularity in product(("int8", "int4"), ("", "annotate-per-channel,")):
            found = [
                evaluate(task, quantized(path, task, weight, granularity, correction))
                for correction in ("", "correct-bias,")
            ]
            scales = "per channel" if granularity else "per tensor"
            row = (name, task.metric, f"{full:.4f}", weight, scales, *(f"{score:.4f}" for score in found))
            table.add_row(*row)
            print(*row, flush=True)
    Console().print(table)


if __name__ == "__main__":
    main()
