"""The target where none is named: that of the processor at hand."""

from __future__ import annotations

from onnx import ModelProto

from qc.ir.model import Model
from qc.passes.framework.made_for import target_in
from qc.passes.framework.target import Target, load_target, target_names
from qc.runtime.execution.saturation import sums_saturate

DEFAULT_TARGET = "ort-cpu"
_FULL_BITS = 8


def default_target() -> Target:
    """ort-cpu, in the form that this processor runs."""
    return on_this_processor(load_target(DEFAULT_TARGET))


def target_made_for(model: ModelProto) -> Target:
    """The target of qc that a model was made for, as its metadata says; of others that of the processor."""
    name = target_in(model)
    return on_this_processor(load_target(name)) if name in target_names() else default_target()


def on_this_processor(target: Target) -> Target:
    """A target, or its form without VNNI where this processor has none."""
    return load_target(target.without_vnni) if target.without_vnni and sums_saturate() else target


def saturates_here(ir: Model, target: Target) -> bool:
    """Whether sums of products of a model's codes, chosen for a target, may saturate in ONNX Runtime here."""
    quantized = [(site.value.original.const is not None, ir.quant.get(site)) for site in ir.quant.sites()]
    bits = {(is_constant, held.spec.format.bits) for is_constant, held in quantized if held is not None}
    has_full_range = bits >= {(False, _FULL_BITS), (True, _FULL_BITS)}
    return has_full_range and not target.grids.most_pair_sum and sums_saturate()


def words_of(target: Target) -> str:
    """The name of a target, and why it is that one if this processor has no VNNI."""
    is_without = target.name == load_target(DEFAULT_TARGET).without_vnni and sums_saturate()
    return f"{target.name}, as this processor has no VNNI" if is_without else target.name
