"""Encodings files: the grids of a model beside it, in AIMET's versions 0.6.1, 1.0.0, 2.0.0 and 2.1.0."""

from .files import VERSIONS, converted, dump_encodings, parse_encodings, read_encodings
from .location import located
from .record import Document, TensorRecord

__all__ = [
    "VERSIONS",
    "Document",
    "TensorRecord",
    "converted",
    "dump_encodings",
    "located",
    "parse_encodings",
    "read_encodings",
]
