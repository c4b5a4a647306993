"""The graph IR: lift a model, look at it, change it with a Rewriter, and lower it again."""

from .arithmetic import Rounding, dequantize, fake_quantize, quantize
from .formats import FloatFormat, IntFormat, parse_format
from .graph import Graph, Op, Use, Value, ValueType
from .lift import lift, load_model
from .lower import lower, serialize
from .model import Model
from .packing import pack, unpack
from .quant import Encoding, PerBlock, PerChannel, PerTensor, Quantizer, QuantSpec, TwoLevelBlock
from .quant_table import QuantTable, Site
from .region import Region
from .rewriter import Rewriter
from .save import save_model
from .text import parse_model, print_model
from .verify import verify
from .weights import QuantizedWeight, Weights, weights_of

__all__ = [
    "Encoding",
    "FloatFormat",
    "Graph",
    "IntFormat",
    "Model",
    "Op",
    "PerBlock",
    "PerChannel",
    "PerTensor",
    "QuantSpec",
    "QuantTable",
    "QuantizedWeight",
    "Quantizer",
    "Region",
    "Rewriter",
    "Rounding",
    "Site",
    "TwoLevelBlock",
    "Use",
    "Value",
    "ValueType",
    "Weights",
    "dequantize",
    "fake_quantize",
    "lift",
    "load_model",
    "lower",
    "pack",
    "parse_format",
    "parse_model",
    "print_model",
    "quantize",
    "save_model",
    "serialize",
    "unpack",
    "verify",
    "weights_of",
]
