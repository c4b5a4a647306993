"""Lowers to a simulation: float arithmetic with every quantized tensor rounded to its grid."""

from __future__ import annotations

from dataclasses import dataclass

from qc.ir.errors import UsageError
from qc.ir.model import Model
from qc.ir.quant.arithmetic import Rounding

from ..framework.base import Pass, Stage, option
from ..framework.context import Artifact, PassContext
from ..framework.target import load_target
from .rounding.device import DeviceArithmetic
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

    ``device=qnn-htp`` computes codes as that device does: multipliers of few bits instead of divisions,
    sums cut to fewer bits, activations that run as one with the op before and so skip its grid. A quantizer
    that is switched off there makes what reads and what writes its tensor float again; one that repeats
    another, behind ops that only move numbers, is that other one. Tensors of uint8
    made by ops that the target's table ``arithmetic`` lists are exact; a note names the others, which are
    rounded as usual.
    """

    name = "to-simulation"
    stage = Stage.LOWER
    makes = "simulation"

    rounding: Rounding = option(
        Rounding.HALF_EVEN,
        "how ties are rounded: half-even as in ONNX, half-away from zero, half-up as AIMET simulates",
    )
    weights: WeightRounding = option(
        WeightRounding.STORED,
        "stored: rounded once; settable: rounded at every run, so that sessions can change them",
    )

    device: str = option(
        "", "a target whose device's arithmetic is computed, such as qnn-htp; default: exact"
    )

    def run(self, model: Model, context: PassContext) -> None:
        device = self._device_arithmetic(model)
        with simulated(model, self.rounding, self.weights, device) as simulation:
            context.add_artifact(self.makes, Artifact("onnx", simulation, ".simulation.onnx"))
        if device is not None and device.unknown:
            found = ", ".join(f"{op_type} ({count})" for op_type, count in sorted(device.unknown.items()))
            context.notes.append(
                f"the simulation rounds what these make as usual, as it is not known how {self.device} "
                f"computes it: {found}"
            )

    def _device_arithmetic(self, model: Model) -> DeviceArithmetic | None:
        if not self.device:
            return None
        kinds = load_target(self.device).arithmetic
        if not kinds:
            raise UsageError(
                f"the target '{self.device}' says nothing of the arithmetic of its device; leave out "
                "'device' of to-simulation"
            )
        return DeviceArithmetic(model, kinds)
