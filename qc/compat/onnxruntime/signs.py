"""Signed activations, the default of ``quantize_static``, which ONNX Runtime runs slowly on x86."""

from __future__ import annotations

from onnxruntime.quantization import StaticQuantConfig

from qc.compiler.compiled import Compiled
from qc.ir.quant.formats import IntFormat, parse_format
from qc.processor import default_target
from qc.runtime.execution.integer_kernels import TWO_SIGNED

from .formats import format_of


def slow_signs(compiled: Compiled, config: StaticQuantConfig) -> list[str]:
    """A note on ops that this processor computes in float, and in integers if activations were unsigned."""
    if _is_signed(default_target().activation.dtype) or not _is_signed(format_of(config.activation_type)):
        return []
    ir = compiled.ir
    types = {
        op.op_type
        for graph in ir.graphs()
        for op in graph.ops()
        if op.op_type in TWO_SIGNED and any(ir.quant.quantizers_on(made) for made in op.outputs if made)
    }
    if not types:
        return []
    return [
        f"with signed activations ONNX Runtime computes {' and '.join(sorted(types))} in float here; "
        "activation_type=QuantType.QUInt8 is as accurate and quicker"
    ]


def _is_signed(dtype: str) -> bool:
    format = parse_format(dtype)
    return isinstance(format, IntFormat) and format.signed and format.bits == 8
