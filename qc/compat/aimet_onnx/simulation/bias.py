"""Biases as 32-bit integers: on the grid of sums where there is one, else on their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, PerTensor, QuantSpec
from qc.ir.quant_table import Site
from qc.passes.quantize.quantsim.nodes import Node

from ..qc_quantize_op import QcQuantizeOp
from .quantized_model import QuantizedModel

_SUMMING = ("Conv", "ConvTranspose", "Gemm")
_OTHERS = ("BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization")
_RECURRENT = ("GRU", "LSTM", "RNN")
_LARGEST_CODE = 2**31 - 1
LEAST_SCALE = 0.01 / (2**32 - 1)
_REASON = "a bias in 32 bits"


@contextmanager
def integer_biases(simulation: QuantizedModel) -> Iterator[None]:
    """Gives biases their grids for as long as it lasts.

    That of sums of products has the scale of the input times that of the weight; that of a normalization or
    of a recurrent op is as fine as 32 bits allow. A bias stays float if its input or weight has no integer
    grid. One of sums also does if it would not fit into 32 bits, or if two ops read it.
    """
    table = simulation._ir.quant
    with simulation._ir.transaction.trial():
        for site, encoding in dict(_found(simulation)).items():
            table.calibrate(table.place(site, encoding.spec, _REASON), encoding, _REASON)
        yield


def give_integer_biases(simulation: QuantizedModel) -> ExitStack:
    """Gives biases these grids until what is returned is closed, as a ``with`` statement does at its end."""
    undo = ExitStack()
    for site, encoding in dict(_found(simulation)).items():
        op = simulation._placement.ops[site.value.name]
        undo.callback(_restore, op, op.enabled, op.spec, op.encoding)
        op.enabled = True
        op._change(encoding.spec)
        op.load(encoding)
    return undo


def _restore(op: QcQuantizeOp, enabled: bool, spec: QuantSpec, encoding: Encoding | None) -> None:
    op._change(spec)
    if encoding is not None:
        op.load(encoding)
    op.enabled = enabled


def _found(simulation: QuantizedModel) -> Iterator[tuple[Site, Encoding]]:
    placement = simulation._placement
    for node in placement.nodes.nodes:
        names = {parameter.slot: parameter.value.name for parameter in placement.nodes.parameters(node)}
        has_both = {"weight", "bias"} <= set(names)
        if not has_both or not node.is_type(*_SUMMING, *_OTHERS, *_RECURRENT):
            continue
        site, weight = placement.sites[names["bias"]], placement.ops[names["weight"]]
        data = node.input(0)
        source = placement.effective(data.name) if data is not None else None
        if placement.ops[names["bias"]].enabled or source is None or not _are_integers(source, weight):
            continue
        encoding = (
            _of_sums(node, site, source, weight) if node.is_type(*_SUMMING) else _of_its_own(site, weight)
        )
        if encoding is not None:
            yield site, encoding


def _are_integers(*ops: QcQuantizeOp) -> bool:
    return all(op.enabled and op.encoding is not None and isinstance(op.spec.format, IntFormat) for op in ops)


def _of_sums(node: Node, site: Site, source: QcQuantizeOp, weight: QcQuantizeOp) -> Encoding | None:
    """Scale of the input times that of the weight: of blocks the largest in each channel, or that of it."""
    const = site.value.const
    assert const is not None and source.encoding is not None and weight.encoding is not None
    scale = weight.encoding.scale
    if isinstance(weight.spec.granularity, PerBlock):
        scale = weight.encoding.channel_scale(weight.axes.channel)
    scale = np.asarray(source.encoding.scale * scale)
    if scale.shape not in ((), const.shape) or len(site.value.uses) != 1:
        return None
    return None if np.any(np.abs(const.numpy()) / scale > _LARGEST_CODE) else _encoding(scale)


def _of_its_own(site: Site, weight: QcQuantizeOp) -> Encoding:
    """What makes each number, or with one scale the largest, nearly 2^31 steps."""
    assert site.value.const is not None
    scale = np.maximum(np.abs(site.value.const.numpy().astype(np.float64)) / 2**31, LEAST_SCALE)
    is_one = isinstance(weight.spec.granularity, PerTensor) or scale.ndim != 1
    return _encoding(scale.max() if is_one else scale)


def _encoding(scale: np.ndarray) -> Encoding:
    granularity = PerChannel(0) if np.ndim(scale) else PerTensor()
    spec = QuantSpec(IntFormat(32, signed=True), symmetric=True, granularity=granularity)
    return Encoding(spec, scale, np.zeros(np.shape(scale)))
