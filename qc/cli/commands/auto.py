"""Find how to quantize a model so that it keeps its accuracy."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from qc.auto import Found, Judge, RecipeSearch, recipe_text
from qc.auto.mixed_precision import Survey, front_page
from qc.compiler import MOST_WORKERS, Compilation
from qc.compiler.compiled import Compiled
from qc.ir.base.files import atomic_write
from qc.ir.errors import DemandError, UsageError
from qc.ir.onnx.load import load_model
from qc.options import REQUIRED, Given, argument, option, some_of
from qc.rendering.words import printable
from qc.runtime import Spread, load_data
from qc.saturation import SaturationCounter

from ..command import Command
from ..devices import chosen_device, on_option
from ..files import (
    check_model_output,
    check_outputs,
    data_files,
    judging_files,
    model_files,
    toml_files,
    writing,
)
from ..options import device_options_option, labels_option, quiet_option
from ..output import print_note, print_warning, print_written
from ..preparing import Preparing
from ..search_output import TrialReporter, refusal, show_found, tell_of_doubt

_POINTS = 8
_LOOKED_AT = 256  # samples, for inputs beyond their grids


@dataclass(frozen=True, kw_only=True)
class Auto(Command):
    """Tries recipes for MODEL.onnx until one loses no more than --max-drop, and writes model and recipe.

    Each recipe is compiled and judged as it will run. If none of the ladder is good enough, precisions are
    mixed: what harms most gets more bits, as little of it as will do. Beside the result, MODEL.auto.onnx,
    MODEL.auto.recipe.toml holds the passes and rules, and what was tried: 'qc MODEL.onnx --pipeline
    MODEL.auto.recipe.toml' with the same data gives the same model.

    Without --metric a model is good if it agrees with the float model: in classes, texts, masks or vectors,
    by what its outputs hold, which is told first.

    Examples:
        qc auto model.onnx --data train.npz --eval-data test.npz --max-drop 1%
        qc auto model.onnx --data photos --preset imagenet --labels labels.npy --metric judge.py:accuracy
    """

    elsewhere: ClassVar = {
        "--random-data": "random numbers tell nothing of accuracy; give samples with --data"
    }
    if_quantized = "'qc auto FLOAT.onnx' looks for a recipe for the float model that it was made of"

    model: str = argument("MODEL.onnx")
    data: str = option(REQUIRED, "Data to calibrate on, as for qc itself.", metavar="SRC")
    eval_data: str | None = option(None, "Data to judge by, if that is not --data.", metavar="SRC")
    preparing: Preparing
    labels: Path | None = labels_option()
    metric: str | None = option(
        None, "What counts, as for qc eval.  [default: agreement with the float model]", metavar="TEXT"
    )
    on: str | None = on_option("Judge results on this device")
    device_options: tuple[tuple[str, str], ...] = device_options_option()
    max_drop: str = option(
        "1%",
        "How much may be lost: a share of the float model's score, or a number in its unit.",
        metavar="X%|X",
    )
    weights: Annotated[int, Ge(2), Le(8)] | None = option(
        None,
        "Bits of weights, which 95 % of them keep.  [default: 8, or as few as will do for size or bits]",
        metavar="N",
    )
    recipes: str | None = option(
        None, "A .toml file with [[recipe]] tables to try instead of qc's.", metavar="FILE"
    )
    objective: Literal["latency", "size", "bits"] | None = option(
        None, "What is best among recipes that are good enough.  [default: what is found first]"
    )
    candidates: str | None = option(
        None,
        "Precisions to mix, such as w4a8,w8a8,float.  [default: a recipe's own and those of more bits]",
        metavar="LIST",
    )
    bits: Annotated[float, Ge(2), Le(32)] | None = option(
        None, "Mix precisions so that a weight has at most so many bits on average.", metavar="B"
    )
    front: Path | None = option(
        None,
        "Measure the front of mixed precision, and write it as a page (.html) or as JSON (.json).",
        metavar="FILE",
    )
    points: Annotated[int, Ge(2), Le(64)] | None = option(
        None, f"Choices of the front to measure.  [default: {_POINTS}]", metavar="N"
    )
    minutes: Annotated[float, Gt(0)] = option(
        10.0, "Time to search; the best so far is the result then.", metavar="M"
    )
    jobs: Annotated[int, Ge(1), Le(MOST_WORKERS)] = option(
        1, "How many recipes to try at once, in processes of their own.", metavar="N"
    )
    cache: Path | None = option(
        None,
        "Keep what was collected and tried in a folder, to go on after a kill.",
        metavar="DIR",
        envvar="QC_CACHE",
    )
    output: Path | None = option(
        None,
        "Where to write the result.  [default: MODEL.auto.onnx in the current folder]",
        "-o",
        metavar="FILE",
    )
    keep_best: bool = option(False, "Write the best result even if it loses more than --max-drop.")
    log: Path | None = option(
        None, "Write what was tried as JSON, one trial on a line, as each of them ends.", metavar="FILE"
    )
    chosen: Given = some_of(Compilation, "target", "fix_shapes", "fix_inputs", "threads", "device", "seed")
    quiet: bool = quiet_option()

    def run(self) -> None:
        output = self.output or Path(f"{Path(self.model).stem}.auto.onnx")
        recipe_file = output.with_suffix(".recipe.toml")
        self._check([output, recipe_file, self.log, self.front])
        check_model_output(self.output)
        chosen_device(self.on, self.device_options, self.chosen["target"])
        with ExitStack() as stack:
            reporter = TrialReporter(stack, self.minutes, self.log, self.quiet)
            search = self._search(reporter)
            reporter.judge = search.judge
            if not self.quiet:
                reporter.begin(search)
            found = search.run()
        target = self.chosen["target"] or found.compiled.target.name
        is_written = found.is_accepted or self.keep_best
        if is_written:
            with writing(recipe_file), atomic_write(recipe_file) as file:
                file.write(recipe_text(found, search.judge, target).encode())
                with writing(output):
                    found.compiled.save(output)
        front = self.front if found.survey is not None else None
        if front is not None and found.survey is not None:
            _write_front(front, Path(self.model).name, found.survey)
        if not self.quiet:
            show_found(found, search.judge)
            print_written([*((output, recipe_file) if is_written else ()), front, self.log])
            self._tell(found, search.judge)
        if not found.is_accepted:
            raise DemandError(refusal(found, search.judge, is_written))
        if self.front is not None and found.survey is None:
            reason = found.ended or found.failures[-1].reason
            raise DemandError(
                f"'{printable(str(self.front))}' is not written, as nothing was measured: {reason}"
            )

    def _tell(self, found: Found, judge: Judge) -> None:
        """Notes and warnings on the result."""
        for note in (*found.compiled.notes, *self._saturated(found.compiled)):
            print_note(note)
        for warning in found.compiled.warnings:
            print_warning(warning)
        self._tell_of_mixing(found)
        tell_of_doubt(found, judge)

    def _tell_of_mixing(self, found: Found) -> None:
        """Says that nothing was mixed, where that was asked for and was not needed."""
        if found.is_mixed or found.survey is not None or not found.is_accepted:
            return
        given = {
            "--bits tells how many it has at most": self.bits,
            "--candidates is for mixing": self.candidates,
        }
        asked = [words for words, value in given.items() if value is not None]
        if asked:
            print_note(
                f"precisions were not mixed, as '{printable(found.best.recipe.name)}' is good enough with "
                f"{found.best.weight_bits:.2f} bits of a weight; {', '.join(asked)}"
            )

    def _saturated(self, compiled: Compiled) -> list[str]:
        """A sentence for each input of the data to judge by that lies beyond its grid."""
        if self.eval_data is None:
            return []
        data = load_data(self.preparing.of(self.eval_data), compiled.inputs)
        saturation = SaturationCounter(compiled.ir)
        for feed in islice(Spread(data), _LOOKED_AT):
            saturation.add(feed)
        return saturation.notes()

    def _check(self, outputs: list[Path | None]) -> None:
        """Looks at files, so that what is wrong is told before any work."""
        if self.labels is not None and ":" not in (self.metric or ""):
            raise UsageError("--labels is for a function as --metric, and none is given")
        if self.recipes is not None and self.weights is not None:
            raise UsageError("--weights is for qc's own recipes; give --recipes or --weights, not both")
        if self.bits is not None and self.weights is not None:
            raise UsageError("bits of weights are given twice; give --weights or --bits, not both")
        if self.front is not None and self.front.suffix not in (".html", ".json"):
            raise UsageError(f"--front {self.front}: a front is written as .html or as .json")
        if self.points is not None and self.front is None:
            raise UsageError("--points is for --front, which is not given")
        inputs = [
            *model_files(self.model, load_model(self.model), "the input model"),
            *data_files(self.data, "the calibration data"),
            *data_files(self.eval_data, "the data to judge by"),
            *judging_files([self.metric] if self.metric is not None else [], self.labels),
            *toml_files(self.chosen["target"], "the target"),
            *toml_files(self.recipes, "the file of recipes"),
        ]
        check_outputs(outputs, inputs)

    def _search(self, reporter: TrialReporter) -> RecipeSearch:
        names = "labels", "metric", "max_drop", "weights", "recipes", "objective"
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in (*names, "minutes", "jobs", "cache", "candidates", "bits", "on")
        }
        search = RecipeSearch(
            self.model,
            data=self.preparing.of(self.data),
            eval_data=self.preparing.of(self.eval_data) if self.eval_data is not None else None,
            **given,
            device_options=dict(self.device_options),
            **self.chosen,
            points=(self.points or _POINTS) if self.front is not None else 0,
            progress=reporter.progress,
            on_trial=reporter.trial,
            on_failure=reporter.failure,
        )
        search.check()
        return search


def _write_front(path: Path, model: str, survey: Survey) -> None:
    """Writes a front as a page or as JSON."""
    if path.suffix == ".html":
        content = front_page(f"Mixed precision of {model}", survey)
    else:
        content = json.dumps(survey.document(), indent=1, ensure_ascii=False) + "\n"
    with writing(path), atomic_write(path) as file:
        file.write(content.encode())
