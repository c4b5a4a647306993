"""The dictionary ``extra_options``: what qc understands of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxruntime.quantization import CalibrationMethod

from qc.ir.errors import UsageError, nearest

from ..missing import refuse

Overrides = Mapping[str, Sequence[Mapping[str, Any]]]

# What ONNX Runtime knows and qc does not do: accepted with the value that changes nothing.
_NEUTRAL: dict[str, Any] = {
    "extra.Sigmoid.nnapi": False,
    "ActivationRestrictedAsymmetric": False,
    "EnableSubgraph": False,
    "ForceQuantizeNoInputCheck": False,
    "MatMulConstBOnly": False,
    "AddQDQPairToWeight": False,
    "OpTypesToExcludeOutputQuantization": [],
    "DedicatedQDQPair": False,
    "QDQOpTypePerChannelSupportToAxis": {},
    "CalibTensorRangeSymmetric": False,
    "CalibStridedMinMax": None,
    "CalibMovingAverage": False,
    "CalibMovingAverageConstant": 0.01,
    "CalibMaxIntermediateOutputs": None,
    "SmoothQuant": False,
    "SmoothQuantAlpha": 0.5,
    "SmoothQuantFolding": True,
    "UseQDQContribOps": False,
    "MinimumRealRange": None,
    "QDQKeepRemovableActivations": False,
    "QDQDisableWeightAdjustForInt32Bias": False,
}


@dataclass(frozen=True)
class ExtraOptions:
    """What qc understands of ``extra_options``.

    Attributes:
        activation_symmetric, weight_symmetric: whether grids are symmetric.
        percentile: the share of values that a range covers, in percent.
        overrides: settings of single tensors.
    """

    activation_symmetric: bool = False
    weight_symmetric: bool = True
    percentile: float = 99.999
    overrides: Overrides = field(default_factory=dict)


_FIELDS = {
    "ActivationSymmetric": "activation_symmetric",
    "WeightSymmetric": "weight_symmetric",
    "CalibPercentile": "percentile",
    "TensorQuantOverrides": "overrides",
}


def read_options(given: Mapping[str, Any], method: CalibrationMethod) -> ExtraOptions:
    """Reads the dictionary.

    Raises:
        UsageError: an option that does not exist, or has no effect on what is asked for.
        NotProvidedError: one that qc does not provide.
    """
    for name, value in given.items():
        if name in _NEUTRAL:
            if value != _NEUTRAL[name]:
                refuse(f"the extra option '{name}' with the value {value!r}", f"leave out '{name}'")
        elif name not in _FIELDS:
            known = [*_FIELDS, *_NEUTRAL]
            raise UsageError(f"there is no extra option '{name}'{nearest(name, known)}")
    if "CalibPercentile" in given and method is not CalibrationMethod.Percentile:
        raise UsageError("'CalibPercentile' needs calibrate_method=CalibrationMethod.Percentile")
    return ExtraOptions(**{_FIELDS[name]: value for name, value in given.items() if name in _FIELDS})
