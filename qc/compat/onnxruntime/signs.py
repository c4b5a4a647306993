"""Signed activations, the default of ``quantize_static``, which ONNX Runtime runs slowly on x86."""

from __future__ import annotations

from onnxruntime.quantization import StaticQuantConfig

from qc.compiler.compiled import Compiled
from qc.ir.graph import Op
from qc.ir.quant.formats import IntFormat, parse_format
from qc.ir.quant_table import QuantTable
from qc.processor import default_target
from qc.runtime.execution.integer_kernels import TWO_SIGNED

from .formats import format_of


def slow_signs(compiled: Compiled, config: StaticQuantConfig) -> list[str]:
    """A note on ops that this processor computes in float, and in integers if activations were unsigned."""
    if _is_signed(default_target().activation.dtype) or not _is_signed(format_of(config.activation_type)):
        return []
    ir = compiled.ir
    last = {op: region.ops[-1] for region in ir.regions for op in region.ops}
    types = {
        op.op_type
        for graph in ir.graphs()
        for op in graph.ops()
        if op.op_type in TWO_SIGNED and _is_quantized(ir.quant, op, last.get(op, op))
    }
    if not types:
        return []
    return [
        f"with signed activations ONNX Runtime computes {' and '.join(sorted(types))} in float here; "
        "activation_type=QuantType.QUInt8 is as accurate and quicker"
    ]


def _is_quantized(table: QuantTable, op: Op, last: Op) -> bool:
    """Whether all that an op reads has grids, and what the last op of its region makes."""
    reads = (table.of_use(value, op, port) for port, value in enumerate(op.inputs) if value is not None)
    return all(reads) and any(table.touches(made) for made in last.outputs if made is not None)


def _is_signed(dtype: str) -> bool:
    format = parse_format(dtype)
    return isinstance(format, IntFormat) and format.signed and format.bits == 8
