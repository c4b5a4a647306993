"""Accuracy of real models with labels: float, ONNX Runtime's quantizer in its two ways, and qc's default.

    python benches/accuracy.py                  all tasks
    python benches/accuracy.py magika digits    some

The models, their data and ``score.py`` lie in a folder of their own (``--models``). The columns of float and
of ONNX Runtime are slow to get and do not change: they are kept in ``benches/results`` and used again while
model file and version of ONNX Runtime stay the same. ``--fresh`` measures them anew. One task needs scipy.

"ORT all" is ``quantize_static`` of all operators, "ORT some" of Conv and MatMul only; both int8, per channel,
min-max, QDQ. "qc" is the pipeline w8a8 for this processor, its QDQ model executed by ONNX Runtime. The
verdict compares qc with the better of ONNX Runtime's two ways, or with float where neither quantizes the
model ("only qc"). Ends with exit code 1 if qc is worse anywhere.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import onnx
import onnxruntime
from models.labelled import RESULTS, SAMPLING_ERROR, Cache, evaluate, load_tasks, models_option
from rich.console import Console
from rich.table import Table
from rivals.onnxruntime_static import prepare, quantize_ort

CACHE = RESULTS / "accuracy.json"
SOME = ["Conv", "MatMul"]
BASELINES = ("ORT all", "ORT some")
COLUMNS = ("float", *BASELINES, "qc")


def evaluate_ort(task: Any, model: Path, operators: list[str] | None) -> float | str:
    """The score after ``quantize_static``, or why there is none."""
    failure = ""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "quantized.onnx")
        for preprocess in (True, False):
            try:
                source = prepare(model, Path(folder), preprocess)
                quantize_ort(task, source, output, operators)
                quantized = onnx.load(output)
                if all(node.op_type != "QuantizeLinear" for node in quantized.graph.node):
                    return "not quantized"
                return evaluate(task, quantized)
            except ImportError as error:  # a package that score.py needs
                raise click.ClickException(str(error)) from error
            except Exception as error:  # ONNX Runtime's quantizer ends in errors of many kinds
                failure = f"fails ({type(error).__name__})"
    return failure


def evaluate_qc(task: Any, model: Path) -> float | str:
    """The score of qc's default, or its error."""
    import qc
    from qc.ir.errors import QcError

    try:
        compiled = qc.compile(model, "w8a8", data=task.calib)
    except QcError as error:
        return str(error)
    return evaluate(task, compiled.model)


def verdict(task: str, scores: dict[str, float | str]) -> str:
    """Whether qc is as good as the best baseline, within the sampling error; "-" where none is known."""
    baselines = [score for column in BASELINES if isinstance(score := scores.get(column), float)]
    ours, full = scores.get("qc"), scores.get("float")
    margin = next((value for prefix, value in SAMPLING_ERROR.items() if task.startswith(prefix)), None)
    if margin is None or not isinstance(ours, float) or not isinstance(full, float):
        return "-"
    if not baselines:
        return "only qc" if ours >= full - margin else "worse"
    if ours > max(baselines) + margin:
        return "better"
    return "equal" if ours >= max(baselines) - margin else "worse"


def measure(name: str, task: Any, model: Path, cache: Cache) -> dict[str, float | str]:
    """By column, the scores of one task, or sentences that say why there is none."""
    if not model.is_file():
        return {"float": f"{model.name} is missing"}
    digest = hashlib.sha256(model.read_bytes()).hexdigest()[:16]
    key = f"{name} {digest} onnxruntime {onnxruntime.__version__}"
    return {
        "float": cache.get(f"{key} float", lambda: evaluate(task, model)),
        "ORT all": cache.get(f"{key} all", lambda: evaluate_ort(task, model, None)),
        "ORT some": cache.get(f"{key} some", lambda: evaluate_ort(task, model, SOME)),
        "qc": evaluate_qc(task, model),
    }


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[TASK]...", nargs=-1)
@models_option
@click.option("--fresh", is_flag=True, help="Measure ONNX Runtime's columns anew.")
def main(names: tuple[str, ...], models: Path, fresh: bool) -> None:
    """Prints one row per task."""
    logging.getLogger().setLevel(logging.ERROR)
    known = load_tasks(models)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.ClickException(f"unknown task '{unknown[0]}'; known: {', '.join(known)}")
    cache = Cache(CACHE, fresh)
    console = Console()
    table = Table("task", "metric", *COLUMNS, "verdict")
    table.columns[0].no_wrap = True
    notes = []
    worse = False
    for name in names or known:
        task = known[name]()
        with console.status(name):
            scores = measure(name, task, models / "models" / task.model, cache)
        outcome = verdict(name, scores)
        worse |= outcome == "worse"
        notes += [f"{name}, {column}: {text}" for column, text in scores.items() if isinstance(text, str)]
        numbers = {column: f"{score:.4f}" for column, score in scores.items() if isinstance(score, float)}
        table.add_row(name, task.metric, *(numbers.get(column, "-") for column in COLUMNS), outcome)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
