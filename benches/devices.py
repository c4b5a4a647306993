"""Real models on real runtimes: what each runs in integers, refuses, and scores.

    python benches/devices.py                                       all models, all installed runtimes
    python benches/devices.py cifar_vit --on qnn-htp --samples 64   one

Every model is compiled for the target of the runtime by ``w8a8``, or what ``--pipeline`` says, with the
lengths of its longest sample for free dimensions; shorter ones get zeros behind them. Inputs without
dimensions have one value for good. "ops" is the share of the counted ops that run there in integers,
"products" that of the operations. With ``--nncf-python`` NNCF quantizes the same float model on the same
feeds for OpenVINO, too, and "time to NNCF" is the time of qc's model beside that. "refused" counts ops by the
reason that the runtime gives. The models and ``score.py`` lie in a folder of their own (``--models``), as for
``accuracy.py``. Ends with exit code 1 if a model cannot be compiled or checked.
"""

from __future__ import annotations

import itertools
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from models.labelled import load_tasks, models_option
from rich.console import Console
from rich.table import Table
from rivals import nncf_process

import qc
from qc.ir.errors import QcError
from qc.ir.executor import Feed
from qc.passes.framework.target import load_target
from qc.processor import on_this_processor
from qc.runtime import Runnable, model_inputs
from qc.runtime.data.inputs import free_dimensions
from qc.runtime.devices.known import DEVICES, open_device, version_of
from qc.runtime.speed.latency import pinned_processors, time_in_turns

RUNTIMES = ("openvino", "qnn-htp", "rknn", "tensorrt")
FEEDS = 4
TIMED_SECONDS, TIMED_ROUNDS = 2.0, 200
WHOLE = {"magika": 128}  # tasks whose number of samples is a multiple of this
_NAMES = re.compile(r"`[^`]*`|'[^']*'|\d+")


Run = Callable[[Feed], list[np.ndarray]]


class Recording:
    """Runs feeds and keeps the largest shape of each input, with 0 along its axis of samples."""

    def __init__(self, opened: Runnable, axes: dict[str, int | None]) -> None:
        self._opened = opened
        self._axes = axes
        self.shapes: dict[str, tuple[int, ...]] = {}

    def __call__(self, feed: Feed) -> list[np.ndarray]:
        for name, array in with_a_past(feed).items():
            own = [0 if axis == self._axes[name] else size for axis, size in enumerate(np.shape(array))]
            self.shapes[name] = tuple(map(max, self.shapes.get(name, own), own))
        return list(self._opened.run(feed).values())


def with_a_past(feed: Feed) -> Feed:
    """The feed of a language model with a cache of one token instead of none, which its mask hides."""
    if all(np.size(array) for array in feed.values()):
        return feed
    longer = {
        name: np.zeros([size or 1 for size in np.shape(array)], array.dtype) for name, array in feed.items()
    }
    kept = {name: array for name, array in feed.items() if np.size(array)}
    return longer | kept | {"attention_mask": np.pad(feed["attention_mask"], [(0, 0), (1, 0)])}


def padded(feed: Feed, shapes: dict[str, tuple[int, ...]]) -> Feed:
    """The feed with zeros behind what is shorter than ``shapes``."""

    def longer(array: np.ndarray, to: tuple[int, ...]) -> np.ndarray:
        return np.pad(array, [(0, max(0, full - own)) for full, own in zip(to, array.shape, strict=True)])

    return {name: longer(array, shapes[name]) if np.ndim(array) else array for name, array in feed.items()}


def alike(feeds: Iterator[Feed], shapes: dict[str, tuple[int, ...]]) -> list[Feed]:
    """Some feeds of as many samples as the first has, all of the largest shapes."""
    feeds = map(with_a_past, feeds)
    first = next(feeds)
    size = len(next(iter(first.values())))
    same = (one for one in feeds if len(next(iter(one.values()))) == size)
    return [padded(one, shapes) for one in (first, *itertools.islice(same, FEEDS - 1))]


def whole_samples(name: str, samples: int) -> int:
    """So many samples or a few more, as a task can be scored on."""
    whole = WHOLE.get(name, 1)
    return -(-samples // whole) * whole


def free_lengths(path: Path, feed: Feed) -> dict[str, int]:
    """The lengths that a feed has for the free dimensions of a model."""
    found = {}
    for place, name in free_dimensions(model_inputs(qc.ir.onnx.load.load_model(path))).items():
        given, _, axis = place.rstrip("]").rpartition("[")
        found[name] = feed[given].shape[int(axis)]
    return found


def dimensions(value: onnx.ValueInfoProto) -> list[str | int]:
    """The names of free dimensions and the lengths of others."""
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def batch_axes(path: Path) -> tuple[dict[str, int | None], list[int | None]]:
    """Where the inputs, by name, and the outputs have the dimension that the first input begins with.

    None for what has it nowhere, such as a sampling rate.
    """
    graph = qc.ir.onnx.load.load_model(path).graph
    name = dimensions(graph.input[0])[0]

    def axis_of(value: onnx.ValueInfoProto) -> int | None:
        own = dimensions(value)
        return own.index(name) if name in own else None

    made = [axis_of(value) if name else None for value in graph.output]
    return {value.name: axis_of(value) for value in graph.input}, made


def runner(opened: Runnable, batch: int, path: Path, shapes: dict[str, tuple[int, ...]]) -> Run:
    """Runs feeds of any number of samples ``batch`` at a time, the last ones filled up to so many.

    Samples that are shorter than ``shapes`` get zeros, and what the model makes of these is cut off.
    """
    axes, made_axes = batch_axes(path)

    def part(feed: Feed, places: np.ndarray) -> Feed:
        return {
            name: array if axes[name] is None else np.take(array, places, axes[name])
            for name, array in feed.items()
        }

    def run(feed: Feed) -> list[np.ndarray]:
        feed = with_a_past(feed)
        count, filled = len(next(iter(feed.values()))), padded(feed, shapes)
        shorter = {
            to: own
            for name, array in feed.items()
            for to, own in zip(np.shape(filled[name]), np.shape(array), strict=True)
            if to != own
        }
        parts = []
        for first in range(0, count, batch):
            places = np.minimum(np.arange(first, first + batch), count - 1)
            parts.append(opened.run(part(filled, places)).values())
        made = []
        for of_one, named in zip(zip(*parts, strict=True), made_axes, strict=True):
            axis = of_one[0].shape.index(batch) if named is None else named
            made.append(cut(np.take(np.concatenate(of_one, axis), range(count), axis), axis, shorter))
        return made

    return run


def cut(array: np.ndarray, batch_axis: int, shorter: dict[int, int]) -> np.ndarray:
    """A result without what was computed of zeros, along axes as long as the padded inputs are."""
    for axis, length in enumerate(array.shape):
        if axis != batch_axis and length in shorter:
            array = np.take(array, range(shorter[length]), axis)
    return array


def scored(task: Any, run: Run) -> str:
    """The score, or why there is none."""
    try:
        value = task.evaluate(run)
    except QcError as error:
        return f"fails: {error}"
    return f"{value[task.metric] if isinstance(value, dict) else value:.3f}"


def with_lengths(model: onnx.ModelProto, lengths: tuple[str, ...]) -> onnx.ModelProto:
    """The model with the lengths of free dimensions, which are given as ``NAME=N``."""
    known = dict(text.split("=") for text in lengths)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in known:
                dim.dim_value = int(known[dim.dim_param])
    return model


def beside_nncf(
    python: str,
    path: Path,
    feeds: list[Feed],
    lengths: tuple[str, ...],
    own: onnx.ModelProto,
    score: Callable[[Runnable], str],
) -> tuple[str, str, str]:
    """Of NNCF's model in OpenVINO the ops in integers and the score, and the time of ``own`` beside it."""
    device = open_device("openvino")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "float.onnx")
        onnx.save(with_lengths(onnx.load(path), lengths), source)
        try:
            made, _ = nncf_process.quantize(python, source, feeds)
            found = qc.check(made, "openvino", feeds[:1])
        except (RuntimeError, QcError) as error:  # a model in which it quantizes nothing is not checked
            return "-", f"NNCF: {error}", "-"
    ops = sum(op.runs == "integer" for op in found.counted) / max(len(found.counted), 1)
    with pinned_processors(1):
        opened = [device.open(made), device.open(own)]
        timing = time_in_turns(opened, feeds[0], TIMED_SECONDS, TIMED_ROUNDS)
    assert timing.latencies[1] is not None
    return f"{ops:.1%}", score(opened[0]), f"{timing.latencies[1].ratio:.2f}"


@dataclass(frozen=True)
class Fixed:
    """A task whose model has the lengths of the longest sample for its free dimensions.

    Attributes:
        path: the model.
        score: that of the model in float.
        shapes: of the longest feed, with 0 along the axis of samples.
        feeds: some for calibration, of one shape.
    """

    path: Path
    score: str
    shapes: dict[str, tuple[int, ...]]
    feeds: list[Feed]

    @property
    def batch(self) -> int:
        """The number of samples that the model takes."""
        return len(next(iter(self.feeds[0].values())))

    @property
    def lengths(self) -> tuple[str, ...]:
        """The lengths of free dimensions, as ``NAME=N``."""
        return tuple(f"{name}={length}" for name, length in free_lengths(self.path, self.feeds[0]).items())

    def compiled(self, pipeline: str, target: str) -> qc.Compiled:
        """The model, quantized for a target, in the form that this processor runs, as ``--on`` chooses it."""
        values = tuple(f"{name}={array}" for name, array in self.feeds[0].items() if not np.ndim(array))
        return qc.compile(
            self.path,
            pipeline,
            data=self.feeds,
            target=on_this_processor(load_target(target)),
            fix_shapes=self.lengths,
            fix_inputs=values,
        )

    def runner(self, opened: Runnable) -> Run:
        """Runs feeds of the task by what was compiled."""
        return runner(opened, self.batch, self.path, self.shapes)


def with_fixed_lengths(task: Any, folder: Path) -> Fixed:
    """The task, whose float model is scored to learn the lengths."""
    path = folder / "models" / Path(task.model).name
    exact = Recording(qc.runtime.OpenModel(path, threads=1), batch_axes(path)[0])
    score = scored(task, exact)
    fixed = Fixed(path, score, exact.shapes, alike(iter(task.calib()), exact.shapes))
    if hasattr(task, "bs"):
        task.bs = fixed.batch
    return fixed


def row(
    name: str,
    task: Any,
    folder: Path,
    runtime: str,
    pipeline: str,
    options: dict[str, str],
    nncf_python: str | None,
) -> list[str]:
    """One line of the table."""
    fixed = with_fixed_lengths(task, folder)
    path, feeds, scores = fixed.path, fixed.feeds, [fixed.score]

    def score(opened: Runnable) -> str:
        return scored(task, fixed.runner(opened))

    began = time.perf_counter()
    compiled = fixed.compiled(pipeline, runtime)
    compiling, began = time.perf_counter() - began, time.perf_counter()
    found = qc.check(compiled.model, runtime, feeds[:1], device_options=options)
    checking = time.perf_counter() - began
    ops = sum(op.runs == "integer" for op in found.counted) / max(len(found.counted), 1)
    left = Counter(
        f"{op.op_type}: {_NAMES.sub('', op.why.partition(';')[0])}"
        for op in found.counted
        if op.runs == "refused"
    )
    told = [f"{count} {why}"[:70] for why, count in left.most_common(4)]
    told += [why[:90] for _, rule, why in found.broken if rule == "not opened"]
    for open_one in (
        lambda: qc.runtime.OpenModel(compiled.simulation, threads=1),
        lambda: open_device(runtime, options).open(compiled.model),
    ):
        try:
            scores.append(score(open_one()))
        except QcError as error:
            scores.append("-")
            told = told or [str(error)[:90]]
    nncf = ("", "", "")
    if nncf_python and runtime == "openvino":
        nncf = beside_nncf(nncf_python, path, feeds, fixed.lengths, compiled.model, score)
    share = f"{found.share:.1%}" if found.is_weighted else "unknown"
    return [
        name,
        runtime,
        f"{ops:.1%}",
        share,
        *scores,
        *nncf,
        f"{compiling:.0f}",
        f"{checking:.0f}",
        "\n".join(told),
    ]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--on", "runtimes", multiple=True, type=click.Choice(RUNTIMES), help="Only this runtime.")
@click.option("--samples", default=64, help="About how many samples to score.")
@click.option("--pipeline", default="w8a8", show_default=True, help="What compiles the models.")
@click.option(
    "--device-option", "options", multiple=True, metavar="KEY=VALUE", help="One of the runtime's own."
)
@click.option("--nncf-python", metavar="PYTHON", help="A Python that has NNCF, to show it beside OpenVINO.")
@models_option
def main(
    names: tuple[str, ...],
    runtimes: tuple[str, ...],
    samples: int,
    pipeline: str,
    options: tuple[str, ...],
    nncf_python: str | None,
    models: Path,
) -> None:
    own = dict(option.split("=", 1) for option in options)
    console = Console(width=200)
    asked = [one for one in runtimes or RUNTIMES if version_of(DEVICES[one]) is not None]
    console.print(
        ", ".join(f"{one} {version_of(DEVICES[one])}" for one in asked) or "no runtime is installed"
    )
    columns = (
        "model",
        "on",
        "ops",
        "products",
        "float",
        "simulated",
        "device",
        "NNCF ops",
        "NNCF",
        "time to NNCF",
        "compile s",
        "check s",
        "refused",
    )
    table, failed = Table(*columns, box=None), False
    for name, task in load_tasks(models).items():
        for runtime in asked if not names or name in names else ():
            try:
                scored_on = task(whole_samples(name, samples))
                cells = row(name, scored_on, models, runtime, pipeline, own, nncf_python)
            except QcError as error:
                cells, failed = [name, runtime, *["-"] * 10, str(error)], True
            console.print("  ".join(cells).replace("\n", "; "), style="dim")
            table.add_row(*cells)
    console.print(table)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
