"""Biases as 32-bit integers on the grid of the accumulator: scale of the input times scale of the weight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from qc.ir.facts.dataflow import is_plain_float
from qc.ir.facts.op_traits import bias_port, channel_axis, is_grid_preserving, traits, weight_port
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, PerTensor, Quantizer, QuantSpec
from qc.ir.quant_table import Site

from .ranges import finite_data

# Leaves one bit of a 32-bit accumulator to the sum of products.
LARGEST_CODE = 2**30


@dataclass(frozen=True)
class _Bias:
    site: Site
    quantizer: Quantizer
    array: np.ndarray
    input: Encoding
    weight: Quantizer
    channel_axis: int

    @property
    def scale(self) -> np.ndarray:
        """That of the sums of products that the bias is added to."""
        assert self.weight.encoding is not None
        return np.asarray(self.input.scale * self.weight.encoding.channel_scale(self.channel_axis))


# Of a bias whose scale is that of the input times that of the weight.
BIAS = QuantSpec(IntFormat(32, signed=True), symmetric=True, derived=True)


def place_biases(model: Model, asked_by: str) -> None:
    """Places quantizers on constant biases of products of integers that have none yet."""
    for op in model.graph.ops():
        for port, value in enumerate(op.inputs):
            if value is None or not is_plain_float(value) or model.quant.touches(value):
                continue
            weighted = _weighted_op(op)
            region = op.region
            of_region = region is not None and region.captures.get("bias") is value
            if value.const is None or weighted is None or not (port == bias_port(op) or of_region):
                continue
            weight = weighted.inputs[1]
            held = model.quant.of_use(weight, weighted, 1) if weight is not None else None
            if held is not None and isinstance(held.spec.format, IntFormat):
                model.quant.place(Site(value, op, port), BIAS, f"bias of {weighted.label}", asked_by)


def calibrate_biases(model: Model) -> None:
    """Derives the encoding of every open bias quantizer.

    Its scale is that of the input times that of the weight: of a weight in blocks, the largest of a channel,
    and of one in two-level blocks, the scale of the channel, as AIMET has it. Where a bias would not fit into
    31 bits, the scale of that weight channel is made larger first. A bias whose input or weight has no
    integer grid loses its quantizer and stays float; so does one that does not fit into 32 bits because the
    grid of the weight is in blocks or fixed: frozen, or with codes that were chosen on it.
    """
    found, left_float = [], []
    for quantizer in [q for q in model.quant.quantizers() if q.spec.derived and not q.frozen]:
        for site in model.quant.sites_of(quantizer):
            bias = _describe(model, site, quantizer)
            if bias is None:
                left_float.append(site)
            else:
                found.append(bias)
    leave_float(model, left_float, "a bias whose input and weight have no grids that it could share")
    for bias in found:
        _enlarge_weight_scale(model, bias)
    too_large = [bias for bias in found if not _fits(bias)]
    leave_float(
        model,
        [bias.site for bias in too_large],
        "a bias too large for 32 bits, next to a weight whose grid is fixed or in blocks",
    )
    for bias in (bias for bias in found if bias not in too_large):
        encoding, known = _encoding(bias), bias.quantizer.encoding
        if known is None or not known.equals(encoding):
            model.quant.calibrate(bias.quantizer, encoding, "scale of input times scale of weight")


def leave_float(model: Model, sites: Iterable[Site], reason: str) -> None:
    """Takes the quantizers of some sites away, and says why of every tensor that has no other."""
    values: dict[Value, None] = {}
    for site in sites:
        model.quant.remove(site, reason)
        values[site.value.original] = None
    quantized = {site.value.original for site in model.quant.sites()} if values else set()
    for value in values:
        if value not in quantized:
            model.quant.skip(value, reason)


def _describe(model: Model, site: Site, quantizer: Quantizer) -> _Bias | None:
    op = site.op if site.op is not None and _has_weight(site.op) else _weighted_op(site.op)
    const = site.value.original.const
    if op is None or const is None:
        return None
    data, weight = op.inputs[:2]
    if data is None or weight is None:
        return None
    of_data, of_weight = grid_of_data(model, op), model.quant.of_use(weight, op, 1)
    if of_data is None or of_weight is None or of_data.encoding is None or of_weight.encoding is None:
        return None
    integer = isinstance(of_data.spec.format, IntFormat) and isinstance(of_weight.spec.format, IntFormat)
    if not integer or not isinstance(of_data.spec.granularity, PerTensor):
        return None
    array = finite_data(site.value.original)
    axis = channel_axis(op, weight.original)
    if weight.original.const is None or not array.ndim:
        return None
    if axis is None and isinstance(of_weight.spec.granularity, PerBlock):
        return None
    found = _Bias(site, quantizer, array, of_data.encoding, of_weight, axis or 0)
    per_tensor = isinstance(of_weight.spec.granularity, PerTensor)
    fits = per_tensor or (array.size, array.shape[-1]) == (found.scale.size,) * 2
    return found if fits else None


def _has_weight(op: Op) -> bool:
    """Whether an op multiplies by a weight, or by the scale of a normalization."""
    return "weight" in traits(op).trained


def grid_of_data(model: Model, op: Op) -> Quantizer | None:
    """The quantizer that the first input of an op sees, or that of what it was moved from."""
    value = op.inputs[0]
    found = model.quant.of_use(value, op, 0) if value is not None else None
    while found is None and value is not None:
        producer = value.producer
        source = producer.inputs[0] if producer is not None else None
        if producer is None or source is None or not is_grid_preserving(producer):
            return None
        value, found = source, model.quant.of_use(source, producer, 0)
    return found


def _weighted_op(op: Op | None) -> Op | None:
    """The op whose result the bias is added to: ``op`` itself, or the one in its region."""
    if op is None or weight_port(op) is not None:
        return op
    region = op.region
    members = region.ops if region is not None else ()
    return next((member for member in members if weight_port(member) is not None), None)


def _enlarge_weight_scale(model: Model, bias: _Bias) -> None:
    encoding = bias.weight.encoding
    assert encoding is not None
    if isinstance(encoding.spec.granularity, PerBlock):
        return
    needed = np.abs(bias.array.astype(np.float64)) / (float(bias.input.scale) * LARGEST_CODE)
    least = needed.reshape(encoding.scale.shape) if encoding.scale.ndim else needed.max(initial=0.0)
    least = np.asarray(least, np.float32)  # as it is stored, so that a second run has nothing to do
    if np.any(least > encoding.scale):
        larger = Encoding(encoding.spec, np.maximum(encoding.scale, least), encoding.zero_point)
        model.quant.calibrate(bias.weight, larger, "larger scale, so that the bias fits into 32 bits")


def _fits(bias: _Bias) -> bool:
    return bool(np.all(np.abs(bias.array) <= _encoding(bias).maximum))


def _encoding(bias: _Bias) -> Encoding:
    scale = bias.scale
    granularity = PerChannel(bias.array.ndim - 1) if scale.ndim else PerTensor()
    spec = bias.quantizer.spec.with_granularity(granularity)
    return Encoding(spec, scale, np.zeros(scale.shape, np.int32))
