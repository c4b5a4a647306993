"""Grids as operators of ONNX and of ONNX Runtime have them: their formats, and the opsets that know them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from qc.ir.facts.constants import fixed_constant
from qc.ir.facts.op_traits import bias_port
from qc.ir.graph import Op
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerBlock, PerChannel, Quantizer, TwoLevelBlock

# The first opset with QuantizeLinear. Below it ONNX Runtime takes its own version of that operator, and fuses
# it to operators that only later opsets have.
OLDEST_OPSET = 10
_ROUND = 11  # the first opset with Round
BYTE = IntFormat(8, signed=True)


def of_short_codes(model: Model) -> frozenset[Quantizer]:
    """The quantizers of constants alone whose codes have fewer than 8 bits, and not in blocks.

    Devices that multiply bytes do so with one scale for each channel at most.
    """
    return frozenset(
        quantizer
        for quantizer in model.quant.quantizers()
        if isinstance(quantizer.spec.format, IntFormat)
        and quantizer.spec.format.storage_bits < BYTE.bits
        and not isinstance(quantizer.spec.granularity, PerBlock)
        and all(site.value.original.const is not None for site in model.quant.sites_of(quantizer))
    )


def opset_needed_by(model: Model, extension: str, in_bytes: bool, left_out: Set[Quantizer]) -> int:
    """The first opset that has all that the extension domain lacks, but for some grids.

    ONNX Runtime quantizes a bias that is no constant by a Round, which it adds when it loads the model.
    """
    widened = of_short_codes(model) if in_bytes else frozenset()
    encodings = [
        in_onnx(quantizer.encoding, quantizer in widened)
        for quantizer in model.quant.quantizers()
        if quantizer.encoding is not None and quantizer not in left_out
    ]
    needed = [
        opset_needed(encoding)
        for encoding in encodings
        if not is_cast(encoding) and not (extension and extension_knows(encoding))
    ]
    if encodings and any(_has_data_for_bias(op) for graph in model.graphs() for op in graph.ops()):
        needed.append(_ROUND)
    return max(needed, default=model.opset)


def _has_data_for_bias(op: Op) -> bool:
    port, inputs = bias_port(op), op.inputs
    bias = inputs[port] if port is not None and port < len(inputs) else None
    return bias is not None and fixed_constant(bias) is None


def in_onnx(encoding: Encoding, in_bytes: bool) -> Encoding:
    """The grid in a format of ONNX: a shifted one of int2 is every other code of int4, in half steps.

    Args:
        in_bytes: whether each code is stored in a byte.
    """
    spec, scale, zero_point = encoding.spec, encoding.scale, encoding.zero_point
    if spec.shifted:
        format, scale, zero_point = IntFormat(4, signed=True), scale / 2, 2 * zero_point
        spec = replace(spec, format=format, shifted=False)
    if in_bytes:
        spec = replace(spec, format=BYTE)
    return Encoding(spec, scale, zero_point)


def is_cast(encoding: Encoding) -> bool:
    """Whether a Cast does the rounding: to a format that has no scale."""
    format = encoding.spec.format
    return not isinstance(format, IntFormat) and not format.scaled


def extension_knows(encoding: Encoding) -> bool:
    """Whether the ops of ONNX Runtime's domain ``com.microsoft`` know the type and the granularity."""
    format = encoding.spec.format
    integer = isinstance(format, IntFormat) and format.storage_bits >= 4
    return integer and not isinstance(encoding.spec.granularity, PerBlock)


def opset_needed(encoding: Encoding) -> int:
    """The first opset whose QuantizeLinear and DequantizeLinear know the type and the granularity."""
    spec = encoding.spec
    if not isinstance(spec.format, IntFormat):
        by_type = 19
    else:
        by_type = {2: 25, 4: 21, 8: OLDEST_OPSET, 16: 21, 32: OLDEST_OPSET}[spec.format.storage_bits]
    by_granularity = {PerChannel: 13, PerBlock: 21, TwoLevelBlock: 21}
    return max(by_type, by_granularity.get(type(spec.granularity), OLDEST_OPSET))


def granularity_attributes(encoding: Encoding) -> dict[str, int]:
    granularity = encoding.spec.granularity
    if isinstance(granularity, PerChannel):
        return {"axis": granularity.axis}
    if isinstance(granularity, PerBlock):
        return {"axis": granularity.axis, "block_size": granularity.size}
    return {}
