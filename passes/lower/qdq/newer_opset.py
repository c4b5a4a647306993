"""A model with its quantizers in a newer opset, for grids that the operators of its own cannot say."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import helper

from qc.ir import lift
from qc.ir.analysis import CONSTANTS
from qc.ir.errors import ModelError, UsageError
from qc.ir.facts.scopes import tensors_by_name
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.onnx.conversion import converted
from qc.ir.onnx.lower import lower
from qc.ir.quant.spec import Quantizer
from qc.ir.quant_table import Site
from qc.ir.verifier import verify


def in_opset(model: Model, opset: int) -> Model:
    """The model, or if its opset is older, a copy of it in that opset with the same quantizers.

    Raises:
        ModelError: ONNX cannot convert the model.
        UsageError: a quantized tensor is not there any more.
    """
    if model.opset >= opset:
        return model
    try:
        proto = converted(lower(model, as_declared=False), opset, model.base_dir)
        oldest_ir = helper.find_min_ir_version_for(proto.opset_import, ignore_unknown=True)
        proto.ir_version = max(proto.ir_version, oldest_ir)
        newer = lift(proto, model.base_dir)
        verify(newer)
    except Exception as error:  # the converter raises bare exceptions of its C++ library
        raise ModelError(
            f"the grids need opset {opset}, the model has {model.opset}, and ONNX cannot convert it "
            f"({' '.join(str(error).split())}): convert it first"
        ) from error
    _declare_as_before(model, newer)
    _carry_over(model, newer)
    return newer


def _declare_as_before(model: Model, newer: Model) -> None:
    """Gives the interface and the constants the types that they were declared and stored in."""
    old, new = model.origin.graph, newer.origin.graph
    known = {info.name: info.type.tensor_type.elem_type for info in (*old.input, *old.output)}
    for info in (*new.input, *new.output):
        info.type.tensor_type.elem_type = known[info.name]
    values = tensors_by_name(newer)
    for name, value in tensors_by_name(model).items():
        copy, const = values.get(name), value.const
        if const is not None and const.is_converted and copy is not None and copy.const is not None:
            with newer.transaction.atomic():
                newer.transaction.set((CONSTANTS,), copy, "const", const)


def _carry_over(model: Model, newer: Model) -> None:
    values = tensors_by_name(newer)
    names = {value: name for name, value in tensors_by_name(model).items()}
    made: dict[Quantizer, Quantizer] = {}
    for site in model.quant.sites():
        held = model.quant.get(site)
        place = _same_site(site, names, values)
        if place is None or held is None or held.encoding is None:
            raise UsageError(f"{site} cannot be carried over to opset {newer.opset}: convert the model first")
        reason = f"as in opset {model.opset}"
        known = held in made
        made[held] = newer.quant.place(place, made.get(held, held.spec), reason)
        if not known:
            newer.quant.calibrate(made[held], held.encoding, reason)
            if held.codes is not None:
                newer.quant.choose_codes(made[held], held.codes, reason)


def _same_site(site: Site, names: dict[Value, str], values: Mapping[str, Value]) -> Site | None:
    """The site in the converted model, where tensors have kept their names."""
    value = values.get(names.get(site.value.original, ""))
    if site.op is None or value is None:
        return Site(value) if value is not None else None
    made = next((names[result] for result in site.op.outputs if result in names), "")
    result = values.get(made)
    op = result.producer if result is not None else None
    if op is None or op.op_type != site.op.op_type:
        return None
    for port, read in enumerate(op.inputs):
        if port == site.port and read is not None and read.original is value:
            return Site(read, op, port)
    return None
