"""What lowering changes about convolutions so that a device has quick kernels for them, and back again.

None of it changes a result, so a model that is read is first put into the form that it had without it.
"""

from __future__ import annotations

from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ...framework.target import Target
from .pad_channels import pad_channels, unpad_channels
from .shift_weights import shift_weights, unshift_weights


def fit_kernels(model: Model, rewriter: Rewriter, target: Target, pad: bool, shift: bool) -> None:
    """Pads the channels of convolutions, and shifts their weights, as far as the target wants it."""
    if pad:
        pad_channels(model, rewriter, target.least_channels)
    if shift and target.shift_weights_from:
        shift_weights(model, rewriter, target.shift_weights_from)


def unfit_kernels(model: Model) -> None:
    """Undoes :func:`fit_kernels`, for whichever target it was done."""
    rewriter = Rewriter(model)
    unshift_weights(model, rewriter)
    unpad_channels(model, rewriter)
