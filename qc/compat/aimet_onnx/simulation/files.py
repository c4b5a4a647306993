"""What files and QDQ models of a simulation say beside its grids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from qc.ir.errors import UsageError
from qc.passes.encodings import VERSIONS, Document
from qc.passes.lower.insert_qdq import InsertQdq
from qc.passes.lower.rounding.activation_codes import ActivationCodes
from qc.passes.quantize.calibrate_as_aimet import CalibrateAsAimet
from qc.passes.quantize.quantsim.reading import config_names, load_config
from qc.runtime import OrtExecutor

from ..common import quantsim as common_quantsim
from ..defs import QuantScheme, float32, qtype
from ..deprecation import warn_deprecated
from ..errors import ArgumentError, FormatError, MissingFileError
from .model_names import rename_constants
from .quantized_model import QuantizedModel

_CODES: dict[str | None, ActivationCodes] = {
    "unsigned": "unsigned",
    "signed": "signed",
    None: "symmetric",
}


def codes_of(force_activation_as: str | None) -> ActivationCodes:
    """The codes that activations have; raises UsageError for another word than ``signed`` or ``unsigned``."""
    if force_activation_as not in _CODES:
        raise ArgumentError(
            f"force_activation_as is '{force_activation_as}'; it must be 'unsigned', 'signed' or None"
        )
    return _CODES[force_activation_as]


CALIBRATIONS = {
    QuantScheme.min_max: CalibrateAsAimet("min-max", rounded_parameters=True),
    QuantScheme.post_training_tf_enhanced: CalibrateAsAimet("sqnr", rounded_parameters=True),
    QuantScheme.post_training_percentile: CalibrateAsAimet("percentile", 100.0, rounded_parameters=True),
}


def qdq_lowering(prequantize_constants: bool, force_activation_as: str | None) -> InsertQdq:
    """What makes QDQ models as AIMET does: of plain ONNX, in the lowest opset that can say all grids."""
    return InsertQdq(
        weights="codes" if prequantize_constants else "float",
        opset="raise",
        storage="packed",
        activations=codes_of(force_activation_as),
        pad_channels=False,
    )


def with_names_of_codes(model: ModelProto) -> ModelProto:
    """A QDQ model whose stored codes are named as AIMET names them: ``weight_q`` those of ``weight``."""
    return rename_constants(model, "_quantized", "_q")


def calibrate_parameters(simulation: QuantizedModel, calibration: CalibrateAsAimet) -> None:
    """Gives parameters numbers that have none, as AIMET does before it runs a model or makes a QDQ model."""
    placement, table = simulation._placement, simulation._ir.quant
    for name in placement.parameters:
        op = placement.ops[name]
        if op.rounds and op.encoding is None:
            encoding = calibration.of_constant(op.spec, placement.sites[name].value, OrtExecutor())
            table.calibrate(op.quantizer, encoding, "from the constant alone")


def config_of(config_file: str | Path | None) -> str:
    """The name of a configuration that is there, or its file; raises MissingFileError if there is none."""
    config = str(config_file or "default")
    if config not in config_names() and not Path(config).is_file():
        try:
            load_config(config)
        except UsageError as error:
            raise MissingFileError(str(error)) from error
    return config


def version_of(encoding_version: str | None) -> str:
    """The version of encodings files to write, with a DeprecationWarning if it is 0.6.1.

    Args:
        encoding_version: default: the one that is set on the module ``common.quantsim``.

    Raises:
        UsageError: there is no such version.
    """
    version = encoding_version or common_quantsim.encoding_version
    if version not in VERSIONS:
        raise ArgumentError(f"encoding_version is '{version}'; it must be one of {', '.join(VERSIONS)}")
    if version == "0.6.1":
        warn_deprecated("encoding_version 0.6.1", "1.0.0 or 2.0.0", 4)
    return version


def refuse_unrounded(simulation: QuantizedModel) -> None:
    """Raises FormatError if a tensor is quantized to float32, which only simulations know."""
    for name, op in simulation.qc_quantize_op_dict.items():
        if op.enabled and op.precision() == float32:
            said = f"tensor '{name}' is quantized to float32, which no encodings file and no QDQ model has"
            raise FormatError(f"{said}; disable its quantizer before exporting")


def arguments_of(config: str, scheme: QuantScheme, parameter: qtype, activation: qtype) -> Mapping[str, Any]:
    """``quantizer_args``: what the simulation was made with, whatever was set later.

    Args:
        config: name of a configuration, or a file.
    """
    rules = load_config(config).config
    defaults = rules.defaults
    by_channel = bool(defaults.per_channel_quantization) or any(
        rule.per_channel_quantization for rule in rules.op_type.values()
    )
    symmetric = defaults.params.is_symmetric
    return {
        "quant_scheme": scheme.name,
        "param_bitwidth": parameter.bits,
        "activation_bitwidth": activation.bits,
        "dtype": parameter.kind.name,
        "is_symmetric": by_channel if symmetric is None else symmetric,
        "per_channel_quantization": by_channel,
    }


def ordered(document: Document, simulation: QuantizedModel, arguments: Mapping[str, Any]) -> Document:
    """The document with arguments, in AIMET's order: parameters, activations, what has the grid of others."""
    ops = simulation.qc_quantize_op_dict
    names = (*simulation.param_names, *(name for name in simulation.activation_names if ops[name].enabled))
    place = {name: number for number, name in enumerate(names)}
    records = sorted(document.records, key=lambda record: place.get(record.name, len(place)))
    return replace(document, records=records, arguments=arguments)
