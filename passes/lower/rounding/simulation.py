"""The simulation of a model: float arithmetic, with every quantized tensor rounded to its grid."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from onnx import ModelProto, TensorProto

from qc.ir.facts.op_traits import is_grid_preserving, joins_grids
from qc.ir.facts.scopes import Captures
from qc.ir.graph import Graph, Value
from qc.ir.model import Model
from qc.ir.onnx.lower import lower
from qc.ir.quant.arithmetic import Rounding, rounded
from qc.ir.quant.formats import FloatFormat, IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, PerTensor, Quantizer, setting_name
from qc.ir.rewriter import Rewriter

from .device import DeviceArithmetic
from .device_writer import Rounded
from .rewire import DOMAIN, numbers, rewire

# The widest integers that the kernels round exactly; biases are wider.
_WIDEST = 16


class WeightRounding(enum.Enum):
    """What becomes of quantized weights: rounded once and stored, or rounded by a session at every run."""

    STORED = "stored"
    SETTABLE = "settable"


@contextmanager
def simulated(
    model: Model,
    rounding: Rounding = Rounding.HALF_EVEN,
    weights: WeightRounding = WeightRounding.STORED,
    device: DeviceArithmetic | None = None,
) -> Iterator[ModelProto]:
    """A block in which ``model`` is its own simulation, so that tensors have the names that they have there.

    The name of a graph output is that of the rounded tensor. With ``device``, codes are those that it
    computes.
    """
    rewriter = Rewriter(model)
    with rewriter.trial():
        rewriter.set_opset(DOMAIN, 1)
        emitter = _Emitter(rewriter, rounding, weights, _on_grid(model))
        rewire(model, rewriter, emitter.round_value)
        if device is not None:
            device.apply(rewriter, emitter.rounded, emitter.parameters)
        rewriter.add_defaults(model.graph, emitter.settings())
        yield lower(model)


class _Emitter:
    def __init__(
        self,
        rewriter: Rewriter,
        rounding: Rounding,
        weights: WeightRounding,
        on_grid: set[tuple[Value, Quantizer]],
    ) -> None:
        self._rewriter = rewriter
        self._rounding = rounding
        self._weights = weights
        self._on_grid = on_grid
        self._captures = Captures(rewriter)
        self._constants: dict[tuple[Value, Quantizer], Value] = {}
        self._parameters: dict[Quantizer, tuple[Value, ...]] = {}
        self.rounded: list[Rounded] = []

    def round_value(self, value: Value, quantizer: Quantizer) -> Value:
        """``value`` rounded to the grid of ``quantizer``: a new value, or itself if it is on that grid."""
        encoding, constant = numbers(quantizer, value), value.original
        if (value, quantizer) in self._on_grid:
            return value
        if constant.const is None:
            return self._rounded_at_run(value, quantizer, encoding)
        if (constant, quantizer) not in self._constants:
            settable = quantizer.codes is None and _is_settable(constant, encoding)
            stored = self._weights is WeightRounding.STORED or not settable
            make = self._stored if stored else self._rounded_at_run
            self._constants[constant, quantizer] = make(constant, quantizer, encoding)
        return self._captures.into(value.graph, self._constants[constant, quantizer])

    def _stored(self, constant: Value, quantizer: Quantizer, encoding: Encoding) -> Value:
        assert constant.const is not None
        numbers = rounded(constant.const.numpy(), quantizer, self._rounding)
        return self._rewriter.add_constant(constant.graph, numbers, f"{constant.name}_simulated")

    def _rounded_at_run(self, value: Value, quantizer: Quantizer, encoding: Encoding) -> Value:
        if _is_wide(encoding):
            return self._limited(value, encoding)
        result = self._rewriter.add_value(value.graph, f"{value.name}_simulated", value.original.type)
        op = self._rewriter.add_op(
            value.graph,
            "FakeQuantize",
            (value, *self._inputs(value, quantizer, encoding)),
            [result],
            {**_attributes(encoding), "rounding": self._rounding.value},
            DOMAIN,
        )
        self.rounded.append(Rounded(op, value, quantizer))
        return result

    def _limited(self, value: Value, encoding: Encoding) -> Value:
        """What a grid leaves of a tensor whose steps are finer than those of float32: its ends."""
        for op_type, end in (("Max", encoding.minimum), ("Min", encoding.maximum)):
            limit = self._rewriter.add_constant(value.graph, end, f"{value.name}_{op_type}")
            type = value.original.type
            result = self._rewriter.add_value(value.graph, f"{value.name}_simulated", type)
            self._rewriter.add_op(value.graph, op_type, (value, limit), [result])
            value = result
        return value

    def settings(self) -> list[Value]:
        """The scales, zero points and limits of all quantizers that round, which are in the main graph."""
        main = self._rewriter.model.graph
        return [value for values in self._parameters.values() for value in values if value in main]

    def parameters(self, graph: Graph, quantizer: Quantizer) -> tuple[Value, ...] | None:
        """Scale, zero point and limits as ops of ``graph`` read them; None if there are none."""
        found = self._parameters.get(quantizer)
        return tuple(self._captures.into(graph, given) for given in found) if found is not None else None

    def _inputs(self, value: Value, quantizer: Quantizer, encoding: Encoding) -> tuple[Value, ...]:
        """Scale, zero point and limits: inputs of the main graph, the same for all sites of a quantizer."""
        if quantizer not in self._parameters:
            main = self._rewriter.model.graph
            arrays = {"scale": encoding.scale, "zero_point": encoding.zero_point, "limits": _limits(encoding)}
            self._parameters[quantizer] = tuple(
                self._rewriter.add_constant(main, array, setting_name(quantizer.name, name))
                for name, array in arrays.items()
            )
        found = self.parameters(value.graph, quantizer)
        assert found is not None
        return found


def _on_grid(model: Model) -> set[tuple[Value, Quantizer]]:
    """The results, with their quantizers, that are on the grid before anything rounds them."""
    sites = ((site.value, model.quant.get(site)) for site in model.quant.sites() if site.op is None)
    return {(value, held) for value, held in sites if held is not None and _stays_on_grid(model, value, held)}


def _stays_on_grid(model: Model, value: Value, quantizer: Quantizer) -> bool:
    """Whether an op moves or joins tensors that all hold the quantizer of its result.

    Rounding is idempotent in float32 only: narrower types do not hold every step of a grid.
    """
    op = value.producer
    whole = isinstance(quantizer.spec.granularity, PerTensor) and value.type.elem_type == TensorProto.FLOAT
    if op is None or not whole:
        return False
    read = list(enumerate(op.inputs))
    if is_grid_preserving(op):
        read = read[:1]
    elif not joins_grids(op) or op.attribute("reduction", "none") != "none":
        return False
    floats = [(port, source) for port, source in read if source is not None and source.is_float]
    return all(model.quant.of_use(source, op, port) is quantizer for port, source in floats)


def _is_settable(constant: Value, encoding: Encoding) -> bool:
    """Whether the kernels round the constant: not to integers that are too wide, nor to shifted grids."""
    return constant.is_float and not _is_wide(encoding) and not encoding.spec.shifted


def _is_wide(encoding: Encoding) -> bool:
    format = encoding.spec.format
    return isinstance(format, IntFormat) and format.bits > _WIDEST


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
