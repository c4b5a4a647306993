"""Real models with data and labels, in a folder of their own with ``score.py``, and their scores."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import onnxruntime

_BENCHES = Path(__file__).parents[1]
RESULTS = _BENCHES / "results"  # what benches keep

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
    default=_BENCHES.parents[1] / "shared" / "models",
    envvar="QC_BENCH_MODELS",
    help="The folder with score.py, data/ and models/.",
)

Feed = dict[str, np.ndarray]


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
