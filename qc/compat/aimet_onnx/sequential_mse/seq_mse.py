"""Sequential MSE: grids of weights by what layers make on them; ``choose-weight-ranges`` in other names."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from onnx import ModelProto

from qc.passes.optimize.choose_weight_ranges import ChooseWeightRanges
from qc.passes.optimize.layers.layer import layers_of, named_layers

from ...missing import PartlyProvided
from ..deprecation import warn_deprecated
from ..errors import ArgumentError
from ..feeds import feeds_of
from ..quantsim import QuantizationSimModel

SUPPORTED_MODULES = ("Conv", "ConvTranspose", "Gemm", "MatMul")  # whose weights get their grids so


def apply_seq_mse(
    sim: QuantizationSimModel,
    inputs: Iterable[Any],
    num_candidates: int = 20,
    nodes_to_exclude: list[str] | None = None,
) -> None:
    """Chooses the grid of each weight by the error of what its layer makes, and freezes it.

    Quantizers without numbers get some from the same data; those of activations give them up again.

    Args:
        inputs: feeds, or arrays for a model with one input.
        num_candidates: how many ranges are tried, up to that of the weight; steps around the best follow.
        nodes_to_exclude: names of nodes whose weights are left as they are.

    Raises:
        UsageError: there is no layer of such a name.
        DataError: there is no data, or it does not fit the model.
    """
    excluded = {layer.op for layer in named_layers(sim._ir, nodes_to_exclude)} if nodes_to_exclude else set()
    names = tuple(layer.op.name for layer in layers_of(sim._ir) if layer.op not in excluded)
    feeds = feeds_of(sim.model.model, inputs)
    if names:
        step = ChooseWeightRanges(candidates=num_candidates, samples=max(feeds.length or 0, 1), only=names)
        sim._settle_weights(step, feeds, names)


@dataclass
class SeqMseParams:
    """What :class:`SequentialMse` takes.

    Attributes:
        num_batches: how many feeds to look at; None for all.
        num_candidates: how many ranges are tried.
        inp_symmetry, loss_fn: ``symqt`` and ``mse``. From the inputs of the quantized model a layer is to
            make what it makes in the float model.
    """

    num_batches: int | None
    num_candidates: int = 20
    inp_symmetry: str = "symqt"
    loss_fn: str = "mse"

    def __post_init__(self) -> None:
        for name, only in (("inp_symmetry", "symqt"), ("loss_fn", "mse")):
            if getattr(self, name) != only:
                raise ArgumentError(f"{name} is '{getattr(self, name)}'; qc has '{only}' alone")


class SequentialMse(PartlyProvided):
    """Sequential MSE as a class; what it does is :func:`apply_seq_mse`.

    Args:
        model: not needed.
        sim: the simulation.
        params: how much to look at.
        data_loader: feeds, or arrays for a model with one input.
        nodes_to_exclude: names of nodes whose weights are left as they are.
    """

    def __init__(
        self,
        model: ModelProto,
        sim: QuantizationSimModel,
        params: SeqMseParams,
        data_loader: Collection[Any],
        nodes_to_exclude: list[str] | None = None,
    ) -> None:
        self._sim, self._params, self._excluded = sim, params, nodes_to_exclude
        self._data = list(data_loader)[: params.num_batches]

    @staticmethod
    def apply_seq_mse(
        model: ModelProto, sim: QuantizationSimModel, params: SeqMseParams, data_loader: Collection[Any]
    ) -> None:
        """Does it at once."""
        warn_deprecated("SequentialMse.apply_seq_mse", "aimet_onnx.apply_seq_mse")
        SequentialMse(model, sim, params, data_loader).apply_seq_mse_algo()

    def apply_seq_mse_algo(self) -> None:
        """Chooses the grids of all weights."""
        apply_seq_mse(self._sim, self._data, self._params.num_candidates, self._excluded)
