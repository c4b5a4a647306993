"""Recipes: how to quantize a model, as data. A ladder of them is a TOML file.

::

    [[recipe]]
    name = "rounded weights"
    pipeline = "w8a8"                                  what it begins with
    before = "equalize"                                passes right before match-supergroups
    calibrate = "calibrate{method=mse weights=mse}"    in place of that of the pipeline
    after = "round-weights"                            passes right after calibrate
    for = "products"                                   or "wide-data": left out elsewhere, see :func:`suits`
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from onnx import ModelProto

from qc.compiler import Compilation
from qc.ir.errors import UsageError, nearest
from qc.ir.facts.op_table import traits_of
from qc.ir.onnx.protos import walk_graphs, walk_nodes
from qc.named_pipelines import resolve_pipeline
from qc.passes import Pipeline, PipelineFile, parse_pipeline
from qc.passes.framework.pipeline import Step
from qc.passes.framework.toml_source import parse_toml, read_text
from qc.passes.lower.insert_qdq import InsertQdq
from qc.passes.quantize.calibration.calibration import CalibrationPass
from qc.passes.quantize.insert_quantizers import InsertQuantizers
from qc.passes.quantize.match_supergroups import MatchSupergroups

_PARTS = ("before", "calibrate", "after")
_KEYS = ("name", "pipeline", *_PARTS, "for")
Suited = Literal["", "products", "wide-data"]
_FOR: tuple[Suited, ...] = ("products", "wide-data")
# The share of the weights of layers that are matrices in a model of products.
_NEARLY_ALL = 0.95


@dataclass(frozen=True)
class Recipe:
    """One way to quantize a model.

    Attributes:
        name: in words.
        pipeline: the passes.
        rules: what gets another precision, as for ``set-precision``.
        only_for: ``products`` for models that hardly do anything but multiply by matrices, ``wide-data`` for
            targets that have activations of 16 bits; empty for all.
    """

    name: str
    pipeline: PipelineFile
    rules: tuple[str, ...] = ()
    only_for: Suited = ""


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


def suits(recipe: Recipe, compilation: Compilation) -> bool:
    """Whether a recipe is worth a trial.

    One for products is if those are nearly all that has weights. The target has to multiply by stored weights
    in integers, too: such recipes leave activations in float. One for wide data is if the target has them.

    Raises:
        ModelError: the model cannot be read.
        UsageError: the target cannot be read.
    """
    if recipe.only_for == "wide-data":
        return compilation.chosen_target().activation.wider is not None
    if recipe.only_for != "products":
        return True
    is_quick = compilation.chosen_target().lowering.products == "fast"
    return is_quick and _share_of_matrices(compilation.proto()) >= _NEARLY_ALL


def _share_of_matrices(model: ModelProto) -> float:
    """The share of the weights of layers, by their numbers, that are matrices of products."""
    nodes = list(walk_nodes(model.graph.node))
    sizes = {one.name: math.prod(one.dims) for graph in walk_graphs(model.graph) for one in graph.initializer}
    for node in (one for one in nodes if one.op_type == "Constant"):
        sizes[node.output[0]] = sum(math.prod(one.t.dims) for one in node.attribute if one.HasField("t"))
    found: Counter[str] = Counter()
    for node in nodes:
        traits = traits_of(node.op_type, node.domain)
        port = traits.trained["weight"] if traits.product else len(node.input)
        if port < len(node.input):
            found[traits.product] += sizes.get(node.input[port], 0)
    return found["matrix"] / max(found.total(), 1)


def _of_bits(recipe: Recipe, weights: int) -> Recipe:
    """The recipe for weights of another width."""
    steps = [
        replace(step, weight=f"int{weights}") if isinstance(step, InsertQuantizers) else step
        for step in recipe.pipeline.pipeline.steps
    ]
    return replace(recipe, pipeline=replace(recipe.pipeline, pipeline=Pipeline(steps)))


def packed(recipe: Recipe) -> Recipe:
    """The recipe with weights of fewer than 8 bits packed, if it does not tell how they are stored."""
    steps = [
        replace(step, storage="packed") if isinstance(step, InsertQdq) and step.storage is None else step
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
    document = parse_toml(text, source)
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
    wanted: Any = table.get("for", "")
    if wanted not in ("", *_FOR):
        known = " or ".join(_FOR)
        raise UsageError(f"{place} is for '{wanted}'; it can be for {known}, or for all without 'for'")
    pipeline = table.get("pipeline", "w8a8")
    try:
        file = resolve_pipeline(pipeline, runs_code=False)
        parts = {key: parse_pipeline(table[key]).steps for key in _PARTS if key in table}
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    steps = file.pipeline.steps
    for key in parts:
        beside = MatchSupergroups if key == "before" else CalibrationPass
        if not any(isinstance(step, beside) for step in steps):
            where = "match-supergroups" if key == "before" else "pass that calibrates"
            raise UsageError(f"{place}: there is no place for '{key}', as '{pipeline}' has no {where}")
    steps = _around(steps, parts)
    file = replace(file, pipeline=Pipeline(steps))
    name = table.get("name", place)
    return Recipe(name, file, only_for=wanted)


def _around(steps: Sequence[Step], parts: dict[str, Sequence[Step]]) -> list[Step]:
    """The steps with those of a recipe between them, or in place of the same passes with other options."""
    found: list[Step] = []
    given = {type(step) for step in parts.get("before", ())}
    for step in steps:
        if type(step) in given:
            continue
        if isinstance(step, MatchSupergroups):
            found += parts.get("before", ())
        calibrates = isinstance(step, CalibrationPass)
        found += parts.get("calibrate", [step]) if calibrates else [step]
        found += parts.get("after", ()) if calibrates else ()
    return found
