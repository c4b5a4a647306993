"""The records of a model whose quantizers have numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from qc.ir.errors import UsageError, listed
from qc.ir.facts.op_traits import is_trained, kernel_axes, weighted_op
from qc.ir.facts.scopes import distinct_names
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Granularity as SpecGranularity
from qc.ir.quant.spec import PerBlock, PerChannel, Quantizer, TwoLevelBlock
from qc.ir.quant_table import Site

from .record import Granularity, TensorRecord


def records_of(model: Model, note: Callable[[str], object], biases: bool) -> list[TensorRecord]:
    """One record for each quantized tensor, in the order in which they were placed.

    A file has one grid for a tensor: of one whose readers hold different grids the first is taken.

    Args:
        note: takes a sentence about what the records do not say.
        biases: also the biases whose scale follows from input and weight.

    Raises:
        UsageError: a quantizer has no numbers yet.
    """
    found: dict[Value, Quantizer] = {}
    left: dict[Value, Site] = {}
    for site in model.quant.sites():
        quantizer = model.quant.get(site)
        if quantizer is None or (quantizer.spec.derived and not biases):
            continue
        if found.setdefault(site.value.original, quantizer) is not quantizer:
            left.setdefault(site.value.original, site)
    if left:
        sites = [str(site) for site in left.values()]
        named = f"{'those' if sites[1:] else 'that'} of {listed(sites, 1)}"
        note(f"the encodings file has one grid for each tensor, which leaves out {named}")
    names = distinct_names(model)
    return [record_of(names.get(value, value.name), value, quantizer) for value, quantizer in found.items()]


def record_of(name: str, value: Value, quantizer: Quantizer) -> TensorRecord:
    """The record of a tensor; raises UsageError for a quantizer without numbers."""
    encoding = quantizer.encoding
    if encoding is None:
        raise UsageError(f"'{name}' has no encoding yet; 'calibrate' belongs behind its placement")
    spec = quantizer.spec
    granularity: Granularity = "tensor"
    axis = block_size = None
    if isinstance(spec.granularity, PerChannel):
        granularity, axis = "channel", spec.granularity.axis
    elif isinstance(spec.granularity, PerBlock):
        granularity, axis, block_size = "block", spec.granularity.axis, spec.granularity.size
    scale, zero_point = encoding.scale.astype(np.float64), np.asarray(encoding.zero_point - spec.shift)
    if granularity == "block":
        kernel = kernel_axes(weighted_op(value), value)
        scale, zero_point = once(scale, kernel), once(zero_point, kernel)
    record = TensorRecord(
        name,
        spec.format,
        is_parameter=is_trained(value),
        symmetric=spec.symmetric or not isinstance(spec.format, IntFormat) or spec.derived,
        granularity=granularity,
        scale=scale,
        zero_point=zero_point,
        axis=axis,
        block_size=block_size,
    )
    return _in_two_levels(record, spec.granularity)


def once(numbers: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Numbers with length 1 along some axes if they are the same all along, as AIMET writes kernels."""
    first = numbers
    for axis in axes:
        first = np.take(first, [0], axis)
    return first if np.array_equal(np.broadcast_to(first, numbers.shape), numbers) else numbers


def _in_two_levels(record: TensorRecord, granularity: SpecGranularity) -> TensorRecord:
    """The record with both levels of the scales of two-level blocks; others as they are."""
    if not isinstance(granularity, TwoLevelBlock):
        return record
    integers, scale = granularity.levels(record.scale)
    return replace(
        record,
        granularity="two-level",
        scale=scale.ravel().astype(np.float64),
        zero_point=np.full(scale.size, record.zero_point.flat[0]),
        block_scales=integers,
        scale_bits=granularity.scale_bits,
    )
