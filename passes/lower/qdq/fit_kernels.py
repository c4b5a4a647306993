"""What lowering changes about convolutions and recurrent ops so that a device runs them quickly, and back.

A model that is read is first put into the form that it had without it. What is done to convolutions changes
no result.
"""

from __future__ import annotations

from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ...framework.target import Target
from ...simplify.float_twins.lookups import look_up_numbers
from .folded_weights import unfold_weights
from .keep_float import unkeep_float
from .keep_layout import unkeep_layout
from .openvino.reductions import unkeep_reductions
from .pad_channels import pad_channels, unpad_channels
from .recurrent import fit_recurrent, unfit_recurrent
from .restored_products import restore_products
from .shift_weights import shift_weights, unshift_weights


def fit_kernels(
    model: Model, rewriter: Rewriter, target: Target, pad: bool, shift: bool, recurrent: bool
) -> None:
    """Pads channels of convolutions, shifts their weights, and fits recurrent ops, as the target wants it."""
    if pad:
        pad_channels(model, rewriter, target.lowering.least_channels)
    if shift and target.lowering.shift_weights_from:
        shift_weights(model, rewriter, target.lowering.shift_weights_from)
    if recurrent:
        fit_recurrent(model, rewriter, target)


def unfit_kernels(model: Model) -> None:
    """Undoes :func:`fit_kernels`, what keeps ops apart and stored products, for whichever target it was."""
    rewriter = Rewriter(model)
    unkeep_float(model, rewriter)
    unkeep_layout(model, rewriter)
    unkeep_reductions(model, rewriter)
    unshift_weights(model, rewriter)
    unpad_channels(model, rewriter)
    unfit_recurrent(model, rewriter)
    unfold_weights(model, rewriter)
    restore_products(model, rewriter)
    look_up_numbers(model, rewriter)
