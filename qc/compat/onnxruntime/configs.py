"""Configurations that scripts for ONNX Runtime make for ``quantize``: for this processor, and for the HTP."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import ModelProto, NodeProto
from onnxruntime.quantization import CalibrationMethod, QuantType, StaticQuantConfig

from qc.ir.errors import UsageError, nearest
from qc.ir.onnx.load import load_model, read_file

from ..missing import refuse
from .errors import raised_as_in_onnxruntime
from .formats import is_signed
from .options import Overrides

_CALIBRATION = {
    "symmetric": "CalibTensorRangeSymmetric",
    "moving_average": "CalibMovingAverage",
    "averaging_constant": "CalibMovingAverageConstant",
    "max_intermediate_outputs": "CalibMaxIntermediateOutputs",
    "percentile": "CalibPercentile",
}


class OptionsForHtp(dict[str, Any]):
    """The extra options of a model for the HTP, which is compiled for qc's target ``qnn-htp``.

    Tools such as Olive take the configuration apart and hand its parts to ``quantize_static``.
    """


@raised_as_in_onnxruntime()
def get_qdq_config(
    model_input: str | Path | ModelProto,
    calibration_data_reader: Any,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibrate_args: Mapping[str, Any] | None = None,
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QInt8,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    keep_removable_activations: bool = False,
    min_real_range: float | None = None,
    tensor_quant_overrides: Overrides | None = None,
    calibration_providers: Sequence[str] | None = None,
    op_types_to_quantize: Collection[str] | None = None,
    nodes_to_exclude: Collection[str] | Callable[[ModelProto, NodeProto], bool] | None = None,
    extra_options: Mapping[str, Any] | None = None,
) -> StaticQuantConfig:
    """The configuration that quantizes all of a model that is worth it; see :func:`quantize_static`.

    Args:
        model_input: the float model, or its path; only ``nodes_to_exclude`` looks at it.
        calibrate_args: options of the calibration by their short names, such as ``percentile``.
        weight_symmetric: default: whether the format of weights is signed.
        min_real_range: the least distance between the ends of a range.
        nodes_to_exclude: names of nodes to leave in float, or what tells of each node whether it is one.

    Raises:
        UsageError: an option of the calibration that does not exist.
    """
    options = {
        "MinimumRealRange": min_real_range,
        "QDQKeepRemovableActivations": keep_removable_activations,
        "ActivationSymmetric": activation_symmetric,
        "WeightSymmetric": is_signed(weight_type) if weight_symmetric is None else weight_symmetric,
        "TensorQuantOverrides": tensor_quant_overrides or {},
    }
    for name, value in (calibrate_args or {}).items():
        if name not in _CALIBRATION:
            raise UsageError(f"calibrate_args has no '{name}'{nearest(name, list(_CALIBRATION))}")
        options[_CALIBRATION[name]] = value
    return StaticQuantConfig(
        calibration_data_reader,
        calibrate_method=calibrate_method,
        activation_type=activation_type,
        weight_type=weight_type,
        op_types_to_quantize=op_types_to_quantize,
        nodes_to_exclude=_names(model_input, nodes_to_exclude),
        per_channel=per_channel,
        reduce_range=reduce_range,
        calibration_providers=calibration_providers,
        extra_options=options | dict(extra_options or {}),
    )


@raised_as_in_onnxruntime()
def get_qnn_qdq_config(
    model_input: str | Path | ModelProto,
    calibration_data_reader: Any,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QUInt8,
    per_channel: bool = False,
    init_overrides: Overrides | None = None,
    add_qtype_converts: bool = True,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    keep_removable_activations: bool = False,
    stride: int | None = None,
    calibration_providers: Sequence[str] | None = None,
    op_types_to_quantize: Collection[str] | None = None,
    nodes_to_exclude: Collection[str] | None = None,
) -> StaticQuantConfig:
    """The configuration for the HTP, which is qc's target ``qnn-htp``; see :func:`quantize_static`.

    Args:
        model_input: the float model, or its path.
        per_channel: one scale for each output channel of a weight, where the HTP takes it.
        init_overrides: settings of single tensors. What an op reads in another width than its result has is
            rounded once more for it, as the HTP computes in one width.
        add_qtype_converts: only that, True, is provided.
        weight_symmetric: default: whether the format of weights is signed.
        stride: how many samples to look at together; all are looked at, however many at a time.

    Raises:
        NotProvidedError: ``add_qtype_converts`` is False.
        ModelError: there is no such model.
    """
    if not isinstance(model_input, ModelProto):
        read_file(model_input)
    if not add_qtype_converts:
        refuse("'add_qtype_converts=False'", "the HTP computes an op in one width only")
    return StaticQuantConfig(
        calibration_data_reader,
        calibrate_method=calibrate_method,
        activation_type=activation_type,
        weight_type=weight_type,
        op_types_to_quantize=op_types_to_quantize,
        nodes_to_exclude=nodes_to_exclude,
        per_channel=per_channel,
        calibration_providers=calibration_providers,
        extra_options=OptionsForHtp(
            {
                "QDQKeepRemovableActivations": keep_removable_activations,
                "TensorQuantOverrides": init_overrides or {},
                "ActivationSymmetric": activation_symmetric,
                "WeightSymmetric": is_signed(weight_type) if weight_symmetric is None else weight_symmetric,
                "CalibStridedMinMax": stride,
            }
        ),
    )


def _names(
    model: str | Path | ModelProto,
    chosen: Collection[str] | Callable[[ModelProto, NodeProto], bool] | None,
) -> list[str]:
    """The names of nodes that are left out, of which a function may have to be asked."""
    if not callable(chosen):
        return list(chosen or ())
    proto = model if isinstance(model, ModelProto) else load_model(Path(model))
    return [node.name for node in proto.graph.node if chosen(proto, node)]
