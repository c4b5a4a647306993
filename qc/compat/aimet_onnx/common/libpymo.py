"""The one type that scripts take from AIMET's compiled library."""

from ..qc_quantize_op import TfEncoding

__all__ = ["TfEncoding"]
