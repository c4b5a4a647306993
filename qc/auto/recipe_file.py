"""Writes a recipe down: a pipeline file that gives the same model again, and how it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qc.passes import dumps
from qc.passes.framework.toml_source import toml_key, toml_value
from qc.passes.quantize.precision.rules import rules_of
from qc.passes.quantize.set_precision import with_precision
from qc.versions import versions

from .climb import Found
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
    verdict = found.best.verdict
    record: dict[str, object] = {
        **versions(),
        "metric": judge.metric.name,
        "max_drop": str(judge.max_drop),
        "float": verdict.reference,
        "score": verdict.score,
        "accepted": found.is_accepted,
        "seconds": round(sum(trial.seconds for trial in found.trials), 1),
    }
    if found.latency is not None:
        record["latency"] = round(found.latency.ratio, 3)
    if found.ended:
        record["ended"] = found.ended
    lines = [dumps(replace(file, target=target)), "[record]", *_entries(record)]
    for trial in found.trials:
        lines += ["", "[[record.trial]]", *_entries(trial.record())]
    for failure in found.failures:
        entries = _entries({"name": failure.recipe.name, "reason": failure.reason})
        lines += ["", "[[record.failure]]", *entries]
    return "\n".join(lines) + "\n"


def _entries(table: Mapping[str, object]) -> list[str]:
    return [f"{toml_key(key)} = {toml_value(value)}" for key, value in table.items()]
