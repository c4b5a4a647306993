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
import importlib.util
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import onnx.version_converter
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
CACHE = HERE / "results" / "accuracy.json"
SOME = ["Conv", "MatMul"]
BASELINES = ("ORT all", "ORT some")
COLUMNS = ("float", *BASELINES, "qc")

# By the beginning of a task's name: what the choice of samples alone may change. The first three are given
# with the models, the others are estimates from the number of samples.
SAMPLING_ERROR = {
    "digits": 0.012,
    "cifar": 0.007,
    "magika": 0.005,
    "silero": 0.005,
    "ocr_rec": 0.003,
    "ocr_det": 0.015,
    "minilm": 0.02,
}

# Of all benches that score real models.
models_option = click.option(
    "--models",
    type=click.Path(file_okay=False, path_type=Path),
    default=HERE.parent.parent / "shared" / "models",
    envvar="QC_BENCH_MODELS",
    help="The folder with score.py, data/ and models/.",
)

Feed = dict[str, np.ndarray]


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Feeds as ONNX Runtime's quantizer wants them."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self.feeds, None)


class Cache:
    """Scores that were measured before, in a JSON file that is written after every new one."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self.path = path
        self.entries: dict[str, Any] = {}
        if path.is_file() and not fresh:
            self.entries = json.loads(path.read_text(encoding="utf-8"))

    def get(self, key: str, measure: Callable[[], Any]) -> Any:
        """The value of ``key``, measured if it is not known."""
        if key not in self.entries:
            self.entries[key] = measure()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.entries, indent=1, sort_keys=True), encoding="utf-8")
        return self.entries[key]


def load_tasks(folder: Path) -> dict[str, Any]:
    """The TASKS of ``score.py`` in ``folder``."""
    spec = importlib.util.spec_from_file_location("score", folder / "score.py")
    if spec is None or spec.loader is None or not (folder / "score.py").is_file():
        raise click.ClickException(
            f"there is no score.py in {folder}; name the folder of the models with --models"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.TASKS)


def evaluate(task: Any, model: Path | onnx.ModelProto) -> float:
    """The score of ``task`` with ``model`` run by ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return float(task.evaluate(lambda feed: session.run(None, feed))[task.metric])


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


def prepare(model: Path, folder: Path, preprocess: bool) -> Path:
    """Raises the opset to 13, which per-channel QDQ needs, and applies ONNX Runtime's own preprocessing.

    The preprocessing is what its documentation recommends; on some models only going without it works.
    """
    raised, prepared = folder / "raised.onnx", folder / "prepared.onnx"
    proto = onnx.load(model)
    if any(entry.domain == "" and entry.version < 13 for entry in proto.opset_import):
        onnx.save(onnx.version_converter.convert_version(proto, 13), raised)
        model = raised
    if not preprocess:
        return model
    quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
    return prepared


def quantize_ort(task: Any, model: Path, output: Path, operators: list[str] | None) -> None:
    """Runs ``quantize_static``: int8 weights per channel and int8 activations, min-max, QDQ."""
    quantize_static(
        str(model),
        str(output),
        Reader(task.calib()),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=operators,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
    )


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
