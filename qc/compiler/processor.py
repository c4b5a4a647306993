"""The target where none is named: that of the processor at hand."""

from __future__ import annotations

from qc.passes.framework.target import Target, load_target
from qc.runtime.execution.saturation import sums_saturate

DEFAULT_TARGET = "ort-cpu"


def default_target() -> Target:
    """ort-cpu, in the form that this processor runs."""
    return on_this_processor(load_target(DEFAULT_TARGET))


def on_this_processor(target: Target) -> Target:
    """A target, or its form without VNNI where this processor has none."""
    return load_target(target.without_vnni) if saturates_here(target) else target


def saturates_here(target: Target) -> bool:
    """Whether sums of the codes of a target saturate on this processor."""
    return bool(target.without_vnni) and sums_saturate()


def words_of(target: Target) -> str:
    """The name of a target, and why it is that one if this processor has no VNNI."""
    is_without = target.name == load_target(DEFAULT_TARGET).without_vnni and sums_saturate()
    return f"{target.name}, as this processor has no VNNI" if is_without else target.name
