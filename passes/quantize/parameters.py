"""Trained parameters as AIMET's simulation has them while it observes activations."""

from __future__ import annotations

import numpy as np

from qc.ir.arithmetic import dequantize, fake_quantize, spread
from qc.ir.formats import IntFormat
from qc.ir.graph import Value
from qc.ir.op_traits import is_trained
from qc.ir.quant import Encoding
from qc.ir.rewriter import Rewriter


def round_parameters(rewriter: Rewriter) -> None:
    """Rounds every trained parameter that has a grid for all its readers.

    To be used in a trial: the numbers in the graph change, the quantizers stay.
    """
    quant = rewriter.model.quant
    for value in _quantized(rewriter):
        quantizer = quant.of_value(value)
        if quantizer is not None and quantizer.encoding is not None and value.const is not None:
            rounded = _rounded(value.const.numpy(), quantizer.encoding)
            constant = rewriter.add_constant(value.graph, rounded, value.name)
            rewriter.replace_uses(value, constant, outputs=False)


def _quantized(rewriter: Rewriter) -> list[Value]:
    """The trained parameters that have a quantizer."""
    sites = rewriter.model.quant.sites()
    return list(dict.fromkeys(site.value for site in sites if site.op is None and is_trained(site.value)))


def _rounded(x: np.ndarray, encoding: Encoding) -> np.ndarray:
    """``x`` on the grid. Codes count from the lowest one when they are rounded, so that ties go up."""
    if not isinstance(encoding.spec.format, IntFormat):
        return fake_quantize(x, encoding)
    first, last = encoding.spec.code_range
    lowest = first + encoding.spec.shift
    origin = (spread(encoding.zero_point, encoding, x.shape) - lowest).astype(np.float32)
    steps = np.floor(x / spread(encoding.scale, encoding, x.shape) + origin + np.float32(0.5))
    return dequantize(np.clip(steps, 0, last - first).astype(np.int32) + first, encoding)
