"""The records of a model whose quantizers have numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import UsageError
from ..formats import IntFormat
from ..graph import Value
from ..model import Model
from ..op_traits import is_trained
from ..quant import PerBlock, PerChannel, Quantizer
from ..quant_table import Site
from ..scopes import distinct_names
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
    found: dict[Value, tuple[Site, Quantizer]] = {}
    for site in model.quant.sites():
        quantizer = model.quant.get(site)
        if quantizer is None or (quantizer.spec.derived and not biases):
            continue
        known = found.setdefault(site.value.original, (site, quantizer))
        if known[1] is not quantizer:
            note(f"'{site.value.name}' has several grids; the encodings file holds that of {known[0]}")
    names = distinct_names(model)
    return [
        _record(names.get(value, value.name), value, quantizer) for value, (_, quantizer) in found.items()
    ]


def _record(name: str, value: Value, quantizer: Quantizer) -> TensorRecord:
    encoding = quantizer.encoding
    if encoding is None:
        raise UsageError(f"'{name}' has no encoding yet; run 'calibrate' before lowering")
    spec = quantizer.spec
    granularity: Granularity = "tensor"
    axis = block_size = None
    if isinstance(spec.granularity, PerChannel):
        granularity, axis = "channel", spec.granularity.axis
    elif isinstance(spec.granularity, PerBlock):
        granularity, axis, block_size = "block", spec.granularity.axis, spec.granularity.size
    return TensorRecord(
        name,
        spec.format,
        is_parameter=is_trained(value),
        symmetric=spec.symmetric or not isinstance(spec.format, IntFormat) or spec.derived,
        granularity=granularity,
        scale=encoding.scale.astype(np.float64),
        zero_point=encoding.zero_point.astype(np.float64),
        axis=axis,
        block_size=block_size,
    )
