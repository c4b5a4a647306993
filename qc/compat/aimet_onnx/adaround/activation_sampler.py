"""What a layer of a simulation reads, and what it makes in the float model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from qc.runtime import OrtExecutor

from ...missing import PartlyProvided
from ..layer_output_utils import computed_tensors
from ..quantsim import QuantizationSimModel
from ..utils import AnyModel, create_input_dict, proto_of

_QUANTIZED = "_updated"  # behind the name of a tensor: as its quantizer gives it


class ActivationSampler(PartlyProvided):
    """Runs a simulation and its float model, and gives one tensor of each.

    Args:
        fp_act_name: a tensor of the float model.
        quant_act_name: a tensor of the simulation; with ``_updated`` behind it, as its quantizer gives it.
        quant_sim: the simulation.
        fp32_model: the float model.
    """

    def __init__(
        self, fp_act_name: str, quant_act_name: str, quant_sim: QuantizationSimModel, fp32_model: AnyModel
    ) -> None:
        self._exact, self._simulation = proto_of(fp32_model), quant_sim.model.model
        self._made, self._read = fp_act_name, quant_act_name
        if quant_act_name.endswith(_QUANTIZED):
            self._read = computed_tensors(self._simulation)[quant_act_name.removesuffix(_QUANTIZED)]

    def sample_and_place_all_acts_on_cpu(
        self, dataset: Iterable[Any]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The tensors of all batches: those of the simulation, and those of the float model."""
        feeds = [create_input_dict(self._exact, batch) for batch in dataset]
        read = OrtExecutor().run(self._simulation, feeds, [self._read])
        made = OrtExecutor().run(self._exact, feeds, [self._made])
        return [found[self._read] for found in read], [found[self._made] for found in made]

    def sample_acts(self, model_inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The two tensors of one feed."""
        (read,), (made,) = self.sample_and_place_all_acts_on_cpu([model_inputs])
        return read, made
