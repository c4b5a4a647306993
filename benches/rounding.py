"""Accuracy of real models with labels, with the nearest codes of weights and with those of ``round-weights``.

    python benches/rounding.py                              all tasks that are not large
    python benches/rounding.py cifar_resnet20 --weights int8

The models, their data and ``score.py`` lie in a folder of their own (``--models``), as for ``accuracy.py``.
Weights have one scale for each output channel, of least squared error, and activations are uint8; the QDQ
model is run by ONNX Runtime. Seconds are processor time of the whole compilation.
"""

from __future__ import annotations

import time
from pathlib import Path

import click
from accuracy import evaluate, load_tasks, models_option
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
    "layout_picodet",
    "basic_pitch",
)
METHODS = {
    "nearest": "",
    "gptq": "round-weights{method=gptq},",
    "coordinate": "round-weights{method=coordinate},",
    "both": "round-weights,",
}
PREPARE = "inline-functions,hoist-loop-invariants,fold-constants,eliminate-identity,fold-batch-norms"
PLACE = (
    "eliminate-dead-code,match-supergroups,insert-quantizers{{weight={}}},annotate-per-channel,tie-quantizers"
)
CALIBRATE = "calibrate{method=mse weights=mse}"


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[TASK]...", nargs=-1)
@click.option("--weights", default="int4", show_default=True, help="The format of weights.")
@models_option
def main(names: tuple[str, ...], weights: str, models: Path) -> None:
    """Prints one row per task."""
    tasks = load_tasks(models)
    table = Table("task", "metric", "float", *METHODS)
    for name in names or TASKS:
        task = tasks[name]()
        path = models / "models" / task.model
        row = [name, task.metric, f"{evaluate(task, path):.4f}"]
        for rounding in METHODS.values():
            passes = f"{PREPARE},{PLACE.format(weights)},{CALIBRATE},{rounding}insert-qdq{{opset=raise}}"
            start = time.process_time()
            made = qc.compile(path, passes, data=task.calib, target="ort-cpu").model
            seconds = time.process_time() - start
            row.append(f"{evaluate(task, made):.4f} ({seconds:.0f} s)")
        table.add_row(*row)
        print(*row, flush=True)
    Console().print(table)


if __name__ == "__main__":
    main()
