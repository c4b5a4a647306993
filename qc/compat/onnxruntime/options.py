"""The dictionary ``extra_options``: what qc understands of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnxruntime.quantization import CalibrationMethod, QuantType

from qc.ir.errors import UsageError, a_type, nearest

from ..missing import refuse

Overrides = Mapping[str, Sequence[Mapping[str, Any]]]

# How ONNX Runtime bounds its memory, writes what an opset lacks, and leaves bodies alone: in qc memory does
# not grow with the samples, the model gets the opset that it needs, and bodies are quantized with all else.
# A Relu or Clip stays in the model. Where the data of what only moves numbers has no grid, no device gains by
# one. The constant of averages weighs rounds of data, of which there is one. ForceSymmetric is read by no
# ONNX Runtime of today, and given by Optimum.
_WITHOUT_EFFECT = (
    "CalibMaxIntermediateOutputs",
    "CalibMovingAverageConstant",
    "CalibStridedMinMax",
    "EnableSubgraph",
    "ForceQuantizeNoInputCheck",
    "ForceSymmetric",
    "QDQKeepRemovableActivations",
    "UseQDQContribOps",
)
_AXES, _AXIS_OF = "QDQOpTypePerChannelSupportToAxis", {"Conv": 0, "ConvTranspose": 1, "MatMul": 1}

# What ONNX Runtime knows and qc does not do: accepted with the value that changes nothing.
_NEUTRAL: dict[str, Any] = {
    "extra.Sigmoid.nnapi": False,
    "ActivationRestrictedAsymmetric": False,
    "OpTypesToExcludeOutputQuantization": [],
    _AXES: {},
    "SmoothQuantAlpha": 0.5,
    "SmoothQuantFolding": True,
    "QDQDisableWeightAdjustForInt32Bias": False,
}


@dataclass(frozen=True)
class ExtraOptions:
    """What qc understands of ``extra_options``.

    Attributes:
        activation_symmetric, weight_symmetric: whether grids are symmetric.
        range_symmetric: the same as ``activation_symmetric``, as an option of the calibration.
        minimum_range: the least distance between the ends of a range; default: that of the target.
        percentile: the share of values that a range covers, in percent.
        smooth: whether outliers of activations move into weights.
        constant_matmul_only: products of two computed tensors stay in float.
        moving_average: a range covers the average over the feeds of their smallest and largest values.
        quantize_bias: biases are 32-bit integers, where the target takes them.
        weights_in_float: weights are stored in float, in front of ops that quantize them.
        dedicated_pairs: each op that reads a tensor has quantize and dequantize ops of its own.
        overrides: settings of single tensors.
    """

    activation_symmetric: bool = False
    weight_symmetric: bool = True
    range_symmetric: bool = False
    minimum_range: float | None = None
    percentile: float = 99.999
    smooth: bool = False
    constant_matmul_only: bool = False
    moving_average: bool = False
    quantize_bias: bool = True
    weights_in_float: bool = False
    dedicated_pairs: bool = False
    overrides: Overrides = field(default_factory=dict)


_FIELDS = {
    "ActivationSymmetric": "activation_symmetric",
    "WeightSymmetric": "weight_symmetric",
    "CalibTensorRangeSymmetric": "range_symmetric",
    "MinimumRealRange": "minimum_range",
    "CalibPercentile": "percentile",
    "SmoothQuant": "smooth",
    "MatMulConstBOnly": "constant_matmul_only",
    "CalibMovingAverage": "moving_average",
    "QuantizeBias": "quantize_bias",
    "AddQDQPairToWeight": "weights_in_float",
    "DedicatedQDQPair": "dedicated_pairs",
    "TensorQuantOverrides": "overrides",
}

_METHODS = {"CalibPercentile": CalibrationMethod.Percentile, "CalibMovingAverage": CalibrationMethod.MinMax}


def read_options(given: Mapping[str, Any], method: CalibrationMethod) -> ExtraOptions:
    """Reads the dictionary.

    Raises:
        UsageError: an option that does not exist, has no effect on what is asked for, or a wrong value.
        NotProvidedError: one that qc does not provide.
    """
    if not isinstance(given, Mapping):
        raise UsageError(f"extra_options are a dictionary, not {a_type(given)}")
    for name, value in given.items():
        if name in _NEUTRAL:
            _refuse_unless(name, value, _NEUTRAL[name])
        elif name not in _FIELDS and name not in _WITHOUT_EFFECT:
            known = [*_FIELDS, *_NEUTRAL, *_WITHOUT_EFFECT]
            raise UsageError(f"there is no extra option '{name}'{nearest(name, known)}")
    for name, needed in _METHODS.items():
        if given.get(name) and method is not needed:
            raise UsageError(f"'{name}' needs calibrate_method=CalibrationMethod.{needed.name}")
    for name in given:
        _check(name, given[name])
    return ExtraOptions(**{_FIELDS[name]: value for name, value in given.items() if name in _FIELDS})


def read_dynamic_options(given: Mapping[str, Any], weight_type: QuantType) -> bool:
    """Reads the dictionary for dynamic quantization; returns whether grids of weights are symmetric.

    Raises:
        UsageError: as :func:`read_options`.
        NotProvidedError: an option that qc does not provide there.
    """
    neutral = {name: getattr(ExtraOptions(), field) for name, field in _FIELDS.items()} | _NEUTRAL
    neutral["MatMulConstBOnly"] = True
    for name, value in given.items():
        if name in neutral and name != "WeightSymmetric":
            _refuse_unless(name, value, neutral[name])
        elif name not in ("WeightSymmetric", *_WITHOUT_EFFECT):
            refuse(f"the extra option '{name}' of dynamic quantization", f"leave out '{name}'")
    _check("WeightSymmetric", given.get("WeightSymmetric", True))
    return bool(given.get("WeightSymmetric", weight_type in (QuantType.QInt8, QuantType.QInt16)))


def _refuse_unless(name: str, value: Any, neutral: Any) -> None:
    if name == _AXES and isinstance(value, Mapping) and value.items() <= _AXIS_OF.items():
        return
    if value != neutral:
        refuse(f"the extra option '{name}' with the value {value!r}", f"leave out '{name}'")


def _check(name: str, value: Any) -> None:
    """Raises UsageError for a value that a field cannot have."""
    if name not in _FIELDS:
        return
    default = getattr(ExtraOptions(), _FIELDS[name])
    if isinstance(default, bool):
        if not isinstance(value, bool | np.bool_):
            raise UsageError(f"'{name}' is True or False, not {value!r}")
    elif name == "TensorQuantOverrides":
        if not isinstance(value, Mapping):
            raise UsageError(f"'{name}' is a dictionary with a list for each tensor, not {a_type(value)}")
    elif value is not None and (not is_number(value) or value < 0):
        raise UsageError(f"'{name}' is a number of at least 0, not {value!r}")
    elif name == "CalibPercentile" and not 0 < value <= 100:
        raise UsageError(f"'{name}' is a share in percent, above 0 and up to 100, not {value!r}")


def is_number(value: Any) -> bool:
    """Whether a value, be it one of NumPy, is one finite real number."""
    number = np.asarray(value)
    return number.ndim == 0 and number.dtype.kind in "iuf" and bool(np.isfinite(number))
