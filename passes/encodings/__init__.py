"""Encodings files: the grids of a model beside it, in AIMET's versions 0.6.1, 1.0.0, 2.0.0 and 2.1.0.

The older two also exist by layers instead of by tensors (``_torch.encodings``).
"""

from .by_layer import by_layer
from .files import VERSIONS, converted, dump_encodings, parse_encodings, read_encodings
from .grid import encoding_of
from .location import check_axes, located
from .record import Document, TensorRecord

__all__ = [
    "VERSIONS",
    "Document",
    "TensorRecord",
    "by_layer",
    "check_axes",
    "converted",
    "dump_encodings",
    "encoding_of",
    "located",
    "parse_encodings",
    "read_encodings",
]
