"""The graph IR: lift a model, look at it, change it with a Rewriter, and lower it again."""

from .facts.weights import QuantizedWeight, Weights, weights_of
from .graph import Graph, Op, Region, Use, Value, ValueType
from .model import Model
from .onnx.lift import lift, load_model
from .onnx.lower import lower, serialize
from .onnx.save import save_model
from .quant.arithmetic import Rounding, dequantize, fake_quantize, quantize
from .quant.formats import FloatFormat, IntFormat, parse_format
from .quant.packing import pack, unpack
from .quant.spec import Encoding, PerBlock, PerChannel, PerTensor, Quantizer, QuantSpec, TwoLevelBlock
from .quant_table import QuantTable, Site
from .rewriter import Rewriter
from .text import parse_model, print_model
from .verify import verify

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
