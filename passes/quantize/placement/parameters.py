"""Trained parameters as AIMET's simulation has them while it observes activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from qc.ir.facts.op_traits import is_trained
from qc.ir.graph import Use, Value
from qc.ir.quant.arithmetic import dequantize, fake_quantize, rounded, spread
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, Quantizer
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter

_EXACT_BITS = 16  # wider codes, those of biases, are no whole numbers in float32


def round_parameters(
    rewriter: Rewriter, encoding_of: Callable[[Quantizer, Value], Encoding | None] | None = None
) -> None:
    """Rounds every trained parameter that has a grid, for all its readers or for some of them.

    To be used in a trial: the numbers in the graph change, the quantizers stay.

    Args:
        encoding_of: the grid of a parameter that has a quantizer; default: that of the quantizer.
    """
    quant = rewriter.model.quant
    # Grids of single readers come first: that of all readers is for those that are left.
    for site in sorted(quant.sites(), key=lambda site: site.op is None):
        quantizer, value = quant.get(site), site.value
        if quantizer is None or value.const is None or not is_trained(value):
            continue
        encoding = encoding_of(quantizer, value) if encoding_of is not None else quantizer.encoding
        if encoding is not None:
            array = value.const.numpy()
            numbers = rounded(array, quantizer) if quantizer.codes is not None else _half_up(array, encoding)
            constant = rewriter.add_constant(value.graph, numbers, value.name)
            rewriter.replace_uses(value, constant, where=partial(_is_at, site), outputs=False)


def _is_at(site: Site, use: Use) -> bool:
    return site.op is None or (use.op, use.port) == (site.op, site.port)


def _half_up(x: np.ndarray, encoding: Encoding) -> np.ndarray:
    """``x`` on the grid. Codes count from the lowest one when they are rounded, so that ties go up."""
    if not isinstance(encoding.spec.format, IntFormat) or encoding.spec.format.bits > _EXACT_BITS:
        return fake_quantize(x, encoding)
    first, last = encoding.spec.code_range
    lowest = first + encoding.spec.shift
    origin = (spread(encoding.zero_point, encoding, x.shape) - lowest).astype(np.float32)
    steps = np.floor(x / spread(encoding.scale, encoding, x.shape) + origin + np.float32(0.5))
    return dequantize(np.clip(steps, 0, last - first).astype(np.int32) + first, encoding)
