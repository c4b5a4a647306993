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
from qc.ir.scopes import Captures

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
            emitter = _Emitter(rewriter, self.rounding)
            rewire(model, rewriter, emitter.round_value)
            rewriter.add_defaults(model.graph, emitter.settings())
            context.add_artifact("simulation", Artifact("onnx", lower(model), ".simulation.onnx"))


class _Emitter:
    def __init__(self, rewriter: Rewriter, rounding: Rounding) -> None:
        self._rewriter = rewriter
        self._rounding = rounding
        self._captures = Captures(rewriter)
        self._stored: dict[tuple[Value, Quantizer], Value] = {}
        self._parameters: dict[Quantizer, tuple[Value, ...]] = {}

    def round_value(self, value: Value, quantizer: Quantizer) -> Value:
        """A new value: ``value`` rounded to the grid of ``quantizer``."""
        encoding, constant = numbers(quantizer, value), value.original
        if constant.const is not None:
            if (constant, quantizer) not in self._stored:
                rounded = fake_quantize(constant.const.numpy(), encoding, self._rounding)
                name = f"{constant.name}_simulated"
                self._stored[constant, quantizer] = self._rewriter.add_constant(constant.graph, rounded, name)
            return self._captures.into(value.graph, self._stored[constant, quantizer])
        result = self._rewriter.add_value(value.graph, f"{value.name}_simulated", value.original.type)
        self._rewriter.add_op(
            value.graph,
            "FakeQuantize",
            (value, *self._inputs(value, quantizer, encoding)),
            [result],
            {**_attributes(encoding), "rounding": self._rounding.value},
            DOMAIN,
        )
        return result

    def settings(self) -> list[Value]:
        """The scales, zero points and limits of all quantizers so far, which are in the main graph."""
        return [value for values in self._parameters.values() for value in values]

    def _inputs(self, value: Value, quantizer: Quantizer, encoding: Encoding) -> tuple[Value, ...]:
        """Scale, zero point and limits: inputs of the main graph, the same for all sites of a quantizer."""
        if quantizer not in self._parameters:
            main = self._rewriter.model.graph
            arrays = {"scale": encoding.scale, "zero_point": encoding.zero_point, "limits": _limits(encoding)}
            self._parameters[quantizer] = tuple(
                self._rewriter.add_constant(main, array, f"q{quantizer.id}/{name}")
                for name, array in arrays.items()
            )
        return tuple(self._captures.into(value.graph, given) for given in self._parameters[quantizer])


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
