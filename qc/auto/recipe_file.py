"""Writes a recipe down: a pipeline file that gives the same model again, and how it was found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version

from qc.passes import dumps
from qc.passes.framework.toml_source import toml_key, toml_value
from qc.passes.quantize.precision.rules import rules_of
from qc.passes.quantize.set_precision import with_precision

from .climb import Found, Trial
from .judging import Judge


def recipe_text(found: Found, judge: Judge, target: str) -> str:
    """The text of ``MODEL.recipe.toml``: the pipeline of the best trial and a table ``[record]``.

    ``qc MODEL.onnx --pipeline MODEL.recipe.toml`` with the same data gives the same bytes.
    """
    recipe = found.best.recipe
    steps = with_precision(recipe.pipeline.pipeline, rules_of(recipe.rules))
    file = replace(
        recipe.pipeline, pipeline=steps, name="recipe", description=f"found by qc auto: {recipe.name}"
    )
    record: dict[str, object] = {
        "qc": version("qc-onnx"),
        "metric": judge.metric.name,
        "max_drop": str(judge.max_drop),
        "accepted": found.best.verdict.is_accepted,
        "seconds": round(sum(trial.seconds for trial in found.trials), 1),
    }
    lines = [dumps(replace(file, target=target)), "[record]", *_entries(record)]
    for trial in found.trials:
        lines += ["", "[[record.trial]]", *_entries(trial_record(trial))]
    return "\n".join(lines) + "\n"


def trial_record(trial: Trial) -> dict[str, object]:
    """What is known of a trial, in plain values; numbers that are not finite are left out."""
    verdict = trial.verdict
    numbers = {
        "score": verdict.score,
        "float": verdict.reference,
        "drop": verdict.drop,
        "sampling_error": verdict.error,
        "integer_share": round(trial.integer_share, 4),
        "seconds": round(trial.seconds, 1),
    }
    return {
        "name": trial.recipe.name,
        "rules": len(trial.recipe.rules),
        "samples": verdict.samples,
        "accepted": verdict.is_accepted,
        **{name: value for name, value in numbers.items() if math.isfinite(value)},
    }


def _entries(table: Mapping[str, object]) -> list[str]:
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items()]
