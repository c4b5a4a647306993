"""Two-level blocks (LPBQ): the scale of a block is an integer times one float for its channel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from qc.ir.encodings import Document
from qc.ir.quant import Encoding

from .qc_quantize_op import QcQuantizeOp

if TYPE_CHECKING:
    from .quantsim import QuantizationSimModel


def integer_block_scales(simulation: QuantizationSimModel) -> None:
    """Rounds the calibrated block scales of two-level weights to integers times a scale for each channel."""
    for _, op in _two_level(simulation):
        integers, scale = _levels(op)
        assert op.encoding is not None
        op.load(Encoding(op.encoding.spec, integers * scale, op.encoding.zero_point))


def as_two_level(simulation: QuantizationSimModel, document: Document) -> Document:
    """The document with the blocks of two-level weights in their two levels."""
    weights = dict(_two_level(simulation))
    records = []
    for record in document.records:
        if record.name in weights:
            op = weights[record.name]
            integers, scale = _levels(op)
            record = replace(
                record,
                granularity="two-level",
                scale=scale.ravel().astype(np.float64),
                zero_point=np.zeros(scale.size),
                block_scales=integers.astype(np.int64),
                scale_bits=op.scale_bits,
                axis=op.axes.block,
                as_stored=False,
            )
        records.append(record)
    return replace(document, records=records)


def _two_level(simulation: QuantizationSimModel) -> Iterator[tuple[str, QcQuantizeOp]]:
    for name, op in simulation.qc_quantize_op_dict.items():
        if op.scale_bits and op.enabled and op.encoding is not None:
            yield name, op


def _levels(op: QcQuantizeOp) -> tuple[np.ndarray, np.ndarray]:
    """The integers, in the shape of the scales, and the scale of each channel, which lines up with them.

    The largest block of a channel has the largest integer, ``2^bits``.
    """
    assert op.encoding is not None and op.axes.channel is not None
    scales = op.encoding.scale.astype(np.float64)
    others = tuple(axis for axis in range(scales.ndim) if axis != op.axes.channel)
    most = 1 << op.scale_bits
    scale = (scales.max(axis=others, keepdims=True) / most).astype(np.float32)
    return np.clip(np.rint(scales / scale), 1, most), scale
