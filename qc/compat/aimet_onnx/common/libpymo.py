"""The types that scripts take from AIMET's compiled libraries, ``libpymo`` and ``libquant_info``."""

from ..defs import TensorQuantizerOpMode, TfEncoding
from ..qc_quantize_op import QcQuantizeInfo

__all__ = ["QcQuantizeInfo", "TensorQuantizerOpMode", "TfEncoding"]
