"""Lowers to a simulation: float arithmetic with every quantized tensor rounded to its grid."""

from __future__ import annotations

from dataclasses import dataclass

from qc.ir.model import Model
from qc.ir.quant.arithmetic import Rounding

from ..framework.base import Pass, Stage, option
from ..framework.context import Artifact, PassContext
from .rounding.simulation import WeightRounding, simulated


@dataclass(frozen=True)
class ToSimulation(Pass):
    """Makes an ONNX model that rounds activations with ``qc::FakeQuantize`` and computes in float.

    Weights and biases are stored as the floats their codes stand for. The scale, zero point and code limits
    of every activation quantizer are graph inputs with a default (``q<number>/scale``, ``/zero_point``,
    ``/limits``), so that one session can run other settings; a scale of 0 switches the quantizer off. With
    ``weights=settable`` that holds for weights of up to 16 bits as well (but for shifted int2), at the price
    of rounding them at every run. A tensor that is on its grid already, because its op only moves or joins
    tensors that hold the same quantizer, is not rounded again. Run the model with ``qc.Simulation``, or with
    the qc op library: ``qc.runtime.open_session``.
    """

    name = "to-simulation"
    stage = Stage.LOWER

    rounding: Rounding = option(
        Rounding.HALF_EVEN,
        "how ties are rounded: half-even as in ONNX, half-away from zero, half-up as AIMET simulates",
    )
    weights: WeightRounding = option(
        WeightRounding.STORED,
        "stored: rounded once; settable: rounded at every run, so that sessions can change them",
    )

    def run(self, model: Model, context: PassContext) -> None:
        with simulated(model, self.rounding, self.weights) as simulation:
            context.add_artifact("simulation", Artifact("onnx", simulation, ".simulation.onnx"))
