"""Whether the codes of activations have a sign, which changes no number."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from qc.ir.facts.op_traits import is_trained
from qc.ir.model import Model
from qc.ir.quant.formats import WIDEST_FREE, IntFormat
from qc.ir.quant.spec import Encoding, Quantizer

# ``symmetric``: those of symmetric grids have one.
ActivationCodes = Literal["unsigned", "signed", "symmetric"]


def code_activations(model: Model, codes: ActivationCodes) -> None:
    """Gives activations signed or unsigned codes for the same numbers; those of 32 bits stay as they are."""
    for quantizer in model.quant.quantizers():
        spec = quantizer.spec
        if not isinstance(spec.format, IntFormat) or spec.format.bits > WIDEST_FREE or spec.derived:
            continue
        if _is_of_parameter(model, quantizer):
            continue
        signed = codes == "signed" or (codes == "symmetric" and spec.symmetric)
        if spec.format.signed != signed:
            _recode(model, quantizer, IntFormat(spec.format.bits, signed), f"{codes} codes of activations")


def _is_of_parameter(model: Model, quantizer: Quantizer) -> bool:
    return any(is_trained(site.value.original) for site in model.quant.sites_of(quantizer))


def _recode(model: Model, quantizer: Quantizer, format: IntFormat, reason: str) -> None:
    before, encoding = quantizer.spec.format, quantizer.encoding
    assert isinstance(before, IntFormat)
    model.quant.thaw(quantizer, reason)
    model.quant.respec(quantizer, replace(quantizer.spec, format=format), reason)
    if encoding is not None:
        zero_point = encoding.zero_point + format.lowest - before.lowest
        model.quant.calibrate(quantizer, Encoding(quantizer.spec, encoding.scale, zero_point), reason)
