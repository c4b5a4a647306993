"""Recipes: how to quantize a model, as data. A ladder of them is a TOML file.

::

    [[recipe]]
    name = "rounded weights"
    pipeline = "w8a8"                                  what it begins with
    before = "equalize"                                passes right before match-supergroups
    calibrate = "calibrate{method=mse weights=mse}"    in place of that of the pipeline
    after = "round-weights"                            passes right after calibrate
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from qc.ir.errors import UsageError, nearest
from qc.named_pipelines import resolve_pipeline
from qc.passes import Pipeline, PipelineFile, parse_pipeline
from qc.passes.framework.pipeline import Step
from qc.passes.framework.toml_source import read_text
from qc.passes.quantize.calibration.calibration import CalibrationPass
from qc.passes.quantize.insert_quantizers import InsertQuantizers
from qc.passes.quantize.match_supergroups import MatchSupergroups

_KEYS = ("name", "pipeline", "before", "calibrate", "after")


@dataclass(frozen=True)
class Recipe:
    """One way to quantize a model.

    Attributes:
        name: in words.
        pipeline: the passes.
        rules: what gets another precision, as for ``set-precision``.
    """

    name: str
    pipeline: PipelineFile
    rules: tuple[str, ...] = ()


def ladder(weights: int) -> list[Recipe]:
    """qc's own recipes for weights of 2 to 8 bits, the quickest first.

    Raises:
        UsageError: another number of bits.
    """
    if not 2 <= weights <= 8:
        raise UsageError(f"weights have 2 to 8 bits, not {weights}")
    name = "w8a8.toml" if weights == 8 else "w4a8.toml"
    text = (resources.files("qc.auto") / "ladders" / name).read_text(encoding="utf-8")
    found = _read(text, name)
    return found if weights in (4, 8) else [_of_bits(recipe, weights) for recipe in found]


def _of_bits(recipe: Recipe, weights: int) -> Recipe:
    """The recipe for weights of another width."""
    steps = [
        replace(step, weight=f"int{weights}") if isinstance(step, InsertQuantizers) else step
        for step in recipe.pipeline.pipeline.steps
    ]
    return replace(recipe, pipeline=replace(recipe.pipeline, pipeline=Pipeline(steps)))


def load_ladder(path: str | Path) -> list[Recipe]:
    """The recipes in a file.

    Raises:
        UsageError: it cannot be read, or holds something else.
    """
    return _read(read_text(path, "file of recipes"), str(path))


def _read(text: str, source: str) -> list[Recipe]:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source} is not valid TOML: {error}") from None
    tables = document.get("recipe")
    if set(document) != {"recipe"} or not isinstance(tables, list) or not tables:
        raise UsageError(f"{source} holds [[recipe]] tables and nothing else")
    return [_recipe(table, f"{source}, recipe {number}") for number, table in enumerate(tables, 1)]


def _recipe(table: object, place: str) -> Recipe:
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise UsageError(f"{place} is a table of texts: {', '.join(_KEYS)}")
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{place} has an unknown key '{key}'{nearest(key, list(_KEYS))}")
    pipeline = table.get("pipeline", "w8a8")
    try:
        file = resolve_pipeline(pipeline, runs_code=False)
        parts = {key: parse_pipeline(table[key]).steps for key in _KEYS[2:] if key in table}
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    steps = file.pipeline.steps
    for key in parts:
        beside = MatchSupergroups if key == "before" else CalibrationPass
        if not any(isinstance(step, beside) for step in steps):
            where = "match-supergroups" if key == "before" else "pass that calibrates"
            raise UsageError(f"{place}: there is no place for '{key}', as '{pipeline}' has no {where}")
    steps = _around(steps, parts)
    return Recipe(table.get("name", place), replace(file, pipeline=Pipeline(steps)))


def _around(steps: Sequence[Step], parts: dict[str, Sequence[Step]]) -> list[Step]:
    """The steps with those of a recipe between them."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, MatchSupergroups):
            found += parts.get("before", ())
        calibrates = isinstance(step, CalibrationPass)
        found += parts.get("calibrate", [step]) if calibrates else [step]
        found += parts.get("after", ()) if calibrates else ()
    return found
