"""Number formats, specifications and encodings of quantized tensors, and their arithmetic on numpy arrays."""

from .spec import (
    Encoding,
    Granularity,
    PerBlock,
    PerChannel,
    PerTensor,
    Quantizer,
    QuantSpec,
    TwoLevelBlock,
)

__all__ = [
    "Encoding",
    "Granularity",
    "PerBlock",
    "PerChannel",
    "PerTensor",
    "QuantSpec",
    "Quantizer",
    "TwoLevelBlock",
]
