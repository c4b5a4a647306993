"""Biases that layers have to themselves, so that one can be changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qc.ir.model import Model
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter

from ...framework.target import Target
from ...quantize.calibration.bias import BIAS, calibrate_biases
from .constant import Constant
from .layer import Layer


def biases(layers: Iterable[Layer]) -> Iterator[tuple[Layer, Constant]]:
    """The layers that have a bias or could get one, with it."""
    return ((layer, layer.bias) for layer in layers if layer.bias is not None)


def make_own_biases(model: Model, layers: Iterable[Layer], target: Target | None) -> None:
    """Gives layers that have none a bias of zeros, on a grid if others have one, and copies shared ones.

    All are stored in the type that they are read in.
    """
    found = list(biases(layers))
    grids = [bias.quantizer for _, bias in found if bias.value is not None]
    is_quantized = any(grids) if grids else target is not None and target.quantize_bias
    rewriter = Rewriter(model)
    for layer, bias in found:
        if bias.is_own and not bias.is_converted:
            continue
        is_new = bias.value is None
        with rewriter.action("a bias of its own", layer.op):
            layer.own_bias(rewriter)
        if is_new and is_quantized:
            model.quant.place(Site(bias.constant, bias.op, bias.port), BIAS, f"bias of {layer.op.label}")
        elif is_new:
            model.quant.skip(bias.constant, "a bias beside others in float")
    calibrate_biases(model)
