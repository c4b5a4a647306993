"""Tell what of a quantized model runs in integers, and why not all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge, Le
from onnx import ModelProto
from rich.text import Text

from qc.checking import Check, check, runs_here
from qc.compiler import MOST_WORKERS
from qc.ir.errors import DemandError, UsageError
from qc.ir.executor import Feed
from qc.ir.onnx.load import load_model
from qc.options import argument, option
from qc.passes.framework.target import load_target
from qc.processor import target_made_for
from qc.progress import RichProgress
from qc.rendering.check import check_document, check_facts, check_reasons, check_table
from qc.rendering.terminal import facts_grid
from qc.rendering.words import share_of
from qc.runtime import DataFiles, load_data, model_inputs, random_data
from qc.runtime.data.inputs import free_dimensions

from ..command import Command
from ..files import check_outputs, data_files, model_files, toml_files, write_json
from ..jobs import check_sizes
from ..options import device_options_option, json_option, size_option
from ..output import print_note, print_written, standard_error, standard_output
from ..preparing import Preparing

MOST_RUNS = 1000  # ONNX Runtime writes a line for every node of every run


def share(text: str) -> float:
    """``95%``, or ``95``; the share, 0 to 1."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ValueError(f"{text!r} is not a share from 0% to 100%")
    return percent / 100


@dataclass(frozen=True, kw_only=True)
class CheckCommand(Command):
    """Tells which ops of a quantized MODEL.onnx run in integers on a target, and why the others do not.

    Where the runtime of the target is installed, it opens the model, and what it makes of it is read back
    and, on CPUs, measured. For other targets their rules are checked on the graph.

    Examples:
        qc check model.q.onnx
        qc check model.q.onnx --target qnn-htp --fail-below 90
    """

    elsewhere: ClassVar = {
        "--random-data": "without --data numbers are random, and --size gives free lengths"
    }

    model: str = argument("MODEL.onnx")
    target: str | None = option(
        None,
        "What it is to run on.  [default: what qc made it for, else this processor, by ONNX Runtime]",
        metavar="NAME|FILE",
    )
    data: str | None = option(None, "What to measure on; without it, random data.", metavar="SRC")
    preparing: Preparing
    sizes: tuple[tuple[str, int], ...] = size_option()
    runs: Annotated[int, Ge(0), Le(MOST_RUNS)] = option(10, "Runs to measure.", metavar="N")
    threads: Annotated[int, Ge(1), Le(MOST_WORKERS)] = option(1, "Threads of the runtime.", metavar="N")
    device_options: tuple[tuple[str, str], ...] = device_options_option()
    fail_below: float | None = option(
        None,
        "Fail if a smaller share of the multiplications runs in integers.",
        metavar="PERCENT",
        parse=share,
    )
    json_file: Path | None = json_option()
    verbose: bool = option(False, "List every op that does not run in integers.", "-v")

    def run(self) -> None:
        proto = load_model(self.model)
        chosen = load_target(self.target) if self.target is not None else target_made_for(proto)
        inputs = [*model_files(self.model, proto, "the input model"), *toml_files(self.target, "the target")]
        check_outputs([self.json_file], [*inputs, *data_files(self.data, "the data to measure on")])
        data = self.preparing.of(self.data) if self.data is not None else None
        feeds = _feeds(proto, data, dict(self.sizes), self.runs)
        if self.runs and not feeds and runs_here(chosen):
            print_note(
                "not measured, as shapes or types of inputs are free; give --data, or lengths with --size"
            )
        with RichProgress(standard_error()) as progress:
            result = check(
                self.model,
                chosen,
                feeds,
                threads=self.threads,
                device_options=dict(self.device_options),
                progress=progress,
            )
        if self.json_file is not None:
            write_json(self.json_file, check_document(result))
        _show(result, self.runs if feeds else 0, self.verbose)
        print_written([self.json_file])
        if result.made_for not in ("", result.target):
            latter = f"for the latter compile it with --target {self.target or chosen.name}"
            former = ", and --target FILE checks it for the former" if self.target is None else ""
            made, checked = result.made_for, result.target
            print_note(f"the model was made for {made}, and was checked for {checked}: {latter}{former}")
        _check_demands(result, self.fail_below)


def _feeds(proto: ModelProto, data: str | DataFiles | None, sizes: dict[str, int], runs: int) -> list[Feed]:
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


def _show(result: Check, runs: int, verbose: bool) -> None:
    console = standard_output()
    console.show(facts_grid(check_facts(result)), "", check_table(result))
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
        raise DemandError(
            f"{share_of(result.share, result.share_of)} run in integers on {result.target}, and --fail-below "
            f"asks for {fail_below:.1%}"
        )
