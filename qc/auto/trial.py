"""A trial: a recipe that was compiled and judged, in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from qc.compiler.compiled import Compiled
from qc.ir.facts.op_traits import is_trained
from qc.ir.model import Model
from qc.ir.onnx.save import external_files

from .judging import Judgement
from .recipes import Recipe

FLOAT_BITS = 32


@dataclass(frozen=True)
class Trial:
    """A recipe that was tried.

    Attributes:
        recipe: what was tried.
        verdict: on what came out.
        quantized_share: the share of the multiplications on quantized data, or by quantized weights alone,
            as of an LSTM that quantizes its data itself; 0 if there are none.
        weight_bits: bits of a weight, on average over all elements of tensors of two and more axes.
        float_weights: the share of these elements that stay float.
        size: bytes of the model, weights included.
        seconds: how long it took, judging included.
    """

    recipe: Recipe
    verdict: Judgement
    quantized_share: float
    weight_bits: float
    float_weights: float
    size: int
    seconds: float

    def __str__(self) -> str:
        verdict = self.verdict
        scores = f"score {verdict.score:.4g}{verdict.error_text}, float {verdict.reference:.4g}"
        return f"{self.recipe.name}: {scores}: {verdict.outcome} ({self.seconds:.0f} s)"

    def numbers(self) -> dict[str, Any]:
        """All but the recipe, in plain values, from which :func:`trial_from` makes it again."""
        own = {name: value for name, value in vars(self).items() if name not in ("recipe", "verdict")}
        return {**own, "verdict": asdict(self.verdict)}

    def record(self) -> dict[str, object]:
        """What is told of it, in plain values; numbers that are not finite are left out."""
        verdict = self.verdict
        numbers = {
            "score": verdict.score,
            "float": verdict.reference,
            "drop": verdict.drop,
            "sampling_error": verdict.error,
            "quantized_share": round(self.quantized_share, 4),
            "weight_bits": round(self.weight_bits, 2),
            "size": self.size,
            "seconds": round(self.seconds, 1),
        }
        return {
            "name": self.recipe.name,
            "rules": len(self.recipe.rules),
            "samples": verdict.samples,
            "accepted": verdict.is_accepted,
            "certain": verdict.is_certain,
            **{name: value for name, value in numbers.items() if math.isfinite(value)},
        }


def trial_of(recipe: Recipe, verdict: Judgement, made: Compiled, seconds: float) -> Trial:
    """The trial of a recipe that made a model."""
    done = made.coverage.multiplied
    share = done.share + (done.weights / done.total if done.total else 0.0)
    return Trial(recipe, verdict, share, *weight_bits(made.ir), _size(made), seconds)


def trial_from(recipe: Recipe, numbers: Mapping[str, Any]) -> Trial:
    """The trial that :meth:`Trial.numbers` told of.

    Raises:
        KeyError, TypeError: they are others.
    """
    return Trial(recipe, **{**numbers, "verdict": Judgement(**numbers["verdict"])})


def weight_bits(ir: Model) -> tuple[float, float]:
    """Bits of a weight, on average over all elements of tensors of two and more axes, and the float share."""
    elements = bits = floats = 0
    for graph in ir.graphs():
        for value in graph.values():
            if value.const is None or len(value.const.shape) < 2 or not is_trained(value):
                continue
            held = [one for site in ir.quant.sites_on(value) if (one := ir.quant.get(site)) is not None]
            size = math.prod(value.const.shape)
            elements += size
            bits += size * (held[0].spec.format.bits if held else FLOAT_BITS)
            floats += 0 if held else size
    return (bits / elements, floats / elements) if elements else (0.0, 0.0)


def _size(made: Compiled) -> int:
    model = made.model
    outside = {file for file in external_files(model, made.ir.base_dir) if file.is_file()}
    return int(model.ByteSize()) + sum(file.stat().st_size for file in outside)
