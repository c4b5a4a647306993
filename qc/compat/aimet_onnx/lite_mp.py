"""``flip_layers_to_higher_precision``: more bits for the layers that quantization harms most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .defs import float16, int16, qtype
from .errors import ArgumentError
from .simulation.exception_rules import apply_exception_rules

if TYPE_CHECKING:
    from .quantsim import QuantizationSimModel


def flip_layers_to_higher_precision(
    sim: QuantizationSimModel,
    layer_sensitivity_dict: Mapping[str, float],
    percent_to_flip: float = 10.0,
    override_precision: qtype | tuple[qtype, qtype] = float16,
) -> None:
    """Gives the layers with the lowest scores another format; calibrate the simulation again afterwards.

    That is the format of a layer's parameters, of what it makes, and of the inputs of the model that it
    reads. What is frozen stays as it is.

    Args:
        sim: the simulation.
        layer_sensitivity_dict: the score of each layer alone, as ``analyze_per_layer_sensitivity`` gives it.
        percent_to_flip: how many of the layers.
        override_precision: the format of parameters and activations, or one for each.

    Raises:
        UsageError: the format of activations is neither int16 nor float16, the share is none, a score is NaN,
            or there is no such layer.
    """
    both = override_precision if isinstance(override_precision, tuple) else (override_precision,) * 2
    param, activation = map(qtype.as_qtype, both)
    if activation not in (int16, float16):
        raise ArgumentError(f"activations get int16 or float16, not {activation}")
    if not 0 <= percent_to_flip <= 100:
        raise ArgumentError(f"{percent_to_flip:g} % of the layers cannot get more bits; give 0 to 100")
    unknown = next((name for name, score in layer_sensitivity_dict.items() if math.isnan(score)), None)
    if unknown is not None:
        raise ArgumentError(f"the score of '{unknown}' is NaN, which cannot be compared; give it a number")
    worst_first = sorted(layer_sensitivity_dict, key=lambda name: layer_sensitivity_dict[name])
    count = math.ceil(len(worst_first) * percent_to_flip / 100)
    for name in worst_first[:count]:
        op = sim.connected_graph.get_all_ops().get(name)
        if op is None:
            raise ArgumentError(f"the model has no layer '{name}'")
        read, made, parameters = sim.get_op_quantizers(op)
        for quantizers, precision in ((read + made, activation), (parameters.values(), param)):
            for quantizer in quantizers:
                if not quantizer.is_encoding_frozen():
                    quantizer.set_precision(precision)
    apply_exception_rules(sim)
