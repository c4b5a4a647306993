"""``quantize``, ``quantize_static`` and ``quantize_dynamic`` with ONNX Runtime's signatures."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import ModelProto
from onnxruntime.quantization import (
    CalibrationMethod,
    DynamicQuantConfig,
    QuantFormat,
    QuantType,
    StaticQuantConfig,
)
from onnxruntime.quantization.quantize import QuantConfig

import qc
from qc.compiler.compiled import Compiled, refuse_overwrite
from qc.ir.errors import UsageError
from qc.ir.onnx.save import save_model
from qc.ir.quant.formats import IntFormat, parse_format
from qc.passes.framework.target import Target, load_target
from qc.passes.framework.target_rules import FormatRule
from qc.processor import default_target

from ..missing import refuse
from ..providers import device_of
from .configs import OptionsForHtp
from .errors import raised_as_in_onnxruntime
from .formats import format_of
from .operators import as_operators
from .options import ExtraOptions, read_dynamic_options, read_options
from .pipeline import METHODS, dynamic_pipeline_of, pipeline_of
from .ranges import Ranges
from .readers import readable_again
from .signs import slow_signs


@raised_as_in_onnxruntime()
def quantize_static(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    calibration_data_reader: Any = None,
    quant_format: QuantFormat = QuantFormat.QDQ,
    op_types_to_quantize: Collection[str] | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    activation_type: QuantType = QuantType.QInt8,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Collection[str] | None = None,
    nodes_to_exclude: Collection[str] | None = None,
    use_external_data_format: bool = False,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibration_providers: Sequence[str] | None = None,
    extra_options: Mapping[str, Any] | None = None,
    calibration_cache_path: str | Path | None = None,
) -> None:
    """Quantizes a float model with calibration data and writes a QDQ model.

    Args:
        model_input: the float model, or its path.
        model_output: where to write.
        calibration_data_reader: a ``CalibrationDataReader``, or anything else that :func:`qc.compile` takes.
        quant_format: ``QDQ``, or ``QOperator`` for the ops of integers that ONNX Runtime makes of it.
        op_types_to_quantize: leave ops of other types in float.
        per_channel: one scale for each output channel of a weight.
        reduce_range: weights have 7 bits.
        activation_type, weight_type: number formats.
        nodes_to_quantize: leave all other nodes in float.
        nodes_to_exclude: leave these nodes in float.
        use_external_data_format: weights are written beside a model that is too large without, whatever is
            given.
        calibrate_method: ``MinMax``, ``Percentile`` or ``Entropy``.
        calibration_providers: where calibration runs; see :func:`~qc.compat.providers.device_of`.
        extra_options: see docs/switching-from-onnxruntime.md.
        calibration_cache_path: not provided.

    Raises:
        UsageError: an option that does not exist, or that qc does not provide.
        ModelError: the model is not valid, or is quantized already.
        DataError: the data does not fit the model.
        CoverageError: nothing was quantized.
    """
    if calibration_cache_path is not None:
        refuse("'calibration_cache_path'", "write the grids with qc's pass to-encodings and load them again")
    config = StaticQuantConfig(
        calibration_data_reader,
        calibrate_method=calibrate_method,
        quant_format=quant_format,
        activation_type=activation_type,
        weight_type=weight_type,
        op_types_to_quantize=op_types_to_quantize,
        nodes_to_quantize=nodes_to_quantize,
        nodes_to_exclude=nodes_to_exclude,
        per_channel=per_channel,
        reduce_range=reduce_range,
        calibration_providers=calibration_providers,
        extra_options=extra_options,
    )
    _quantize(model_input, model_output, config)


@raised_as_in_onnxruntime()
def quantize_dynamic(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    op_types_to_quantize: Collection[str] | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Collection[str] | None = None,
    nodes_to_exclude: Collection[str] | None = None,
    use_external_data_format: bool = False,
    extra_options: Mapping[str, Any] | None = None,
) -> None:
    """Quantizes the weights of a float model, and lets the data of products be quantized in every run.

    Args:
        model_input: the float model, or its path.
        model_output: where to write.
        op_types_to_quantize: leave weights of ops of other types in float.
        per_channel: one scale for each output channel of a weight.
        reduce_range: weights have 7 bits.
        weight_type: ``QInt8`` or ``QUInt8``.
        nodes_to_quantize: leave the weights of all other nodes in float.
        nodes_to_exclude: leave the weights of these nodes in float.
        use_external_data_format: as for :func:`quantize_static`.
        extra_options: see docs/switching-from-onnxruntime.md.

    Raises:
        As :func:`quantize_static`.
    """
    config = DynamicQuantConfig(
        weight_type=weight_type,
        op_types_to_quantize=op_types_to_quantize,
        nodes_to_quantize=nodes_to_quantize,
        nodes_to_exclude=nodes_to_exclude,
        per_channel=per_channel,
        reduce_range=reduce_range,
        extra_options=extra_options,
    )
    _quantize_dynamic(model_input, model_output, config)


@raised_as_in_onnxruntime()
def quantize(
    model_input: str | Path | ModelProto, model_output: str | Path, quant_config: QuantConfig
) -> None:
    """Quantizes a float model as a configuration says, and writes a QDQ model.

    Args:
        model_input: the float model, or its path.
        model_output: where to write.
        quant_config: a ``StaticQuantConfig``, or a ``DynamicQuantConfig``; of ``get_qnn_qdq_config``, the
            model is for the HTP.

    Raises:
        As :func:`quantize_static`.
    """
    if isinstance(quant_config, DynamicQuantConfig):
        _quantize_dynamic(model_input, model_output, quant_config)
    elif isinstance(quant_config, StaticQuantConfig):
        _quantize(model_input, model_output, quant_config)
    else:
        refuse(f"'{type(quant_config).__name__}'", "use a StaticQuantConfig or a DynamicQuantConfig")


def _quantize(
    model_input: str | Path | ModelProto, model_output: str | Path, config: StaticQuantConfig
) -> None:
    if config.calibration_data_reader is None:
        raise UsageError("calibration needs data; give calibration_data_reader")
    if not isinstance(model_input, ModelProto):
        refuse_overwrite(model_input, model_output)
    compiled = compile_static(model_input, config)
    if config.quant_format is QuantFormat.QDQ:
        compiled.save(model_output)
    else:
        save_model(as_operators(compiled.model, compiled.ir.base_dir), model_output)


def _quantize_dynamic(
    model_input: str | Path | ModelProto, model_output: str | Path, config: DynamicQuantConfig
) -> None:
    if not isinstance(model_input, ModelProto):
        refuse_overwrite(model_input, model_output)
    compile_dynamic(model_input, config).save(model_output)


def compile_static(
    model: str | Path | ModelProto, config: StaticQuantConfig, ranges: Ranges | None = None
) -> Compiled:
    """Compiles as a configuration says; what is to be noted of the result is a warning.

    Args:
        ranges: of tensors by name, in place of data.

    Raises:
        As :func:`quantize_static`.
    """
    _refuse_unprovided(config)
    options = read_options(config.extra_options, config.calibrate_method)
    device = device_of(config.calibration_providers)
    target = _target(config, options)
    pipeline = pipeline_of(config, options, ranges)
    data = readable_again(config.calibration_data_reader)
    compiled = qc.compile(model, pipeline, data=data, target=target, device=device)
    _warn(compiled.warnings)
    _warn(compiled.notes if _is_for_htp(config) else [*compiled.notes, *slow_signs(compiled, config)])
    return compiled


def compile_dynamic(model: str | Path | ModelProto, config: DynamicQuantConfig) -> Compiled:
    """As :func:`compile_static`, for data that is quantized in every run."""
    if config.weight_type not in (QuantType.QInt8, QuantType.QUInt8):
        refuse(f"'weight_type={config.weight_type}' of dynamic quantization", "use QInt8 or QUInt8")
    symmetric = read_dynamic_options(config.extra_options, config.weight_type)
    rule = FormatRule(dtype=_weight_format(config), symmetric=symmetric)
    target = default_target().model_copy(update={"weight": rule})
    compiled = qc.compile(model, dynamic_pipeline_of(config, target), target=target)
    _warn(compiled.notes)
    return compiled


def _warn(notes: Sequence[str]) -> None:
    for note in notes:
        warnings.warn(note, stacklevel=6)  # at the line that calls a function of the layer


def _refuse_unprovided(config: StaticQuantConfig) -> None:
    if config.quant_format is not QuantFormat.QDQ and _is_for_htp(config):
        refuse("'quant_format=QOperator' of a model for the HTP", "the HTP takes QDQ models")
    if config.calibrate_method not in METHODS:
        refuse(
            f"'calibrate_method={config.calibrate_method}'",
            "use MinMax, Percentile or Entropy, or qc's pass calibrate{method=mse}",
        )


def _target(config: StaticQuantConfig, options: ExtraOptions) -> Target:
    """qc's target for ONNX Runtime, or for the HTP, with the formats that are asked for."""
    target = load_target("qnn-htp") if _is_for_htp(config) else default_target()
    symmetric = options.activation_symmetric or options.range_symmetric
    formats = {
        "activation": FormatRule(dtype=format_of(config.activation_type), symmetric=symmetric),
        "weight": FormatRule(dtype=_weight_format(config), symmetric=options.weight_symmetric),
    }
    least = options.minimum_range
    grids = target.grids if least is None else target.grids.model_copy(update={"minimum_range": least})
    return target.model_copy(update=formats | {"grids": grids})


def _is_for_htp(config: StaticQuantConfig) -> bool:
    return isinstance(config.extra_options, OptionsForHtp)


def _weight_format(config: QuantConfig) -> str:
    weight = parse_format(format_of(config.weight_type))
    if config.reduce_range and isinstance(weight, IntFormat):
        weight = IntFormat(weight.bits - 1, weight.signed)
    return str(weight)
