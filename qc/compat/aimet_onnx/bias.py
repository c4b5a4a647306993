"""Biases as 32-bit integers, whose scale is that of the input times that of the weight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, PerTensor, QuantSpec
from qc.ir.quant_table import Site
from qc.passes.quantize.quantsim.nodes import Node

from .qc_quantize_op import QcQuantizeOp
from .quantized_model import QuantizedModel

_LARGEST_CODE = 2**31 - 2**15
_REASON = "a bias, on the grid of its input times its weight"


@contextmanager
def integer_biases(simulation: QuantizedModel) -> Iterator[None]:
    """Gives biases their grids for as long as it lasts.

    A bias stays float if its input or weight has no integer grid, if it would not fit into 32 bits, or if
    two ops read it.
    """
    table = simulation._ir.quant
    with simulation._ir.transaction.trial():
        for site, encoding in dict(_found(simulation)).items():
            table.calibrate(table.place(site, encoding.spec, _REASON), encoding, _REASON)
        yield


def _found(simulation: QuantizedModel) -> Iterator[tuple[Site, Encoding]]:
    placement = simulation._placement
    for node in placement.nodes.nodes:
        names = {parameter.slot: parameter.value.name for parameter in placement.nodes.parameters(node)}
        if not node.is_type("Conv", "ConvTranspose", "Gemm") or not {"weight", "bias"} <= set(names):
            continue
        site, weight = placement.sites[names["bias"]], placement.ops[names["weight"]]
        encoding = _encoding(simulation, node, weight, site)
        if encoding is not None:
            yield site, encoding


def _encoding(simulation: QuantizedModel, node: Node, weight: QcQuantizeOp, site: Site) -> Encoding | None:
    data = node.input(0)
    source = simulation._placement.effective(data.name) if data is not None else None
    const = site.value.const
    own = simulation._placement.ops[site.value.name]
    if source is None or const is None or own.enabled or len(site.value.graph.uses(site.value)) != 1:
        return None
    scale = _scale_of_sums(source, weight)
    if scale is None or scale.shape not in ((), const.shape):
        return None
    if np.any(np.abs(const.numpy()) / scale > _LARGEST_CODE):
        return None
    granularity = PerChannel(0) if scale.ndim else PerTensor()
    spec = QuantSpec(IntFormat(32, signed=True), symmetric=True, granularity=granularity)
    return Encoding(spec, scale, np.zeros(scale.shape))


def _scale_of_sums(source: QcQuantizeOp, weight: QcQuantizeOp) -> np.ndarray | None:
    """Scale of the input times that of the weight: of blocks the largest in each channel, or that of it."""
    if not (weight.enabled and source.encoding is not None and weight.encoding is not None):
        return None
    if not (isinstance(source.spec.format, IntFormat) and isinstance(weight.spec.format, IntFormat)):
        return None
    scale = weight.encoding.scale
    if isinstance(weight.spec.granularity, PerBlock):
        scale = weight.encoding.channel_scale(weight.axes.channel)
    return np.asarray(source.encoding.scale * scale)
