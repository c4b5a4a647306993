"""``TensorQuantOverrides``: settings of single tensors, on top of what was placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qc.ir.errors import UsageError, nearest
from qc.ir.facts.scopes import tensors_by_name
from qc.ir.graph import Value
from qc.ir.model import Model
from qc.ir.quant.formats import IntFormat, parse_format
from qc.ir.quant.ranges import encoding_of_range
from qc.ir.quant.spec import Encoding, PerChannel, PerTensor, Quantizer, QuantSpec
from qc.passes.framework.base import Pass, Stage
from qc.passes.framework.context import PassContext
from qc.passes.quantize.precision.one_format import unify_formats

from ..missing import refuse
from .formats import format_of
from .options import Overrides, is_number

_ASKED = "TensorQuantOverrides"
_KEYS = ("quant_type", "scale", "zero_point", "symmetric", "reduce_range", "rmin", "rmax", "axis")


@dataclass(frozen=True)
class TensorQuantOverrides(Pass):
    """Sets the quantizers of the named tensors; one that others share is set for all of them.

    Where the target computes an op in one width only, what it reads in another is rounded again for it.
    """

    name = "tensor-quant-overrides"
    stage = Stage.ANNOTATE
    uses = frozenset({"target"})

    overrides: Overrides = field(metadata={"option": False})

    def run(self, model: Model, context: PassContext) -> None:
        """Raises UsageError: no such tensor, one that is not quantized, or settings that contradict."""
        _apply_all(model, self.overrides)
        if context.target is not None:
            unify_formats(model, context.target)


def _apply_all(model: Model, overrides: Overrides) -> None:
    values = tensors_by_name(model)
    for name, settings in overrides.items():
        value = values.get(name)
        if value is None:
            raise UsageError(f"{_ASKED}: the model has no tensor '{name}'{nearest(name, list(values))}")
        quantizers = list(dict.fromkeys(model.quant.quantizers_on(value)))
        if not quantizers:
            reason = model.quant.why_not(value) or "no integer op reads it"
            raise UsageError(f"{_ASKED}: '{name}' is not quantized: {reason}")
        for quantizer in quantizers:
            _apply(model, quantizer, value, _checked(name, settings))


def _checked(name: str, settings: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    is_list = isinstance(settings, list | tuple) and bool(settings)
    if not is_list or not all(isinstance(entry, Mapping) for entry in settings):
        raise UsageError(f"{_ASKED}: '{name}' needs a list of dictionaries, one for each scale")
    for entry in settings:
        for key in entry:
            if key == "convert":
                refuse(f"{_ASKED}: 'convert' of '{name}'", "give the tensor one quant_type for all readers")
            if key not in _KEYS:
                raise UsageError(f"{_ASKED}: '{name}' has no setting '{key}'{nearest(key, list(_KEYS))}")
        if ("scale" in entry) != ("zero_point" in entry):
            raise UsageError(f"{_ASKED}: '{name}' needs both scale and zero_point, or neither")
        if "scale" in entry and {"symmetric", "reduce_range", "rmin", "rmax"} & set(entry):
            raise UsageError(f"{_ASKED}: '{name}' has a scale, next to which no range can be given")
        _check_numbers(name, entry)
    return settings


def _check_numbers(name: str, entry: Mapping[str, Any]) -> None:
    for key in ("scale", "zero_point", "rmin", "rmax"):
        if key in entry and not is_number(entry[key]):
            raise UsageError(f"{_ASKED}: '{key}' of '{name}' is a finite number, not {entry[key]!r}")
    if "scale" in entry and entry["scale"] <= 0:
        raise UsageError(f"{_ASKED}: 'scale' of '{name}' is above 0, not {entry['scale']!r}")
    if {"rmin", "rmax"} <= set(entry) and entry["rmin"] > entry["rmax"]:
        raise UsageError(f"{_ASKED}: 'rmin' of '{name}', {entry['rmin']!r}, is above its 'rmax'")


def _apply(model: Model, quantizer: Quantizer, value: Value, settings: Sequence[Mapping[str, Any]]) -> None:
    spec = _spec(quantizer.spec, value, settings)
    first = settings[0]
    if "scale" in first:
        scales = [entry["scale"] for entry in settings]
        zero_points = [entry["zero_point"] for entry in settings]
        lowest, highest = spec.code_range
        if not all(lowest <= code <= highest for code in zero_points):
            raise UsageError(f"{_ASKED}: 'zero_point' of '{value.name}' is from {lowest} to {highest}")
        _fix(model, quantizer, Encoding(spec, _shaped(spec, scales), _shaped(spec, zero_points)))
    elif "rmin" in first and "rmax" in first:
        low, high = ([entry[key] for entry in settings] for key in ("rmin", "rmax"))
        _fix(model, quantizer, encoding_of_range(spec, _shaped(spec, low), _shaped(spec, high)))
    else:
        ends = float(first.get("rmin", -np.inf)), float(first.get("rmax", np.inf))
        fixed = ends if np.isfinite(ends).any() else spec.fixed_range
        model.quant.respec(quantizer, replace(spec, fixed_range=fixed), _ASKED)


def _fix(model: Model, quantizer: Quantizer, encoding: Encoding) -> None:
    model.quant.respec(quantizer, encoding.spec, _ASKED)
    model.quant.calibrate(quantizer, encoding, _ASKED)
    model.quant.freeze(quantizer)


def _spec(spec: QuantSpec, value: Value, settings: Sequence[Mapping[str, Any]]) -> QuantSpec:
    """The spec of all scales, which the first entry tells; several entries are those of channels."""
    first = settings[0]
    format = parse_format(format_of(first["quant_type"])) if "quant_type" in first else spec.format
    if first.get("reduce_range") and isinstance(format, IntFormat):
        format = IntFormat(format.bits - 1, format.signed)
    granularity = spec.granularity
    if "axis" in first:
        granularity = PerChannel(int(first["axis"]))
    channels = _channels(value, granularity)
    if len(settings) not in (1, channels):
        raise UsageError(
            f"{_ASKED}: {len(settings)} entries do not fit '{value.name}', which has {channels} scales"
        )
    if len(settings) == 1 and channels > 1 and {"scale", "rmin"} & set(first):
        granularity = PerTensor()
    symmetric = bool(first.get("symmetric", spec.symmetric))
    changed = replace(spec, symmetric=symmetric, granularity=granularity)
    if isinstance(format, IntFormat):
        return changed.resized(format, spec.narrow)
    return replace(changed, format=format)


def _channels(value: Value, granularity: object) -> int:
    if not isinstance(granularity, PerChannel):
        return 1
    const = value.original.const
    if const is None:
        raise UsageError(f"{_ASKED}: '{value.name}' is computed, and can only have one scale")
    return int(const.shape[granularity.axis])


def _shaped(spec: QuantSpec, numbers: Sequence[float]) -> np.ndarray:
    return np.asarray(numbers if isinstance(spec.granularity, PerChannel) else numbers[0])
