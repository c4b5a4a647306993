"""The front of mixed precision that ``qc auto`` chooses from, beside one precision for all and AIMET's AMP.

    python benches/mixed_precision.py                                          two tasks
    python benches/mixed_precision.py cifar_resnet20 --target ort-cpu          others
    python benches/mixed_precision.py --aimet-python AIMET/bin/python          with choose_mixed_precision

The models, their data and ``score.py`` lie in a folder of their own (``--models``), as for ``accuracy.py``.
What candidates do in each group of quantizers is measured once, on the calibration data and without labels,
and solved for both costs: bits of a weight, and bit operations, which are bits of a weight times bits of
data in the mean of all multiplications. Points are taken from both fronts, evenly and at the cost of each
rival; each is compiled for the target, and its model as it is written scored by the task, on data that
nothing was chosen on.

Rivals are W4A8, W8A8 and, where the target has 16 bits, W8A16 as the pipelines of these names make them,
and what ``rivals/aimet_mixed.py`` chooses from the same candidates: of its simulation, since AIMET writes no
integer model; it takes long, and is kept in ``benches/results``. A rival is matched in a cost if a point
costs no more and has its score, but for the sampling error of the task. The last column says in which costs
it is. Seconds are by the clock: of a point, what compiling it takes behind those before, which leave what
they collected. Ends with exit code 1 if a rival is not matched in some cost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from models.labelled import RESULTS, SAMPLING_ERROR, Cache, evaluate, load_tasks, models_option
from rich.console import Console
from rich.table import Table

import qc
from qc.auto import Judge, MaxDrop
from qc.auto.mixed_precision import (
    FLOAT,
    Cost,
    Front,
    Point,
    find_front,
    parse_candidates,
    supported_candidates,
)
from qc.auto.trial import weight_bits
from qc.passes.framework.target import load_target
from qc.runtime import load_data, model_inputs

CACHE = RESULTS / "mixed_precision.json"
COSTS: tuple[Cost, ...] = ("size", "operations")
TASKS = ("cifar_mobilenetv2", "ocr_rec_v6t")
UNIFORM = ("w4a8", "w8a8", "w8a16")
COLUMNS = ("task", "method", "choice", "bits of a weight", "bit operations", "score", "seconds", "matched in")


@dataclass(frozen=True)
class Row:
    """One choice of precisions, measured.

    Attributes:
        method: whose.
        name: of the choice.
        costs: by name of the cost.
        score: of the task.
        seconds: by the clock.
    """

    method: str
    name: str
    costs: dict[str, float]
    score: float
    seconds: float

    def matches(self, other: Row, cost: str, margin: float) -> bool:
        """Whether it costs no more and has the score of the other, but for a margin."""
        return self.costs[cost] <= other.costs[cost] + 1e-6 and self.score >= other.score - margin


@dataclass(frozen=True)
class Job:
    """A task on a target."""

    name: str
    task: Any
    models: Path
    target: str

    @property
    def path(self) -> Path:
        """The float model."""
        return self.models / "models" / self.task.model

    @property
    def precisions(self) -> list[str]:
        """Those of all uniform settings that the target runs."""
        known = [one.name for one in supported_candidates(load_target(self.target))]
        return [one for one in UNIFORM if one in known]

    def uniform(self) -> Iterator[Row]:
        """What the pipelines of one precision give, and float."""
        yield Row("uniform", "float", _costs(32, 1024), evaluate(self.task, self.path), 0.0)
        for precision in self.precisions:
            start = time.perf_counter()
            made = qc.compile(self.path, precision, data=self.task.calib, target=self.target)
            seconds = time.perf_counter() - start
            weight, data = map(int, precision[1:].split("a"))
            costs = _costs(weight_bits(made.ir)[0], weight * data)
            yield Row("uniform", precision, costs, evaluate(self.task, made.model), seconds)

    def aimet(self, python: str) -> list[Any]:
        """What AIMET chooses, as ``rivals/aimet_mixed.py`` prints it."""
        script = str(Path(__file__).parent / "rivals" / "aimet_mixed.py")
        command = [python, script, str(self.models), self.name, ",".join(self.precisions)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"AIMET fails: {done.stderr.strip().splitlines()[-1]}")
        return list(map(json.loads, done.stdout.splitlines()))

    def kept_aimet(self, python: str, cache: Cache) -> Iterator[Row]:
        """The same, from before if it is known."""
        key = f"{self.name} {','.join(self.precisions)} AIMET"
        for found in cache.get(key, lambda: self.aimet(python)):
            costs = _costs(found["bits"], found["operations"])
            yield Row("AIMET", found["name"], costs, found["score"], found["seconds"])

    def qc(self, rivals: Sequence[Row], points: int) -> Iterator[Row]:
        """Points of the front."""
        with tempfile.TemporaryDirectory() as folder:
            plain = qc.Compilation(self.path, "w4a8", data=self.task.calib, target=self.target)
            compilation = replace(plain, executor=plain.ort_executor(cache=Path(folder)))
            start = time.perf_counter()
            front = self.front(compilation)
            seconds = time.perf_counter() - start
            print(f"{self.name}: {len(front.groups)} groups measured in {seconds:.0f} s", flush=True)
            for point in chosen_points(front, rivals, points):
                start = time.perf_counter()
                made = replace(compilation, precision=point.rules).compile()
                seconds = time.perf_counter() - start
                costs = _costs(weight_bits(made.ir)[0], point.operations)
                yield Row("qc", point.name, costs, evaluate(self.task, made.model), seconds)

    def front(self, compilation: qc.Compilation) -> Front:
        """What there is to choose from."""
        made, proto = compilation.compile(), compilation.proto()
        data = load_data(self.task.calib, model_inputs(proto))
        judge = Judge(compilation.reference(), data, MaxDrop.parse("1%"))
        candidates = parse_candidates(",".join([*self.precisions, FLOAT.name]), made.target)
        return find_front(made, candidates, judge.reference, judge.metric, judge.data)


def chosen_points(front: Front, rivals: Sequence[Row], count: int) -> list[Point]:
    """Points of the fronts of both costs: some spread over it, and the best at the cost of each rival."""
    found = []
    for kind in COSTS:
        own = replace(front, kind=kind)
        found += own.spread(count)
        least, most = own.points[0].cost(kind), own.points[-1].cost(kind)
        asked = [rival.costs[kind] + 1e-6 for rival in rivals]
        found += [own.within(max(least, cost)) for cost in asked if cost < most]
    return sorted((one for one in dict.fromkeys(found) if not one.is_float), key=lambda one: one.operations)


def matched_in(row: Row, rows: Sequence[Row], margin: float) -> list[str]:
    """The costs in which a point of qc matches a rival; its own float model is one of them."""
    points = [one for one in rows if one.method == "qc" or one.name == "float"]
    return [cost for cost in COSTS if any(point.matches(row, cost, margin) for point in points)]


def _costs(size: float, operations: float) -> dict[str, float]:
    return dict(zip(COSTS, (size, operations), strict=True))


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.argument("names", metavar="[TASK]...", nargs=-1)
@click.option("--target", default="npu", show_default=True, help="What the models are for.")
@click.option("--points", default=3, show_default=True, help="Points of each front, beside those at rivals.")
@click.option("--aimet-python", metavar="PYTHON", help="A Python that has AIMET, to show it beside.")
@click.option("--fresh", is_flag=True, help="Do not use what AIMET chose before.")
@models_option
def main(
    names: tuple[str, ...], target: str, points: int, aimet_python: str | None, fresh: bool, models: Path
) -> None:
    """Prints one row per choice."""
    tasks, table, is_beaten, cache = load_tasks(models), Table(*COLUMNS), False, Cache(CACHE, fresh)
    for name in names or TASKS:
        job = Job(name, tasks[name](), models, target)
        margin = next(value for prefix, value in SAMPLING_ERROR.items() if name.startswith(prefix))
        rivals = [*job.uniform(), *(job.kept_aimet(aimet_python, cache) if aimet_python else ())]
        rows = rivals[:]
        for row in job.qc(rivals, points):
            rows.append(row)
            print(row, flush=True)
        for row in rows:
            costs = [f"{row.costs[cost]:.2f}" for cost in COSTS]
            found = matched_in(row, rows, margin) if row.method != "qc" else []
            is_beaten |= row.method != "qc" and len(found) < len(COSTS)
            table.add_row(
                name, row.method, row.name, *costs, f"{row.score:.4f}", f"{row.seconds:.0f}", ", ".join(found)
            )
    Console(width=160).print(table)
    sys.exit(1 if is_beaten else 0)


if __name__ == "__main__":
    main()
