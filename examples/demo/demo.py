"""The main job on a real model: quantize it with qc, and compare with float and with naive int8.

    python examples/demo/demo.py --model magika --output demo-output

``--model magika`` needs the package magika; ``--model ocr`` needs rapidocr-onnxruntime and pillow. Only the
model files of the first two are used; ``make demo`` installs them without their dependencies. Exit code 1
and one sentence when qc's result is more than one point below float, or when data or a package is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from common import DemoError, Task, latencies, quantize_naively, runner
from rich.console import Console
from rich.table import Table

import qc
from qc.ir.errors import QcError

TOLERANCE = 0.01


@dataclass(frozen=True)
class Row:
    """One line of the table: a model, its score, size in bytes, speed relative to float, and coverage."""

    label: str
    model: Path
    score: float
    speed: float
    coverage: str


def tasks(model: str, files: tuple[Path, ...]) -> Iterator[Task]:
    """The tasks of a demo; imported here, so that one demo does not need the packages of the other."""
    if model == "magika":
        from task_magika import MagikaTask

        yield MagikaTask(files)
    else:
        try:
            from task_ocr import DetectionTask, RecognitionTask
        except ImportError as error:
            raise DemoError(
                f"the package pillow is missing: install it with 'pip install pillow' ({error})"
            ) from error
        yield DetectionTask()
        yield RecognitionTask()


def measure(task: Task, output: Path, console: Console) -> list[Row]:
    """Quantizes naively and with qc, scores and times the three models."""
    naive, ours = output / f"{task.name}.naive.onnx", output / f"{task.name}.qc.onnx"
    with console.status("naive int8: quantize_static of ONNX Runtime"):
        quantize_naively(task.model, naive, task.calibration())
    compiled = qc.compile(task.model, "w8a8", data=task.calibration, target="ort-cpu")
    compiled.save(ours)
    labels = {"float": task.model, "naive int8": naive, "qc default": ours}
    scores = []
    for label, model in labels.items():
        with console.status(f"scoring {label}"):
            scores.append(task.score(runner(model)))
    with console.status("timing"):
        seconds = latencies(list(labels.values()), task.timing_feed())
    coverage = ("", "", f"{compiled.coverage.multiplied.share:.1%} of the multiplications")
    return [
        Row(label, model, score, seconds[0] / taken, covered)
        for (label, model), score, taken, covered in zip(
            labels.items(), scores, seconds, coverage, strict=True
        )
    ]


def show(task: Task, rows: list[Row], console: Console) -> None:
    """Prints the table and where the files are."""
    table = Table()
    table.add_column(task.name)
    for column in (task.metric, "size", "speed", "quantized"):
        table.add_column(column, justify="right")
    for row in rows:
        size = f"{row.model.stat().st_size / 1000:,.0f} KB"
        table.add_row(row.label, f"{row.score:.3f}", size, f"{row.speed:.2f} x", row.coverage)
    console.print(table)
    for row in rows:
        console.print(f"{row.label:>10}  {row.model}", soft_wrap=True, highlight=False)
    console.print()


def check(task: Task, rows: list[Row]) -> None:
    """Raises DemoError if qc's model scores more than ``TOLERANCE`` below float."""
    scores = {row.label: row.score for row in rows}
    if scores["qc default"] < scores["float"] - TOLERANCE:
        raise DemoError(
            f"{task.name}: qc's model scores {scores['qc default']:.3f}, more than {TOLERANCE} below float "
            f"({scores['float']:.3f}); this is a defect of qc, please report it"
        )


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--model", type=click.Choice(["magika", "ocr"]), default="magika", show_default=True)
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), default="demo-output", show_default=True
)
@click.option(
    "--files",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="A folder with more files of known type (magika only); may be repeated.",
)
def main(model: str, output: Path, files: tuple[Path, ...]) -> None:
    """Runs one demo."""
    console = Console()
    try:
        output.mkdir(parents=True, exist_ok=True)
        for task in tasks(model, files):
            console.print(f"{task.name}: {task.data}", soft_wrap=True, highlight=False)
            rows = measure(task, output, console)
            show(task, rows, console)
            check(task, rows)
    except (DemoError, QcError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
