"""The pairs behind what only moves data, for devices that see through to those before."""

from __future__ import annotations

from qc.ir.context import ModelContext
from qc.ir.facts.op_traits import is_grid_preserving
from qc.ir.graph import Op, Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat
from qc.ir.quant.spec import Encoding, PerTensor, Quantizer
from qc.ir.quant_table import Site

from .neighbours import comes_to, is_constant, only_reader

_WITH_OUTPUT_TYPE = 21  # the opset


def leave_out_moved(model: Model) -> None:
    """Takes the quantizers away from what was moved from a tensor on the same grid, which changes no number.

    What a body captures keeps its own, since runtimes look for grids within one graph. So does what has
    signed codes with a zero point from opset 21 on, see :func:`needs_no_zero_point`.
    """
    moved = [site for site in model.quant.sites() if _repeats(model, site)]
    for site in moved:
        model.quant.remove(site, "moved from a tensor on the same grid, behind which the device sees it")


def needs_no_zero_point(value: Value, encoding: Encoding, sees_through: bool) -> bool:
    """Whether the pair of a tensor has the type of its codes as an attribute, and no zero points of 0.

    ONNX Runtime 1.32 puts a pair behind what moves data by itself, such as the Reshape that it makes to fuse
    a MatMul with the bias behind, from opset 21 on with the attribute ``output_dtype`` as well. Then it makes
    int8 codes with a zero point unsigned, and refuses the attribute that it wrote; codes without a zero point
    stay signed. Elsewhere they have one: pools and joins of codes without it ONNX Runtime refuses.

    Args:
        value: the tensor.
        encoding: its grid.
        sees_through: whether there are no pairs behind what moves data.
    """
    if not _is_told_by_attribute(value.graph.model, encoding) or encoding.zero_point.any():
        return False
    return sees_through or comes_to(value, _becomes_gemm, is_grid_preserving)


def _becomes_gemm(op: Op) -> bool:
    """Whether an op is a MatMul that ONNX Runtime fuses with the bias behind, between Reshapes of its own."""
    (result, *_) = op.outputs
    reader = only_reader(result) if op.is_type("MatMul") else None
    if result is None or reader is None or not reader.is_type("Add") or result.type.rank == 2:
        return False
    return any(value is not None and is_constant(value) for value in reader.inputs)


def needs_extension(model: Model, encoding: Encoding) -> bool:
    """Whether ONNX Runtime may refuse the pair of a tensor, see :func:`needs_no_zero_point`.

    It does not in its own domain, whose ops have no such attribute.
    """
    return _is_told_by_attribute(model, encoding) and bool(encoding.zero_point.any())


def _is_told_by_attribute(model: ModelContext, encoding: Encoding) -> bool:
    format, has_one_scale = encoding.spec.format, isinstance(encoding.spec.granularity, PerTensor)
    is_int8 = isinstance(format, IntFormat) and format.signed and format.storage_bits == 8
    return model.opset >= _WITH_OUTPUT_TYPE and is_int8 and has_one_scale


def restore_moved(model: Model) -> None:
    """Gives what was moved from a tensor on a grid that grid, where it has none: the numbers are on it."""
    for op in (op for graph in model.graph.walk() for op in graph.ops()):
        for value in op.outputs:
            before = _grid_before(model, value) if value is not None and value.is_float else None
            has_one_scale = before is not None and isinstance(before.spec.granularity, PerTensor)
            if value is not None and before is not None and has_one_scale and not model.quant.touches(value):
                model.quant.place(Site(value), before, f"the numbers that {op.label} moves")


def _repeats(model: Model, site: Site) -> bool:
    """Whether the numbers of a tensor are on the grid of a site before they are rounded there."""
    value, quantizer = site.value, model.quant.get(site)
    is_captured = value.captured is not None or any(True for _ in value.capturing)
    before = None if is_captured else _grid_before(model, value)
    if before is None or quantizer is None or before.encoding is None or quantizer.encoding is None:
        return False
    if needs_extension(model, before.encoding):
        return False
    has_one_scale = isinstance(before.spec.granularity, PerTensor)
    return has_one_scale and before.encoding.equals(quantizer.encoding)


def _grid_before(model: Model, value: Value) -> Quantizer | None:
    """The grid that the op reads which only moves the numbers of a tensor; None if nothing does."""
    op = value.producer
    source = op.inputs[0] if op is not None and is_grid_preserving(op) else None
    return model.quant.of_use(source, op, 0) if op is not None and source is not None else None
