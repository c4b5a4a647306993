"""Ranges that a calibrator of ONNX Runtime found before, in place of data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from qc.ir.model import Model
from qc.ir.quant.ranges import encoding_of_range
from qc.passes.framework.base import Pass, Stage
from qc.passes.framework.context import PassContext

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class TensorRanges(Pass):
    """Gives activations the grids of their ranges; one that tensors share covers all of theirs."""

    name = "tensor-ranges"
    stage = Stage.ANNOTATE

    ranges: Ranges = field(metadata={"option": False})

    def run(self, model: Model, context: PassContext) -> None:
        """A tensor without a range stays float, which a note tells."""
        missing: dict[str, None] = {}
        for quantizer in model.quant.quantizers():
            sites = model.quant.sites_of(quantizer)
            values = [site.value.original for site in sites]
            if quantizer.encoding is not None or any(value.const is not None for value in values):
                continue
            found = [self.ranges[value.name] for value in values if value.name in self.ranges]
            if found:
                low, high = np.asarray(found).T
                encoding = encoding_of_range(quantizer.spec, low.min(), high.max())
                model.quant.calibrate(quantizer, encoding, "its range was found before")
                model.quant.freeze(quantizer)
                continue
            missing |= dict.fromkeys(value.name for value in values)
            for site in sites:
                model.quant.remove(site, "no range was given for it")
        if missing:
            name = next(iter(missing))
            context.notes.append(
                f"no range was given for '{name}', which stays float ({len(missing)} in all)"
            )
