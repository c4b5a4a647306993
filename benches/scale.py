"""Time and memory of qc itself on graphs of many thousand ops, and how both grow with the graph.

    python benches/scale.py

The graphs are transformers written out op by op (models/large_graph.py), and go through the default pipeline.
Calibration is given made-up ranges, so that the lowering has numbers to work with, and does not count. Every
size is measured in a process of its own. Times are processor time, the best of some rounds: other programs
on the machine only ever add. Memory is what the process takes more than before the model was lifted, protos
included: with the lifted model alone, and at the peak, when the float model and the quantized one, which has
more ops, are both there. Ends with exit code 1 when a limit is missed.
"""

from __future__ import annotations

import functools
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from models.large_graph import chain, transformer
from rich.console import Console
from rich.table import Table

SIZES = (10_000, 100_000)
# At the larger size: seconds, and kilobytes for each op.
LIMITS = {
    "lift": 8.0,
    "print": 1.0,
    "all supergroups": 6.0,
    "pipeline": 30.0,
    "lower": 2.0,
    "kB per op, lifted": 5.0,
    "kB per op, both models": 5.0,
}
GROWTH_LIMIT = 1.15
GROWING = ("lift", "print", "pipeline", "lower")
CONSUMERS, REWIRE_LIMIT = 20_000, 0.1
CHAIN = 50_000


class Invented:
    """Statistics of a tensor that nobody looked at."""

    minimum, maximum, count = np.float32(-1), np.float32(1), 2

    def merge(self, other: Invented) -> Invented:
        """The same again."""
        return self


class Stopwatch:
    """The best processor time of everything that was timed, in seconds by name."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}

    def time(self, name: str, work: Callable[[], Any]) -> Any:
        """What ``work`` gives; its time counts, a collection of older garbage before it does not."""
        gc.collect()
        start = time.process_time()
        result = work()
        seconds = time.process_time() - start
        self.best[name] = min(seconds, self.best.get(name, seconds))
        return result


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak() -> int:
    """The most bytes of memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def default_passes() -> list[Any]:
    """The passes of the default pipeline, with the quickest calibration."""
    from qc.named_pipelines import resolve_pipeline
    from qc.passes.quantize.calibrate import Calibrate

    steps = resolve_pipeline("w8a8").pipeline.passes()
    return [Calibrate() if step.name == "calibrate" else step for step in steps]


def run_passes(model: Any, watch: Stopwatch) -> onnx.ModelProto:
    """Times the passes of the default pipeline and the verification that follows each; the QDQ model."""
    from qc.ir.base.garbage import old_objects_spared
    from qc.ir.executor import Requests
    from qc.ir.verifier import verify
    from qc.passes import PassContext
    from qc.passes.framework.target import load_target
    from qc.runtime import OrtExecutor

    class Executor(OrtExecutor):
        def observe(self, _: object, requests: Requests, *__: object, **___: object) -> Mapping:
            return {(name, each): Invented() for name, asked in requests.items() for each in asked}

    context = PassContext(data=[{}], executor=Executor(threads=1), target=load_target("ort-cpu"))
    with old_objects_spared():  # as the runner of pipelines does it
        for step in default_passes():
            watch.time(step.name, functools.partial(step.run, model, context))
            watch.time("verify", lambda: verify(model))
    quantized = context.artifacts["qdq"].payload
    assert isinstance(quantized, onnx.ModelProto)
    return quantized


def measure(path: Path, rounds: int) -> dict[str, float]:
    """Times in seconds and memory in kilobytes for each op, of one model file."""
    from qc.coverage import coverage_of
    from qc.ir import lift
    from qc.ir.onnx.lower import lower
    from qc.ir.text import print_model
    from qc.patterns import find_all, supergroups

    run_passes(lift(chain(1)), Stopwatch())  # what is loaded when first needed takes no part
    watch = Stopwatch()
    before = resident()
    memory: dict[str, float] = {}
    for _ in range(rounds):
        model = watch.time("lift", functools.partial(lift, path))
        ops = len(model.graph.ops())
        memory.setdefault("kB per op, lifted", (resident() - before) / ops / 1000)
        watch.time("print", functools.partial(print_model, model))
        watch.time("all supergroups", functools.partial(find_all, model.graph, supergroups()))
        quantized = run_passes(model, watch)
        grown = (peak() - before) / 1000
        memory.setdefault("kB per op of the float model, peak", grown / ops)
        memory.setdefault("kB per op, both models", grown / (ops + len(quantized.graph.node)))
        for name, work in (("lower", lower), ("print, quantized", print_model), ("coverage", coverage_of)):
            watch.time(name, functools.partial(work, model))
        del model, quantized
    times = watch.best
    passes = [step.name for step in default_passes() if step.name != "calibrate"]
    times["pipeline"] = sum(times[name] for name in passes) + times["verify"] * (len(passes) + 1)
    return times | memory


def rewire() -> float:
    """Seconds to let all consumers of one value read another one."""
    from qc.ir import lift
    from qc.ir.rewriter import Rewriter

    graph = lift(chain(2, CONSUMERS)).graph
    old, new = graph.value_named("v1"), graph.value_named("v0")
    assert old is not None and new is not None
    rewriter, watch = Rewriter(graph.model), Stopwatch()
    for _ in range(3):
        with rewriter.action("bench", old):
            watch.time("rewire", functools.partial(rewriter.replace_uses, old, new))
        old, new = new, old
    return watch.best["rewire"]


def deep() -> float:
    """Seconds to bring a chain of ops through everything; an error if something is recursive."""
    from qc.coverage import coverage_of
    from qc.ir import lift
    from qc.ir.onnx.lower import lower
    from qc.ir.text import print_model

    def work() -> None:
        model = lift(chain(CHAIN))
        run_passes(model, Stopwatch())
        print_model(model), coverage_of(model), lower(model)

    watch = Stopwatch()
    watch.time("chain", work)
    return watch.best["chain"]


def measured(size: int, rounds: int) -> dict[str, float]:
    """Runs :func:`measure` in a process of its own."""

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(transformer(size), path)
        command = [sys.executable, __file__, "--rounds", str(rounds), "--measure", str(path)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output)
    return found


def table_of(small: dict[str, float], large: dict[str, float]) -> tuple[Table, bool]:
    """What was measured at both sizes, and whether a limit is missed."""
    table = Table("seconds", *(f"{size:,} ops" for size in SIZES), "limit", "growth", "limit")
    missed = False
    for name, value in large.items():
        limit = LIMITS.get(name)
        growth = value / small[name] / (1 if name.startswith("kB") else SIZES[1] / SIZES[0])
        growth_limit = GROWTH_LIMIT if name in GROWING else None
        missed |= (limit is not None and value > limit) or (name in GROWING and growth > GROWTH_LIMIT)
        table.add_row(
            name,
            f"{small[name]:.3f}",
            f"{value:.3f}",
            "" if limit is None else f"{limit:g}",
            f"{growth:.2f}",
            "" if growth_limit is None else f"{growth_limit:g}",
        )
    return table, missed


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--rounds", default=3, show_default=True, help="Runs of everything; the best counts.")
@click.option("--measure", "path", type=Path, help="Measure one model in this process, and print it as JSON.")
def main(rounds: int, path: Path | None) -> None:
    """Prints a table of times and memory, and then the two single measurements."""
    if path is not None:
        click.echo(json.dumps(measure(path, rounds)))
        return
    table, missed = table_of(*(measured(size, rounds) for size in SIZES))
    Console().print(table)
    seconds = rewire()
    click.echo(f"{CONSUMERS:,} consumers of one value rewired in {seconds:.3f} s  (limit {REWIRE_LIMIT} s)")
    click.echo(f"a chain of {CHAIN:,} ops through everything in {deep():.1f} s")
    sys.exit(1 if missed or seconds > REWIRE_LIMIT else 0)


if __name__ == "__main__":
    main()
