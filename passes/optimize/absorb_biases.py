"""Moves what every result in front of a Relu is at least into the biases behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from qc.ir.executor import Observation
from qc.ir.graph import Op, Use
from qc.ir.model import Model
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage
from ..framework.context import PassContext
from .layers.layer import Layer, layers_of
from .layers.observed import observed_in_float
from .scaling.operators import ONE_INPUT

# What counts as none, as a share of the largest result.
_NOTHING = 1e-3


@dataclass(frozen=True)
class AbsorbBiases(Pass):
    """Moves what every result in front of a Relu is at least into the biases behind it.

    A channel that is never below 10 on the data takes the steps of its grid from 0 to 10 for nothing: Relu
    does nothing to it, so 10 can be taken from the bias in front, and what the layers behind made of it added
    to theirs (absorbing high biases, in M. Nagel et al., Data-Free Quantization Through Weight Equalization
    and Bias Correction, 2019, where it is the mean less three deviations of a normalization). The float model
    computes the same as long as no result is lower than on the data, so give it many samples.

    Layers behind are those that read nothing but the Relu and do not pad it, since zeros at the borders would
    have to become other numbers. ``equalize`` in front makes such channels, as it enlarges those with small
    weights. It helps little, and only where such a channel is the largest of its tensor.
    """

    name = "absorb-biases"
    stage = Stage.FLOAT
    needs = frozenset({"data", "executor"})
    tolerance = 1e-5

    def run(self, model: Model, context: PassContext) -> None:
        places = list(_places(model))
        if not places:
            return
        asked = {layer: (layer.result, Observation("range", layer.output_axis)) for layer, _ in places}
        data = context.required_data(f"pass '{self.name}'")
        found = observed_in_float(model, asked.values(), data, context.required_executor())
        rewriter = Rewriter(model)
        for layer, readers in places:
            seen = found[asked[layer]]
            least, largest = seen.minimum.astype(np.float64), seen.maximum.astype(np.float64)
            absorbed = np.where(np.isfinite(least) & (least > _NOTHING * largest.max()), least, 0)
            if absorbed.any():
                left = (largest - absorbed).max()
                reason = (
                    f"absorb biases of {np.count_nonzero(absorbed)} of {absorbed.size} channels: "
                    f"the largest is {left:.3g} instead of {largest.max():.3g}"
                )
                with rewriter.action(reason, layer.op):
                    _absorb(rewriter, layer, readers, absorbed)


def _absorb(rewriter: Rewriter, layer: Layer, readers: list[Layer], absorbed: np.ndarray) -> None:
    layer.add_to_bias(rewriter, -absorbed)
    for reader in readers:
        if reader.bias is not None and reader.bias.value is None:
            reader.own_bias(rewriter)
        products = reader.matrix * reader.by_feature(absorbed)
        reader.add_to_bias(rewriter, reader.gain * products.sum(axis=2).ravel())


def _places(model: Model) -> Iterator[tuple[Layer, list[Layer]]]:
    """Layers whose results only pass a Relu, and the layers behind it."""
    layers = {layer.op: layer for layer in layers_of(model)}
    for layer in layers.values():
        result = layer.result
        use = result.only_use
        has_bias = layer.bias is not None and layer.bias.value is not None
        if not has_bias or use is None or not _is_relu(use.op):
            continue
        behind = use.op.outputs[0]
        if behind is None or behind.is_output:
            continue
        readers = [_reader(layers, layer, use) for use in behind.uses]
        found = [reader for reader in readers if reader is not None]
        if found and len(found) == len(readers):
            yield layer, found


def _reader(layers: Mapping[Op, Layer], layer: Layer, use: Use) -> Layer | None:
    """The layer that reads channels, if its bias can take what they are less; None otherwise."""
    reader = layers.get(use.op)
    if reader is None or use.port != 0 or reader.input_axis != layer.output_axis or reader.bias is None:
        return None
    pads = any(use.op.attribute("pads", ())) or use.op.attribute("auto_pad", "NOTSET") not in (
        "NOTSET",
        "VALID",
    )
    return reader if not pads and not use.op.is_type("ConvTranspose") else None


def _is_relu(op: Op) -> bool:
    is_relu = op.is_type("Relu") or (op.is_type("Clip") and ONE_INPUT["Clip"](op, np.zeros(1)) is not None)
    return is_relu and op.num_outputs == 1
