"""Types and specifications of quantizers, by the names that AIMET-ONNX has for them."""

from __future__ import annotations

import builtins
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from qc.ir.quant.formats import Format, IntFormat, parse_format

from .errors import ArgumentError, raised_as_in_aimet


class QuantScheme(enum.Enum):
    """How the range of an activation is found."""

    min_max = 1
    post_training_tf = 1
    post_training_tf_enhanced = 2
    post_training_percentile = 6
    # Ranges that would be learned are what they begin with, since nothing is trained here.
    training_range_learning_with_tf_init = 1
    training_range_learning_with_tf_enhanced_init = 2
    training_range_learning = 5

    @classmethod
    def from_str(cls, alias: QuantScheme | str) -> QuantScheme:
        """The scheme of a name such as ``min_max`` or ``tf_enhanced``; raises UsageError for another one."""
        if alias is cls.training_range_learning:
            raise ArgumentError("ranges are not learned here; use min_max or post_training_tf_enhanced")
        if isinstance(alias, cls):
            return alias
        for name in (str(alias), f"post_training_{alias}"):
            if name in cls.__members__:
                return cls[name]
        raise ArgumentError(f"there is no quant_scheme '{alias}' in qc; use {', '.join(cls.__members__)}")


@dataclass(frozen=True)
class CallbackFunc:
    """A function of a session and one more argument, which is given here; called with the session.

    Attributes:
        func: the function.
        func_callback_args: its second argument.
    """

    func: Callable[[Any, Any], Any]
    func_callback_args: Any = None

    @property
    def args(self) -> Any:
        """The second argument."""
        return self.func_callback_args

    def __call__(self, session: Any) -> Any:
        """What the function gives for a session."""
        return self.func(session, self.func_callback_args)


class DataLoader:
    """Batches of data; a class below it iterates over them.

    Attributes:
        batch_size: samples in a batch.
        iterations: batches.
    """

    def __init__(self, data: Any, batch_size: int, iterations: int | None = None) -> None:
        self._data, self.batch_size = data, batch_size
        self.iterations = iterations or -(-len(data) // batch_size)

    def __iter__(self) -> Iterator[Any]:
        starts = range(0, self.iterations * self.batch_size, self.batch_size)
        return (self._data[start : start + self.batch_size] for start in starts)

    def __len__(self) -> int:
        return self.iterations


class TensorQuantizerOpMode(enum.IntEnum):
    """What a quantizer does when it runs."""

    updateStats = 0
    oneShotQuantizeDequantize = 1
    quantizeDequantize = 2
    passThrough = 3


@dataclass
class TfEncoding:
    """The numbers of one scale in AIMET's terms: a code ``q >= 0`` stands for ``(q + offset) * delta``."""

    min: float = 0.0
    max: float = 0.0
    delta: float = 1.0
    offset: float = 0.0
    bw: int = 8


class EncodingType(enum.Enum):
    """What has a scale of its own."""

    PER_TENSOR = 0
    PER_CHANNEL = 1
    PER_BLOCK = 2
    LPBQ = 3
    VECTOR = 4


class QuantizationDataType(enum.Enum):
    """Whether the codes of a quantizer are integers or floats."""

    undefined = 0
    int = 1
    float = 2


class ActivationType(enum.Enum):
    """Activations that layers have."""

    no_activation = 0
    relu = 1
    relu6 = 2


@dataclass
class QuantDtypeBwInfo:
    """The kinds and widths of activations and parameters.

    Raises:
        UsageError: floats of another width than 16 or 32 bits.
    """

    act_dtype: QuantizationDataType
    act_bw: int
    param_dtype: QuantizationDataType = QuantizationDataType.undefined
    param_bw: int = 0

    def __post_init__(self) -> None:
        for kind, width in (self.get_activation(), self.get_param()):
            if kind is QuantizationDataType.float and width not in (0, 16, 32):
                raise ArgumentError(f"there are no floats of {width} bits here; use 16 or 32")

    def get_activation(self) -> tuple[QuantizationDataType, int]:
        """Kind and width of activations."""
        return self.act_dtype, self.act_bw

    def get_param(self) -> tuple[QuantizationDataType, int]:
        """Kind and width of parameters."""
        return self.param_dtype, self.param_bw

    def is_same_activation(self, dtype: QuantizationDataType, bw: int) -> bool:
        """Whether activations have this kind and width."""
        return self.get_activation() == (dtype, bw)

    def is_same_param(self, dtype: QuantizationDataType, bw: int) -> bool:
        """Whether parameters have this kind and width."""
        return self.get_param() == (dtype, bw)


@dataclass(frozen=True)
class Unrounded:
    """float32, in which a simulation computes: to quantize to it rounds nothing."""

    bits: int = 32

    def __str__(self) -> str:
        return "float32"


@dataclass(frozen=True)
class qtype:
    """A number format, without its sign: ``qtype.int(8)``, ``float16``.

    Attributes:
        format: the format of symmetric codes.
    """

    format: Format | Unrounded

    @staticmethod
    @raised_as_in_aimet()
    def int(bits: builtins.int) -> qtype:
        """An integer of 2 to 32 bits, 16 where it has no sign."""
        return qtype(IntFormat(bits, signed=True))

    @staticmethod
    def float(
        exponent_bits: builtins.int,
        mantissa_bits: builtins.int,
        finite: bool = False,
        unsigned_zero: bool = False,
    ) -> qtype:
        """A float of a known layout: float32, float16, bfloat16, float8e4m3fn or float8e5m2."""
        layouts = {
            (8, 23, False): "float32",
            (5, 10, False): "float16",
            (8, 7, False): "bfloat16",
            (4, 3, True): "float8e4m3fn",
            (5, 2, False): "float8e5m2",
        }
        name = layouts.get((exponent_bits, mantissa_bits, finite))
        if name is None or unsigned_zero:
            raise ArgumentError(
                f"there is no float with {exponent_bits} bits of exponent and {mantissa_bits} of mantissa in "
                f"qc; use {', '.join(layouts.values())}"
            )
        return qtype.from_string(name)

    @staticmethod
    @raised_as_in_aimet()
    def from_string(name: str) -> qtype:
        """The type of a name such as ``int8`` or ``float16``; raises UsageError for another one."""
        return qtype(Unrounded() if name == "float32" else parse_format(name))

    @staticmethod
    def as_qtype(dtype: qtype | str) -> qtype:
        """A type as it is, or that of a name."""
        return dtype if isinstance(dtype, qtype) else qtype.from_string(str(dtype))

    @staticmethod
    def from_legacy_repr(dtype: QuantizationDataType, bitwidth: builtins.int) -> qtype:
        """The type of a kind and a width; raises UsageError for a float of other than 8, 16 or 32 bits."""
        if dtype is QuantizationDataType.int:
            return qtype.int(bitwidth)
        floats = {8: float8e4m3fn, 16: float16, 32: float32}
        if bitwidth not in floats:
            raise ArgumentError(f"there are no floats of {bitwidth} bits; use 8, 16 or 32")
        return floats[bitwidth]

    def to_legacy_repr(self) -> tuple[QuantizationDataType, builtins.int]:
        """The kind and the width."""
        return self.kind, self.bits

    @property
    def kind(self) -> QuantizationDataType:
        """Whether codes are integers or floats."""
        integer = isinstance(self.format, IntFormat)
        return QuantizationDataType.int if integer else QuantizationDataType.float

    @property
    def bits(self) -> builtins.int:
        """The width of a code."""
        return self.format.bits

    def __str__(self) -> str:
        return str(self.format)

    __repr__ = __str__


int2, int4, int8, int16 = (qtype.int(bits) for bits in (2, 4, 8, 16))
float16, float32, float8e4m3fn, float8e5m2 = map(
    qtype.from_string, ("float16", "float32", "float8e4m3fn", "float8e5m2")
)
QTYPE_ALIASES = {
    str(one): one for one in (int2, int4, int8, int16, float16, float32, float8e4m3fn, float8e5m2)
}


class Granularity:
    """What has a scale of its own."""


@dataclass(frozen=True)
class PerTensor(Granularity):
    """The whole tensor."""


@dataclass(frozen=True)
class PerChannel(Granularity):
    """Each output channel."""


@dataclass(frozen=True)
class Blockwise(Granularity):
    """Each block of input channels at each output channel.

    Attributes:
        block_size: elements in a block; 0 for no blocks.
    """

    block_size: int | None


@dataclass(frozen=True)
class LPBQ(Blockwise):
    """Blocks whose scales are integers times one float for each output channel.

    Attributes:
        scale_bits: bits of these integers.
    """

    block_size: int | None = 64
    scale_bits: int = 4


@dataclass(frozen=True)
class QSpec:
    """The specification of the quantizer of a weight.

    Attributes:
        dtype: its number format.
        granularity: what has a scale of its own; None leaves it as it is.
        symmetric: None leaves it as it is.
        shift_zero_point: shift a symmetric grid of int2 by half a step.

    Raises:
        UsageError: a grid is to be shifted that is not symmetric int2.
    """

    dtype: qtype
    granularity: Granularity | None = None
    symmetric: bool | None = None
    shift_zero_point: bool = False

    def __post_init__(self) -> None:
        if self.shift_zero_point and not (self.symmetric and self.dtype == int2):
            raise ArgumentError("shift_zero_point is for int2 with symmetric=True only")

    @classmethod
    def per_tensor(
        cls, dtype: qtype | str, *, symmetric: bool | None = None, shift_zero_point: bool = False
    ) -> QSpec:
        """One scale."""
        return cls(qtype.as_qtype(dtype), PerTensor(), symmetric, shift_zero_point)

    @classmethod
    def per_channel(
        cls, dtype: qtype | str, *, symmetric: bool | None = None, shift_zero_point: bool = False
    ) -> QSpec:
        """One scale for each output channel."""
        return cls(qtype.as_qtype(dtype), PerChannel(), symmetric, shift_zero_point)

    @classmethod
    def blockwise(
        cls,
        dtype: qtype | str,
        block_size: int | None,
        *,
        symmetric: bool | None = None,
        shift_zero_point: bool = False,
    ) -> QSpec:
        """One scale for each block of input channels at each output channel."""
        return cls(qtype.as_qtype(dtype), Blockwise(block_size), symmetric, shift_zero_point)

    @classmethod
    def lpbq(cls, dtype: qtype | str, block_size: int = 64, scale_bits: int = 4) -> QSpec:
        """Blocks whose scales are integers of ``scale_bits`` times one float for each output channel."""
        return cls(qtype.as_qtype(dtype), LPBQ(block_size, scale_bits), True)
