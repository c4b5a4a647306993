"""Finds the numbers of all open quantizers from weights and from calibration data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt, Le

from qc.ir.executor import Observation, Statistics
from qc.ir.formats import IntFormat
from qc.ir.graph import Value
from qc.ir.lower import lower
from qc.ir.model import Model
from qc.ir.op_traits import is_grid_preserving
from qc.ir.quant import Encoding, Quantizer, QuantizerState
from qc.ir.rewriter import Rewriter
from qc.ir.scopes import name_apart, scopes_of

from ..base import Pass, Stage, option
from ..context import PassContext
from .bias import calibrate_biases, leave_float
from .ranges import encoding_of_range, finite_data, mse_range, percentile_range, weight_encoding

Method = Literal["min-max", "percentile", "mse"]


@dataclass(frozen=True)
class Calibrate(Pass):
    """Gives every open quantizer an encoding.

    Weights are read from the model. Activations are observed in one streamed pass over the data. A graph
    output always keeps its full range, since clipping a score caps it. Biases follow from the scales of the
    input and the weight. Frozen and already calibrated quantizers are left alone.
    """

    name = "calibrate"
    stage = Stage.ANNOTATE
    needs = frozenset({"executor"})

    method: Method = option("min-max", "how the range of an activation is found")
    percentile: Annotated[float, Gt(0), Le(100)] = option(
        99.999, "share of the values that the method percentile covers, in percent"
    )
    weights: Literal["min-max", "mse"] = option("min-max", "how the range of a weight is found")

    def run(self, model: Model, context: PassContext) -> None:
        unknown = [
            q for q in model.quant.quantizers() if q.state is QuantizerState.OPEN and not q.spec.derived
        ]
        observed: dict[Quantizer, list[Value]] = {}
        for quantizer in unknown:
            values = _values(model, quantizer)
            if _needs_no_numbers(quantizer):
                encoding = encoding_of_range(quantizer.spec, np.zeros(()), np.zeros(()))
                self._set(model, quantizer, encoding, "a format that needs no scale")
            elif quantizer.spec.fixed_range is not None:
                ends = np.asarray(quantizer.spec.fixed_range)
                self._set(model, quantizer, encoding_of_range(quantizer.spec, *ends), "fixed range")
            elif len(values) == 1 and values[0].const is not None:
                array = finite_data(values[0].const)
                self._set(model, quantizer, weight_encoding(quantizer.spec, array, self.weights == "mse"))
            else:
                observed[quantizer] = values
        if observed:
            self._calibrate(model, context, observed)
        calibrate_biases(model)

    def _calibrate(self, model: Model, context: PassContext, observed: dict[Quantizer, list[Value]]) -> None:
        statistics = self._observe(model, context, observed)
        scopes = scopes_of(model.graph)
        unseen: dict[Quantizer, list[Value]] = {}
        for quantizer, values in observed.items():
            ends = self._range(quantizer, values, statistics, any(map(scopes.is_exposed, values)))
            if ends is None:
                unseen[quantizer] = values
                continue
            low, high = ends
            encoding = encoding_of_range(quantizer.spec, np.asarray(low), np.asarray(high))
            self._set(model, quantizer, encoding, f"{self.method} gave [{low:.6g}, {high:.6g}]")
        if unseen:
            sites = [site for quantizer in unseen for site in model.quant.sites_of(quantizer)]
            leave_float(model, sites, "no calibration sample reached it")
            context.notes.append(_unseen_note(list(dict.fromkeys(chain(*unseen.values())))))

    def _observe(
        self, model: Model, context: PassContext, observed: dict[Quantizer, list[Value]]
    ) -> dict[Value, Statistics]:
        """Statistics of every tensor that some quantizer has to cover, from one pass over the data."""
        wanted = dict.fromkeys(
            value
            for values in observed.values()
            for value in values
            if value.const is None and not _is_moved(value, values)
        )
        request = Observation(histogram=self.method != "min-max")
        data = context.required_data(f"pass '{self.name}'")
        feeds = context.track(data, "calibrating", getattr(data, "length", None))
        rewriter = Rewriter(model)
        with rewriter.trial():
            name_apart(rewriter)
            sources = {value.name: value for value in wanted}
            found = context.required_executor().observe(
                lower(model), dict.fromkeys(sources, request), feeds, base_dir=model.base_dir
            )
        return {sources[name]: statistics for name, statistics in found.items()}

    def _range(
        self, quantizer: Quantizer, values: list[Value], statistics: dict[Value, Statistics], exposed: bool
    ) -> tuple[float, float] | None:
        """The range that covers all values that hold the quantizer; None if no number of them was seen."""
        ends = [_constant_range(value) for value in values if value.const is not None]
        merged: Statistics | None = None
        for value in values:
            if value in statistics:
                merged = statistics[value] if merged is None else merged.merge(statistics[value])
        if merged is not None and merged.count:
            ends.append(self._estimate(quantizer, merged, exposed))
        return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None

    def _estimate(self, quantizer: Quantizer, statistics: Statistics, exposed: bool) -> tuple[float, float]:
        if self.method == "min-max" or exposed:
            return float(statistics.minimum), float(statistics.maximum)
        if self.method == "percentile":
            return percentile_range(statistics, self.percentile)
        return mse_range(statistics, quantizer.spec)

    def _set(self, model: Model, quantizer: Quantizer, encoding: Encoding, reason: str = "") -> None:
        model.quant.calibrate(quantizer, encoding, reason or f"from the constant, {self.weights}")


def _needs_no_numbers(quantizer: Quantizer) -> bool:
    """Whether the format has no scale (16-bit floats)."""
    format = quantizer.spec.format
    return not isinstance(format, IntFormat) and not format.scaled


def _values(model: Model, quantizer: Quantizer) -> list[Value]:
    """The tensors that hold the quantizer, each by its original."""
    return list(dict.fromkeys(site.value.original for site in model.quant.sites_of(quantizer)))


def _is_moved(value: Value, group: list[Value]) -> bool:
    """Whether a data mover made ``value`` from another one of the group, whose statistics cover it."""
    producer = value.graph.producer(value)
    if producer is None or not is_grid_preserving(producer):
        return False
    source = value.graph.op_inputs(producer)[0]
    return source is not None and source.original in group


def _unseen_note(values: list[Value]) -> str:
    more = f" and {len(values) - 1} more" if len(values) > 1 else ""
    return (
        f"no calibration sample reached '{values[0].name}'{more}: there no grid is known and tensors stay "
        "float; calibrate on data that takes every branch and runs every loop"
    )


def _constant_range(value: Value) -> tuple[float, float]:
    assert value.const is not None
    array = finite_data(value.const)
    return (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
