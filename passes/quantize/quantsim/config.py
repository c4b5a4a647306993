"""What a quantsim configuration says: which ops and parameters are quantized, and how."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

import onnx.defs
from annotated_types import MinLen
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from qc.ir.errors import nearest

PARAMETERS = ("weight", "bias", "weight_r", "running_mean", "running_var")
FUSIONS = ("LayerNormalization", "RMSNormalization", "MatmulAdd", "MaskedSoftmax")

# Names that configurations of AIMET use for ops of other domains than ONNX's.
_OTHER_OPS = ("BatchToSpace", "ChannelShuffle", "CropAndResize", "SpaceToBatch")

Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ParameterRule(_Section):
    """How one kind of parameter is quantized; None leaves it as the rules before say."""

    is_quantized: bool | None = None
    is_symmetric: bool | None = None


class Precision(_Section):
    """A number format of a kernel."""

    bitwidth: Literal[4, 8, 16, 32]
    dtype: Literal["int", "float"]

    @model_validator(mode="after")
    def _is_a_format(self) -> Precision:
        if self.dtype == "float" and self.bitwidth not in (16, 32):
            raise ValueError(f"there are no floats of {self.bitwidth} bits; they have 16 or 32")
        return self


class Kernel(_Section):
    """A pair of formats that a device computes with; used by mixed precision, and not by placement."""

    activation: Precision
    param: Precision | None = None


class Constraint(_Section):
    """A fixed range of a result; without ``max`` the upper end is calibrated."""

    min: Finite
    max: Finite | None = None

    @model_validator(mode="after")
    def _is_a_range(self) -> Constraint:
        if self.max is not None and self.min >= self.max:
            raise ValueError(f"min {self.min:g} is not below max {self.max:g}")
        return self


class DefaultOps(_Section):
    """How results are quantized; if nothing is said, only those of op types that ask for it."""

    is_output_quantized: bool | None = None
    is_symmetric: bool | None = None

    @field_validator("is_output_quantized")
    @classmethod
    def _is_not_off(cls, quantized: bool | None) -> bool | None:
        if quantized is False:
            raise ValueError("it cannot be off for all ops; leave out op types by entries under 'op_type'")
        return quantized


class Defaults(_Section):
    """What holds where no later section says otherwise."""

    hw_version: str | None = None
    ops: DefaultOps
    params: ParameterRule
    strict_symmetric: bool | None = None
    unsigned_symmetric: bool | None = None
    per_channel_quantization: bool | None = None
    supported_kernels: tuple[Kernel, ...] = ()


class OpTypeRule(_Section):
    """What holds for the ops of one type."""

    is_input_quantized: bool | None = None
    is_output_quantized: bool | None = None
    is_symmetric: bool | None = None
    params: dict[str, ParameterRule] = Field(default_factory=dict)
    per_channel_quantization: bool | None = None
    supported_kernels: tuple[Kernel, ...] = ()
    encoding_constraints: Constraint | None = None

    @field_validator("is_input_quantized")
    @classmethod
    def _is_not_off(cls, quantized: bool | None) -> bool | None:
        return _only_on(quantized)

    @field_validator("params")
    @classmethod
    def _have_slots(cls, rules: dict[str, ParameterRule]) -> dict[str, ParameterRule]:
        return _known_parameters(rules)


class SupergroupRule(_Section):
    """Ops that follow each other and count as one."""

    op_list: Annotated[tuple[str, ...], MinLen(2)]

    @field_validator("op_list")
    @classmethod
    def _are_ops(cls, op_list: tuple[str, ...]) -> tuple[str, ...]:
        for op_type in op_list:
            require_op(op_type)
        return op_list


class ModelInput(_Section):
    """Whether the inputs of the model, and constants, are quantized."""

    is_input_quantized: bool | None = None

    @field_validator("is_input_quantized")
    @classmethod
    def _is_not_off(cls, quantized: bool | None) -> bool | None:
        return _only_on(quantized)


class ModelOutput(_Section):
    """Whether results that nobody reads are quantized, whatever their op type says."""

    is_output_quantized: bool | None = None

    @field_validator("is_output_quantized")
    @classmethod
    def _is_not_off(cls, quantized: bool | None) -> bool | None:
        return _only_on(quantized)


class QuantsimConfig(_Section):
    """A quantsim configuration, as AIMET's JSON has it.

    Each section overrides the ones before it: defaults, params, op_type, supergroups, model_input and
    model_output.

    Attributes:
        defaults: what holds where no other section says otherwise.
        params: by kind of parameter.
        op_type: by ONNX op type.
        supergroups: chains of ops of which only the last result is quantized.
        supergroup_pass_list: larger patterns that count as one op, of :data:`FUSIONS`.
        model_input, model_output: the interface of the model.
    """

    defaults: Defaults
    params: dict[str, ParameterRule] = Field(default_factory=dict)
    op_type: dict[str, OpTypeRule] = Field(default_factory=dict)
    supergroups: tuple[SupergroupRule, ...] = ()
    supergroup_pass_list: tuple[
        Literal["LayerNormalization", "RMSNormalization", "MatmulAdd", "MaskedSoftmax"], ...
    ] = ()
    model_input: ModelInput = ModelInput()
    model_output: ModelOutput = ModelOutput()

    @field_validator("params")
    @classmethod
    def _have_slots(cls, rules: dict[str, ParameterRule]) -> dict[str, ParameterRule]:
        return _known_parameters(rules)

    @field_validator("op_type")
    @classmethod
    def _are_ops(cls, rules: dict[str, OpTypeRule]) -> dict[str, OpTypeRule]:
        for op_type in rules:
            require_op(op_type)
        return rules

    def plain(self) -> dict[str, Any]:
        """What is written in the file, and nothing that it leaves out."""
        return self.model_dump(exclude_unset=True)


def _only_on(quantized: bool | None) -> bool | None:
    if quantized is False:
        raise ValueError("it can only be switched on; leave the key out instead")
    return quantized


def _known_parameters(rules: dict[str, ParameterRule]) -> dict[str, ParameterRule]:
    for name in rules:
        if name not in PARAMETERS:
            hint = nearest(name, list(PARAMETERS))
            raise ValueError(f"there is no parameter '{name}'{hint}; known: {', '.join(PARAMETERS)}")
    return rules


def require_op(op_type: str) -> None:
    """Raises ValueError if neither ONNX nor AIMET has an op of that type."""
    if op_type not in _known_ops():
        raise ValueError(f"ONNX has no op '{op_type}'{nearest(op_type, sorted(_known_ops()))}")


@functools.cache
def _known_ops() -> frozenset[str]:
    own = (schema.name for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == "")
    return frozenset((*own, *_OTHER_OPS))


__all__ = [
    "FUSIONS",
    "PARAMETERS",
    "Constraint",
    "OpTypeRule",
    "ParameterRule",
    "QuantsimConfig",
    "require_op",
]
