"""Lowers to a simulation: float arithmetic with every quantized tensor rounded to its grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qc.ir.arithmetic import Rounding, fake_quantize
from qc.ir.formats import FloatFormat, IntFormat
from qc.ir.graph import Value
from qc.ir.lower import lower
from qc.ir.model import Model
from qc.ir.quant import Encoding, PerBlock, PerChannel, Quantizer
from qc.ir.rewriter import Rewriter

from ..base import Pass, Stage, option
from ..context import Artifact, PassContext
from .rewire import numbers, rewire

DOMAIN = "qc"


@dataclass(frozen=True)
class ToSimulation(Pass):
    """Makes an ONNX model that rounds activations with ``qc::FakeQuantize`` and computes in float.

    Weights and biases are stored as the floats their codes stand for. The scale, zero point and code limits
    of every activation quantizer are graph inputs with a default (``q<number>/scale``, ``/zero_point``,
    ``/limits``), so that one session can run other settings; a scale of 0 switches the quantizer off. Run
    the model with the qc op library: ``qc.runtime.open_session``.
    """

    name = "to-simulation"
    stage = Stage.LOWER

    rounding: Rounding = option(
        Rounding.HALF_EVEN, "how ties are rounded: half-even as in ONNX, or half-away"
    )

    def run(self, model: Model, context: PassContext) -> None:
        rewriter = Rewriter(model)
        with rewriter.trial():
            rewriter.set_opset(DOMAIN, 1)
            rewire(model, rewriter, _Emitter(rewriter, self.rounding).round_value)
            context.add_artifact("simulation", Artifact("onnx", lower(model), ".simulation.onnx"))


class _Emitter:
    def __init__(self, rewriter: Rewriter, rounding: Rounding) -> None:
        self._rewriter = rewriter
        self._rounding = rounding
        self._parameters: dict[Quantizer, tuple[Value, ...]] = {}

    def round_value(self, value: Value, quantizer: Quantizer) -> Value:
        """A new value: ``value`` rounded to the grid of ``quantizer``."""
        encoding = numbers(quantizer, value)
        if value.const is not None:
            rounded = fake_quantize(value.const.numpy(), encoding, self._rounding)
            return self._rewriter.add_constant(value.graph, rounded, f"{value.name}_simulated")
        op = self._rewriter.add_op(
            value.graph,
            "FakeQuantize",
            (value, *self._inputs(value, quantizer, encoding)),
            [f"{value.name}_simulated"],
            {**_attributes(encoding), "rounding": self._rounding.value},
            DOMAIN,
        )
        result = value.graph.op_outputs(op)[0]
        assert result is not None
        self._rewriter.set_type(result, value.type)
        return result

    def _inputs(self, value: Value, quantizer: Quantizer, encoding: Encoding) -> tuple[Value, ...]:
        """Scale, zero point and limits; the same for all sites of a quantizer."""
        if quantizer not in self._parameters:
            arrays = {"scale": encoding.scale, "zero_point": encoding.zero_point, "limits": _limits(encoding)}
            self._parameters[quantizer] = tuple(
                self._rewriter.add_default_input(value.graph, array, f"q{quantizer.id}/{name}")
                for name, array in arrays.items()
            )
        return self._parameters[quantizer]


def _limits(encoding: Encoding) -> np.ndarray:
    codes = encoding.spec.code_range if isinstance(encoding.spec.format, IntFormat) else (0, 0)
    return np.asarray(codes, np.int32)


def _attributes(encoding: Encoding) -> dict[str, object]:
    format, granularity = encoding.spec.format, encoding.spec.granularity
    attributes: dict[str, object] = {"format": format.name if isinstance(format, FloatFormat) else "int"}
    if isinstance(granularity, PerChannel):
        return attributes | {"granularity": "channel", "axis": granularity.axis}
    if isinstance(granularity, PerBlock):
        return attributes | {"granularity": "block", "axis": granularity.axis, "block_size": granularity.size}
    return attributes | {"granularity": "tensor"}
