"""Moves what is large in few channels of activations into weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from qc.ir.executor import Executor
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.spec import Encoding, QuantSpec
from qc.ir.quant_table import Site
from qc.ir.rewriter import Rewriter

from ..framework.base import Pass, Stage, option
from ..framework.context import PassContext
from ..quantize.calibration.ranges import mse_encoding, weight_encoding
from .layers.layer import Layer, layers_of
from .layers.ratio import ratio
from .prerequisites import lacks_data
from .smoothing.channels import Channels, channels_of
from .smoothing.objective import Reading, candidates
from .smoothing.observed import observed

# What an error has to be below, as a share of what it was, for weights to be touched.
_GAIN = 0.5
# What it has to be above, as a share of the power of the results, for an op to be inserted.
_WORTH_AN_OP = 1e-4


@dataclass(frozen=True)
class Smooth(Pass):
    """Divides the channels of an activation by numbers, and multiplies the weights that read them.

    In many networks a few channels hold all that is large, and the others have a few steps of the grid left.
    Divided where they are made, in the weight of a normalization, a product with a constant or the layer
    before, and multiplied in the layers behind, results stay what they are, and the outliers are in weights,
    which have a scale for each output. This also helps weights alone: those of large channels are rounded to
    finer steps.

    The scale of a channel is ``x ** a / w ** (1 - a)``, with ``x`` the largest magnitude of its data and
    ``w`` that of its weights (SmoothQuant: G. Xiao et al., 2022), or ``m ** a``, with ``m`` the root of the
    mean square of its data (as AWQ: J. Lin et al., 2023). The exponent is searched for each tensor: it is
    that with the least error at the results of all layers that read it, with data and weights on their grids,
    from the range and the mean square of each channel. Grids cover one half of the samples and are judged on
    the other: where each channel fills the grid, new samples go beyond it. Where no exponent takes away half
    of the error, nothing is changed.

    Helps where channels differ in size: transformers and mobile networks. Does not where they are alike, or
    where something else reads the tensor, such as a residual sum. Scales pass through ReLU, pooling,
    Reshape, and products such as those of gated units. They also pass SiLU, HardSwish and all else that
    multiplies a tensor on a grid of its own by a function of it, as the result of a convolution on ort-cpu
    and qnn-htp: a Mul in front of the function gives it what it reads in the size that it had. On targets
    that compute all in integers that is a depthwise convolution, whose weight has a scale for each channel,
    on a grid that is limited to where the function is not flat; there the function has to be one op, of
    pictures. GELU, Mish and Swish as single ops stay.

    To be run behind ``insert-quantizers``, whose formats it asks for, and before ``calibrate``: what has a
    grid already is left alone. Layers are those of the main graph whose weight is read by nothing else. The
    cost is that of running the float model on the samples. With ``gates_only``, as pipelines for all models
    have it, it does only what needs such an op, and nothing where data can be read only once.
    """

    name = "smooth"
    stage = Stage.ANNOTATE
    needs = frozenset({"data", "executor"})
    uses = frozenset({"target"})
    tolerance = 1e-5
    idempotent = False  # of weights that were scaled, another exponent can be better by a little

    insert: bool = option(False, "insert a Mul where nothing else can divide the channels")
    weights: Literal["min-max", "mse"] = option("min-max", "how calibrate finds the range of a weight")
    samples: Annotated[int, Ge(1)] = option(32, "how many of the samples to look at, at most")
    gates_only: bool = option(False, "scale only what is read by SiLU, HardSwish and the like")

    def run(self, model: Model, context: PassContext) -> None:
        if self.gates_only and not context.can_read_again:
            return
        if all(held.encoding is not None for held in model.quant.quantizers()):
            if self.gates_only:
                return
            place = "it belongs between those that place quantizers and 'calibrate'"
            context.notes.append(f"channels stay as they are: pass '{self.name}' finds no open grid; {place}")
            return
        layers = [layer for layer in layers_of(model) if _is_open(layer)]
        found = channels_of(model, layers, context.has_floats, self.gates_only)
        if self.insert:
            taken = {layer for one in found for layer in one.readers}
            found += _insertable(model, [layer for layer in layers if layer not in taken])
        if not found:
            return
        if lacks_data(context, self.name, "channels stay as they are", "to scale them by"):
            return
        feeds = context.samples(self.samples, f"pass '{self.name}'")
        executor = context.required_executor()
        for one, readings in context.track(observed(model, found, feeds, executor), "smoothing", len(found)):
            span = context.target.grids.scale_span if context.target is not None else 0.0
            self._smooth(model, one, readings, executor, span)

    def _smooth(
        self, model: Model, channels: Channels, readings: list[Reading], executor: Executor, span: float
    ) -> None:
        def grid_of(spec: QuantSpec, array: np.ndarray) -> Encoding:
            if self.weights == "mse":
                return mse_encoding(spec, array, executor)
            return weight_encoding(spec, array)

        def error(scale: np.ndarray) -> float:
            return sum(one.error(scale, grid_of) for one in readings)

        before = error(np.ones_like(readings[0].largest))
        covered = candidates(readings, [one.covered for one in readings], span)
        tried = {name: error(scale) for name, scale in covered.items()}
        best = min(tried, key=tried.__getitem__)
        after, power = tried[best], sum(one.power for one in readings)
        worth = _WORTH_AN_OP * power if channels.gates else 0.0
        if not after < _GAIN * before or before < worth:
            return
        where = ", ".join(one.layer.op.label for one in readings)
        detail = f"{best}, {ratio(power, after)} at the results of {where}, {ratio(power, before)} before"
        rewriter = Rewriter(model)
        with rewriter.action("smooth", channels.value, detail):
            channels.scale(rewriter, candidates(readings, [one.largest for one in readings], span)[best])


def _is_open(layer: Layer) -> bool:
    """Whether the weight of a layer may be changed, and is not on its grid yet."""
    held = layer.weight.quantizer
    is_free = held is None or (held.encoding is None and not held.frozen)
    return is_free and layer.weight.is_own and not layer.weight.is_converted


def _insertable(model: Model, layers: Sequence[Layer]) -> list[Channels]:
    """Tensors that only a Mul can divide: they are quantized for layers alone, or not at all."""
    by_data: dict[Value, list[Layer]] = {}
    for layer in layers:
        data, quant = layer.data, model.quant
        if data.const is None and quant.get(Site(data)) is None:
            by_data.setdefault(data, []).append(layer)
    return [
        Channels(data, None, (), tuple(readers), ((data, readers[0].input_axis),))
        for data, readers in by_data.items()
        if len({reader.input_axis for reader in readers}) == 1
    ]
