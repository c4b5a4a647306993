"""``qc check MODEL.onnx``: what of a quantized model runs in integers on a target, and why not all."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import onnxruntime
from onnx import ModelProto
from rich.text import Text

from qc.checking import Check, check, runs_here
from qc.ir.errors import DemandError, UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.lift import load_model
from qc.passes.framework.target import Target, load_target
from qc.report.check import check_document, check_facts, check_reasons, check_table
from qc.report.terminal import facts_grid
from qc.runtime import load_data, model_inputs, random_data
from qc.runtime.data.inputs import free_dimensions

from .files import WordType, check_outputs, data_files, model_files, toml_files, write_json
from .option_types import MOST_WORKERS, CountType
from .options import check_sizes, json_option, size_option
from .output import print_note, standard_output

DEFAULT_TARGET = "ort-cpu"
DEFAULT_RUNS = 10
MOST_RUNS = 1000  # ONNX Runtime writes a line for every node of every run


class ShareType(click.ParamType):
    """A share: ``95%``, or ``95``."""

    name = "PERCENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share, 0 to 1."""
        try:
            percent = float(str(value).removesuffix("%"))
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            self.fail(f"{value!r} is not a share from 0% to 100%", param, ctx)
        return percent / 100


@click.command("check", short_help="Tell what of a quantized model runs in integers, and why not all.")
@click.argument("model", metavar="MODEL.onnx", type=WordType())
@click.option(
    "--target",
    metavar="NAME|FILE",
    type=WordType(),
    default=DEFAULT_TARGET,
    show_default=True,
    help="What it is to run on.",
)
@click.option("--data", metavar="SRC", type=WordType(), help="What to measure on; without it, random data.")
@size_option
@click.option(
    "--runs",
    metavar="N",
    type=CountType(0, MOST_RUNS),
    default=DEFAULT_RUNS,
    show_default=True,
    help="Runs to measure.",
)
@click.option(
    "--threads",
    metavar="N",
    type=CountType(most=MOST_WORKERS),
    default=1,
    show_default=True,
    help="Threads of the runtime.",
)
@click.option(
    "--fail-below", type=ShareType(), help="Fail if a smaller share of the operations runs in integers."
)
@json_option
@click.option("-v", "--verbose", is_flag=True, help="List every op that does not run in integers.")
def check_command(
    model: str,
    target: str,
    data: str | None,
    sizes: Sequence[tuple[str, int]],
    runs: int,
    threads: int,
    fail_below: float | None,
    json_file: Path | None,
    verbose: bool,
) -> None:
    """Tells which ops of a quantized MODEL.onnx run in integers on a target, and why the others do not.

    For a target that is ONNX Runtime on CPUs of this kind, the model is opened, and the graph that ONNX
    Runtime makes of it is read back and measured. For other targets their rules are checked on the graph.
    """
    proto = load_model(model)
    chosen = load_target(target)
    inputs = [*model_files(model, proto, "the input model"), *toml_files(target, "the target")]
    check_outputs([json_file], [*inputs, *data_files(data, "the data to measure on")])
    feeds = _feeds(proto, data, dict(sizes), runs)
    if runs and not feeds and runs_here(chosen):
        print_note("not measured, as shapes or types of inputs are free; give --data, or lengths with --size")
    result = check(model, chosen, feeds, threads=threads)
    if json_file is not None:
        write_json(json_file, check_document(result))
    _show(result, chosen, runs if feeds else 0, verbose)
    _check_demands(result, fail_below)


def _feeds(proto: ModelProto, data: str | None, sizes: dict[str, int], runs: int) -> list[Feed]:
    """A feed for each run and one to warm up; without data random numbers, if all lengths are known."""
    inputs = model_inputs(proto)
    if data is not None and sizes:
        raise UsageError("--size is for random data, and --data is given")
    if data is not None:
        feed = next(iter(load_data(data, inputs)))
    else:
        check_sizes(list(sizes.items()), inputs)
        makable = all(one.dtype is not None and one.shape is not None for one in inputs if not one.optional)
        free = [name for name in free_dimensions(inputs) if not name.endswith("[0]")]
        if not makable or (free and not sizes):
            return []
        feed = next(iter(random_data(inputs, 1, 0, sizes)))
    return [feed] * (runs + 1)


def _show(result: Check, target: Target, runs: int, verbose: bool) -> None:
    machine = platform.machine()
    where = f"run by ONNX Runtime {onnxruntime.__version__} on {machine}"
    if not runs_here(target):
        where = "which is not on this machine: its rules, checked on the graph"
    console = standard_output()
    console.show(facts_grid(check_facts(result, where)), "", check_table(result))
    if result.seconds:
        said = f"time: {result.seconds * 1000:.3g} ms in all nodes, of each the median of {runs} runs"
        console.show("", Text(said, style="dim"))
    for reason in check_reasons(result, verbose):
        console.show("", reason)


def _check_demands(result: Check, fail_below: float | None) -> None:
    wrong = [op for op in result.ops if op.runs == "wrong"]
    if wrong:
        raise DemandError(f"{wrong[0].name} gives wrong numbers: {wrong[0].why}")
    if fail_below is None:
        return
    whole = [why for op, _, why in result.broken if not op]
    if whole:
        raise DemandError(f"the model breaks a rule of {result.target}: {whole[0]}")
    if result.share < fail_below:
        of = "operations" if result.is_weighted else "ops"
        raise DemandError(
            f"{result.share:.1%} of the {of} run in integers on {result.target}, and --fail-below asks for "
            f"{fail_below:.1%}"
        )
