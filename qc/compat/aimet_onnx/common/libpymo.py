"""The types that scripts take from AIMET's compiled libraries, ``libpymo`` and ``libquant_info``."""

from ..defs import TensorQuantizerOpMode, TfEncoding
from ..simulation.quant_info import QcQuantizeInfo

__all__ = ["QcQuantizeInfo", "TensorQuantizerOpMode", "TfEncoding"]
