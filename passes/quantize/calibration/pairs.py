"""Weights of which two products fit into 16 bits, as processors of x86 without VNNI add them.

ONNX Runtime multiplies uint8 by int8 there with vpmaddubsw, which adds each product to its neighbour and
limits the sum to 16 bits: 255 * 128 < 2^15 < 255 * 129. What is summed first are the numbers of all channels
at one place of a kernel, then those at the next place. Its kernel of depthwise convolutions is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from qc.ir.facts.op_traits import is_depthwise, weight_ports
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
    least = PairLimit(uses, most).least_scales(spec.granularity)
    return replace(found, scale=np.maximum(found.scale, least).astype(found.scale.dtype))


@dataclass(frozen=True)
class PairLimit:
    """That neighbouring codes of a weight add up to so much at most, whatever is chosen for them.

    Attributes:
        uses: as for :func:`within_pairs`; without any there is no limit.
        most: the largest sum, with either sign.
    """

    uses: list[tuple[Op, int]]
    most: int

    @classmethod
    def of(cls, model: Model, weight: Quantizer, most: int) -> PairLimit:
        """The limit for a weight that has a grid; ``most`` is that of the target, 0 for none."""
        is_limited = most and weight.encoding is not None and _has_full_range(weight.encoding)
        return cls(integer_uses(model, weight) if is_limited else [], most)

    def least_scales(self, granularity: Granularity) -> np.ndarray:
        """The scales at which the nearest codes add up to the most; 0 where there is no limit."""
        least = np.zeros(())
        for op, port in self.uses:
            weight = op.inputs[port]
            assert weight is not None and weight.original.const is not None
            sums = largest_sums(op, weight.original.const.numpy(), granularity)
            least = np.maximum(least, sums / (self.most - 1))  # each of the two codes is rounded by a half
        return least

    def limited(self, codes: np.ndarray) -> np.ndarray:
        """Codes in the layout of the weight; of a pair beyond the limit the larger one is nearer to 0."""
        flat, places = np.append(codes.ravel(), 0), np.arange(codes.size).reshape(codes.shape)
        for pairs in (pairs for op, _ in self.uses for pairs in _neighbours(op, places, fill=codes.size)):
            sums = flat[pairs].sum(-1)
            larger = np.abs(flat[pairs]).argmax(-1)[..., np.newaxis]
            beyond = np.sign(sums) * np.maximum(np.abs(sums) - self.most, 0)
            flat[np.take_along_axis(pairs, larger, -1)[..., 0]] -= beyond
        return flat[:-1].reshape(codes.shape)


def integer_uses(model: Model, weight: Quantizer) -> list[tuple[Op, int]]:
    """The ops that may add products of codes of a weight and of data in pairs, with their ports."""
    return [
        (op, port)
        for site in model.quant.sites_of(weight)
        for op, port in _uses(site)
        if port in weight_ports(op)
        and (op.is_type(*_RECURRENT) or _has_quantized_data(model, op))
        and not is_depthwise(op)
    ]


def largest_sums(op: Op, weight: np.ndarray, granularity: Granularity) -> np.ndarray:
    """The largest magnitude of the sum of two neighbours of a weight, for each of its scales."""
    sums = np.maximum(
        *(np.abs(pairs.sum(-1)).max(-1, initial=0) for pairs in _neighbours(op, weight, fill=0))
    )
    if not isinstance(granularity, PerChannel):
        return np.asarray(sums.max(initial=0))
    kept, _ = _axes(op, weight.ndim)
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
    for use in site.value.uses:
        if isinstance(use.port, int):
            yield use.op, use.port


def _has_quantized_data(model: Model, op: Op) -> bool:
    data = op.inputs[0]
    return data is not None and model.quant.of_use(data, op, 0) is not None


def _neighbours(op: Op, array: np.ndarray, fill: int) -> Iterator[np.ndarray]:
    """What is added in pairs, along the last of the axes ``(*kept, pairs, 2)``; ``fill`` is beside the last.

    Where channels are odd a lowering may add some, and then others are neighbours: both are given.
    """
    kept, summed = _axes(op, array.ndim)
    ordered = array.transpose(*kept, *summed)
    for rows in (ordered, _to_even(ordered, fill)):
        even = _to_even(rows.reshape(*rows.shape[: len(kept)], -1), fill)
        yield even.reshape(*even.shape[:-1], even.shape[-1] // 2, 2)


def _to_even(rows: np.ndarray, fill: int) -> np.ndarray:
    """With one element more at the end of the last axis if its length is odd."""
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, rows.shape[-1] % 2)], constant_values=fill)


def _axes(op: Op, rank: int) -> tuple[list[int], list[int]]:
    """The axes of a weight that stay, and those along which products are summed, the slowest first."""
    if op.is_type("Conv"):
        return [0], [*range(2, rank), 1]
    is_by_rows = op.is_type(*_RECURRENT) or (op.is_type("Gemm") and op.attribute("transB", 0))
    summed = rank - 1 if is_by_rows else max(rank - 2, 0)
    return [axis for axis in range(rank) if axis != summed], [summed]
