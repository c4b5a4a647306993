"""The search for a recipe as a value, and :func:`qc.find_recipe`."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor as Pool
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

from onnx import ModelProto

from qc.compiler import MOST_WORKERS, Compilation
from qc.compiler.functions import taking
from qc.compiler.given import check_services
from qc.ir.errors import UsageError
from qc.options import check_number
from qc.passes import Progress
from qc.passes.framework.target import Target
from qc.passes.quantize.insert_quantizers import refuse_quantized
from qc.passes.simplify.fix_inputs import with_fixed_interface
from qc.progress import progress_here
from qc.reading import read_model
from qc.runtime import Metric, load_data, load_labels
from qc.runtime.evaluation.judge import Labels

from .climb import OBJECTIVES, Climb, Failure, Found, Objective
from .judging import Judge, MaxDrop
from .mixed_precision import Mixing, parse_candidates
from .question import Question
from .recipes import Recipe, ladder, load_ladder, packed, suits
from .trial import Trial
from .trials import Trials

_SETTINGS = ("target", "fix_shapes", "fix_inputs", "threads", "device", "seed")  # as for a compilation
_FEWEST_BITS, _MOST_BITS = 4, 8  # of weights, where fewer, or more, are not asked for
_WIDE_SHARE = 0.05  # of the weights, which may have 8 bits where fewer are asked for
# What is given as these, and what a sentence says of it that is none of them.
_KINDS: dict[str, tuple[Any, str]] = {
    "metric": (str | Metric, "the metric is a text, such as 'file.py:function', or a Metric"),
    "labels": (
        str | Path | Collection,
        "labels are a sequence with one for each sample, or an .npy file of them",
    ),
    "recipes": (str | Path | Iterable, "recipes are a list of qc.auto.Recipe, or a .toml file of them"),
    "candidates": (str, "candidates are a text such as 'w4a8,w8a8,float'"),
    "cache": (str | Path, "the cache is the path of a folder"),
    "on": (str, "on is the name of a device, such as 'openvino'"),
    "device_options": (Mapping, "device options are a dictionary"),
}


@dataclass(frozen=True)
class RecipeSearch:
    """A search for a recipe: how to quantize a model so that it loses no more than it may.

    Args:
        model: an ONNX model or the path of one; not changed.
        data: data to calibrate on, as for :func:`qc.compile`.
        eval_data: data to judge by; default: ``data``.
        labels: one label for each sample of ``eval_data``, or an ``.npy`` file of them;
            default: those of the data.
        metric: what counts: a text as for ``qc eval --metric``, or an object; default: agreement with the
            float model, by the kind of its outputs, see :mod:`qc.auto.agreement`.
        max_drop: how much may be lost: ``"1%"`` of the float model's score, or a number in its unit.
        weights: bits of weights, 2 to 8, which 95 % of them have in the end; default: 8, or, if the
            objective is size or bits, as few as will do.
        recipes: the recipes to try, or a ``.toml`` file of them; default: those of qc.
        objective: what is best among accepted recipes: ``"latency"`` on this machine, ``"size"`` of the
            model, ``"bits"`` of weights; default: what is found first.
        candidates: precisions that are mixed if no recipe is good enough, such as ``"w4a8,w8a8,float"``;
            default: that of the recipe and all with more bits that the target runs.
        bits: of a weight, on average, that the result may have at most; precisions are mixed if none has.
        points: of the front of mixed precision that are measured, for ``Found.survey``; 0 for none.
        minutes: after these the best so far is the result.
        jobs: how many recipes are tried at once, in processes of their own if there are several.
        pool: where they are tried instead: any ``concurrent.futures.Executor``, such as the one that Dask's
            ``Client.get_executor()`` gives.
        cache: a folder that keeps what was collected and tried, so that a search that was killed goes on.
        on: the device that runs what is judged: ``"openvino"``, ``"tensorrt"``, or ``"qnn-htp"``, which is
            emulated; default: ONNX Runtime.
        device_options: options of that device in its own words, such as ``{"htp_arch": "75"}``.
        target, fix_shapes, fix_inputs, threads, device, seed: as for :func:`qc.compile`; the target is by
            default that of ``on``.
        progress: where long work shows how far it is.
        on_trial: called with every trial when it is done.
        on_failure: called with every recipe that does not fit the model.
    """

    model: ModelProto | str | Path
    _: KW_ONLY
    data: object
    eval_data: object = None
    labels: Labels | str | Path | None = None
    metric: str | Metric | None = None
    max_drop: str | float | MaxDrop = "1%"
    weights: int | None = None
    recipes: Sequence[Recipe] | str | Path | None = None
    objective: Objective | None = None
    candidates: str | None = None
    bits: float | None = None
    points: int = 0
    minutes: float = 10.0
    jobs: int = 1
    pool: Pool | None = None
    cache: str | Path | None = None
    on: str | None = None
    device_options: Mapping[str, str] = field(default_factory=dict)
    target: str | Path | Target | None = None
    fix_shapes: tuple[str, ...] = ()
    fix_inputs: tuple[str, ...] = ()
    threads: int | None = None
    device: str = "auto"
    seed: int = 0
    progress: Progress | None = None
    on_trial: Callable[[Trial], None] = lambda trial: None
    on_failure: Callable[[Failure], None] = lambda failure: None

    def __post_init__(self) -> None:
        if self.objective not in (None, *OBJECTIVES):
            raise UsageError(f"the objective is one of {', '.join(OBJECTIVES)}, not {self.objective!r}")
        if self.recipes is not None and self.weights is not None:
            raise UsageError("bits of weights are for qc's own recipes; give recipes or weights, not both")
        if self.bits is not None and self.weights is not None:
            raise UsageError("bits of weights are given twice; give weights or bits, not both")
        if self.on is not None and self.objective == "latency":
            raise UsageError(
                f"the objective latency is measured with ONNX Runtime, not on {self.on}; give size or bits, "
                "or judge without a device"
            )
        if self.device_options and self.on is None:
            raise UsageError("device options are for a device, and none is given: name it as 'on'")
        for name, least, most in (("jobs", 1, MOST_WORKERS), ("weights", 2, 8), ("points", 0, sys.maxsize)):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), least, most)
        if not (isinstance(self.minutes, Real) and self.minutes > 0):
            raise UsageError(f"minutes={self.minutes!r} is not a number above 0")
        for name, (kinds, what) in _KINDS.items():
            given = getattr(self, name)
            if not isinstance(given, kinds | None):
                raise UsageError(f"{what}, not {given!r}")
        if isinstance(self.cache, str) and not self.cache:
            raise UsageError("cache='' is empty; it is the path of a folder")
        check_services(vars(self))

    @functools.cached_property
    def mixing(self) -> Mixing:
        """How precisions are mixed; raises UsageError for a candidate that the target does not run."""
        target, text = self.question.compilation.chosen_target(), self.candidates
        return Mixing(None if text is None else parse_candidates(text, target), self.bits, self.points)

    @functools.cached_property
    def question(self) -> Question:
        """What is asked; raises UsageError or DataError for labels that cannot be read."""
        settings = {name: getattr(self, name) for name in _SETTINGS}
        labels, drop = self.labels, self.max_drop
        compilation = Compilation(self.model, data=self.data, **settings).for_device(self.on)
        judged = self.data if self.eval_data is None else self.eval_data
        if isinstance(labels, str | Path):
            labels = load_labels(Path(labels))
        elif labels is None and self.metric is not None:
            labels = load_data(judged, compilation.fed_inputs()).labels
        return Question(
            compilation,
            judged,
            drop if isinstance(drop, MaxDrop) else MaxDrop.parse(drop),
            self.metric,
            labels,
            self.on,
            tuple(sorted(self.device_options.items())),
        )

    @functools.cached_property
    def judge(self) -> Judge:
        """What tells whether a model is good enough; raises what :meth:`Question.judge` raises."""
        return self.question.judge()

    @functools.cached_property
    def ladder(self) -> Sequence[Recipe]:
        """The recipes that are tried, in their order.

        Raises:
            UsageError: a file holds something else, or no recipe suits the model.
        """
        known = self._recipes()
        recipes = [recipe for recipe in known if suits(recipe, self.question.compilation)]
        if known and not recipes:
            raise UsageError("no recipe is for this model and target: give one without for = 'products'")
        if self.fix_shapes or self.fix_inputs:
            recipes = [self._fixed(recipe) for recipe in recipes]
        in_bytes = self.question.compilation.chosen_target().weight.storage == "int8"
        return [packed(recipe) for recipe in recipes] if self.objective == "size" and in_bytes else recipes

    def _recipes(self) -> Sequence[Recipe]:
        if isinstance(self.recipes, str | Path):
            return load_ladder(self.recipes)
        if self.recipes is not None:
            found = tuple(self.recipes)
            for one in found:
                if not isinstance(one, Recipe):
                    raise UsageError(f"recipes are a list of qc.auto.Recipe, and {one!r} is none")
            return found
        has_front = self.points > 0 and self.objective != "latency"
        wants_few_bits = self.bits is not None or has_front or self.objective in ("size", "bits")
        if self.weights is None and wants_few_bits:
            return ladder(_FEWEST_BITS if self.bits is None else min(_FEWEST_BITS, int(self.bits)))
        return ladder(self.weights or _MOST_BITS)

    def check(self) -> None:
        """Reads recipes, candidates, labels, target and model, before any work; raises what these raise."""
        for part in ("question", "mixing", "ladder"):
            getattr(self, part)
        if self.recipes is None:
            refuse_quantized(read_model(self.model))

    def run(self) -> Found:
        """Searches.

        Raises:
            UsageError: something does not exist or does not fit, or the metric fails.
            ModelError, DataError: the model or the data cannot be read, or do not fit.
        """
        trials = Trials(
            self.question,
            self.judge,
            self.jobs,
            self.pool,
            Path(self.cache) if self.cache is not None else None,
            self.progress or progress_here(),
            time.time() + 60 * float(self.minutes),
        )
        own = self.recipes is not None and self.objective is not None
        bits = self.weights or _MOST_BITS
        most = self.bits or (bits + _WIDE_SHARE * (_MOST_BITS - bits) if bits < _MOST_BITS else None)
        with trials:
            climb = Climb(trials, self.objective, most, self.mixing, self.on_trial, self.on_failure)
            return climb.run(self.ladder, try_all=own)

    def _fixed(self, recipe: Recipe) -> Recipe:
        """The recipe for a model whose free dimensions and inputs have lengths and values."""
        file, asked = recipe.pipeline, self.question.compilation
        pipeline = with_fixed_interface(file.pipeline, asked.fix_shapes, asked.fix_inputs)
        return replace(recipe, pipeline=replace(file, pipeline=pipeline))


@taking(RecipeSearch)
def find_recipe(*arguments: Any, **named: Any) -> Found:
    """Finds how to quantize a model so that it keeps its accuracy; ``qc auto`` in Python.

    ``found.compiled.save("model.q.onnx")`` writes the result, :func:`qc.auto.recipe_text` the recipe.

    Raises:
        UsageError: something does not exist or does not fit, or the metric fails.
        ModelError, DataError: the model or the data cannot be read, or do not fit.
    """
    return RecipeSearch(*arguments, **named).run()
