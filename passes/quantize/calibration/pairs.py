"""Weights of which two products fit into 16 bits, as processors of x86 without VNNI add them.

ONNX Runtime multiplies uint8 by int8 there with vpmaddubsw, which adds each product to its neighbour and
limits the sum to 16 bits: 255 * 128 < 2^15 < 255 * 129. What is summed first are the numbers of all channels
at one place of a kernel, then those at the next place. Its kernel of depthwise convolutions is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from qc.ir.facts.op_traits import weight_ports
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.ranges import GridOf
from qc.ir.quant.spec import Encoding, Granularity, PerChannel, PerTensor, Quantizer, QuantSpec
from qc.ir.quant_table import Site

_RECURRENT = ("GRU", "LSTM")
_BITS = 8


def within_pairs(grid_of: GridOf, uses: list[tuple[Op, int]], most: int, spec: QuantSpec) -> Encoding:
    """The grid of a weight with scales so large that neighbouring codes add up to ``most`` at most.

    Args:
        grid_of: how the grid is found otherwise.
        uses: the ops that multiply codes of data by those of the weight, with the ports where they read it.
        most: the largest sum, with either sign.
        spec: of the grid; others than symmetric ones of 8 bits, by channel or for all numbers, stay.
    """
    found = grid_of(spec)
    if not _has_full_range(found):
        return found
    for op, port in uses:
        weight = op.graph.op_inputs(op)[port]
        assert weight is not None and weight.original.const is not None
        sums = largest_sums(op, weight.original.const.numpy(), spec.granularity)
        least = sums / (most - 1)  # each of the two codes is rounded by a half
        found = replace(found, scale=np.maximum(found.scale, least).astype(found.scale.dtype))
    return found


def integer_uses(model: Model, weight: Quantizer) -> list[tuple[Op, int]]:
    """The ops that may add products of codes of a weight and of data in pairs, with their ports."""
    return [
        (op, port)
        for site in model.quant.sites_of(weight)
        for op, port in _uses(site)
        if port in weight_ports(op)
        and (op.is_type(*_RECURRENT) or _has_quantized_data(model, op))
        and not _is_depthwise(op)
    ]


def largest_sums(op: Op, weight: np.ndarray, granularity: Granularity) -> np.ndarray:
    """The largest magnitude of the sum of two neighbours of a weight, for each of its scales."""
    summed = _summed_axes(op, weight.ndim)
    kept = [axis for axis in range(weight.ndim) if axis not in summed]
    ordered = weight.transpose(*kept, *summed)
    # Where channels are odd a lowering may add some, and then the neighbours of the last one are zeros.
    padded = _to_even(ordered)
    sums = np.maximum(*(_of_neighbours(rows, len(kept)) for rows in (ordered, padded)))
    if not isinstance(granularity, PerChannel):
        return np.asarray(sums.max(initial=0))
    others = tuple(place for place, axis in enumerate(kept) if axis != granularity.axis % weight.ndim)
    return np.asarray(sums.max(axis=others, initial=0))


def _has_full_range(encoding: Encoding) -> bool:
    format, granularity = encoding.spec.format, encoding.spec.granularity
    is_signed = isinstance(format, IntFormat) and format.signed and format.bits == _BITS
    return is_signed and isinstance(granularity, PerChannel | PerTensor) and not np.any(encoding.zero_point)


def _uses(site: Site) -> Iterator[tuple[Op, int]]:
    """The ops that read a site, with their ports."""
    if site.op is not None and site.port is not None:
        yield site.op, site.port
        return
    for use in site.value.graph.uses(site.value):
        if isinstance(use.port, int):
            yield use.op, use.port


def _is_depthwise(op: Op) -> bool:
    """Whether each channel of the data makes one of the result."""
    weight = op.graph.op_inputs(op)[1] if op.is_type("Conv") else None
    shape = weight.type.shape if weight is not None else None
    return shape is not None and shape[:2] == (op.attribute("group", 1), 1) and shape[0] != 1


def _has_quantized_data(model: Model, op: Op) -> bool:
    data = op.graph.op_inputs(op)[0]
    return data is not None and model.quant.of_use(data, op, 0) is not None


def _of_neighbours(ordered: np.ndarray, kept: int) -> np.ndarray:
    """The largest magnitude of the sum of two neighbours along all axes but the first ``kept``."""
    rows = _to_even(ordered.reshape(*ordered.shape[:kept], -1))
    return np.asarray(np.abs(rows[..., 0::2] + rows[..., 1::2]).max(axis=-1, initial=0))


def _to_even(rows: np.ndarray) -> np.ndarray:
    """With a zero at the end of the last axis if its length is odd."""
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, rows.shape[-1] % 2)])


def _summed_axes(op: Op, rank: int) -> list[int]:
    """The axes of a weight along which products are summed, the one that changes slowest first."""
    if op.is_type("Conv"):
        return [*range(2, rank), 1]
    if op.is_type(*_RECURRENT) or (op.is_type("Gemm") and op.attribute("transB", 0)):
        return [rank - 1]
    return [max(rank - 2, 0)]
