"""One quantizer as an object to ask and to set, on top of qc's table of quantizers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from qc.ir.quant.formats import Format, IntFormat, has_limits
from qc.ir.quant.spec import Encoding, Quantizer, QuantSpec
from qc.ir.quant_table import QuantTable, Site

from ..defs import QSpec, QuantizationDataType, QuantScheme, TfEncoding, Unrounded, float16, float32, qtype
from ..errors import ArgumentError
from .tf_encodings import bits_of, encoding_from, encodings_of, in_codes_of
from .weight_axes import WeightAxes

ASKED = "set through qc.compat.aimet_onnx"


class TensorQuantizer:
    """The quantizer of one tensor, or of several that are tied, in the table of a model.

    Args:
        table: where qc keeps quantizers.
        sites: the places that it quantizes when it is enabled.
        quantizer: what is in the table there, or the spec that it would have.
        is_parameter: whether the tensor is a trained parameter.
        axes: of a weight.
        integer: of a quantizer of floats, the spec that it would have with integers.
        strict, unsigned: how a grid would be that is made symmetric; default: as the spec.
    """

    def __init__(
        self,
        table: QuantTable,
        sites: Sequence[Site],
        quantizer: Quantizer | QuantSpec,
        is_parameter: bool,
        axes: WeightAxes | None = None,
        integer: QuantSpec | None = None,
        strict: bool = False,
        unsigned: bool = False,
    ) -> None:
        self._table = table
        self._sites = list(sites)
        self._held = Quantizer(0, quantizer) if isinstance(quantizer, QuantSpec) else quantizer
        self._integer = self._held.spec  # what to go back to from a float format
        if integer is not None and not isinstance(self.spec.format, IntFormat):
            self._integer = integer
        self._strict = strict or self._integer.narrow
        self._unsigned = unsigned or self._integer.one_sided
        self._scheme = QuantScheme.min_max
        self._resting: bool | None = None  # of float32, which rounds nothing: whether it is on
        self.is_parameter = is_parameter
        self.axes = axes or WeightAxes()

    @classmethod
    def placed(cls, *arguments: Any) -> Self:
        """One with the arguments of this class, whatever those of a class below it are."""
        made = cls.__new__(cls)
        TensorQuantizer.__init__(made, *arguments)
        return made

    def __repr__(self) -> str:
        state = self._held.state.value if self.enabled else "disabled"
        return f"<{type(self).__name__} {self.spec if self._resting is None else float32} {state}>"

    # -- what it is ---------------------------------------------------------------------------------

    @property
    def spec(self) -> QuantSpec:
        """qc's specification of it."""
        return self._held.spec

    @property
    def quantizer(self) -> Quantizer:
        """qc's quantizer."""
        return self._held

    @property
    def encoding(self) -> Encoding | None:
        """The numbers, in qc's terms; None before calibration."""
        return self._held.encoding if self._resting is None else None

    @property
    def enabled(self) -> bool:
        """Whether the tensor is quantized, be it to float32, which rounds nothing."""
        return bool(self._resting) or self.rounds

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        if self._resting is not None:
            self._resting = enabled
        elif enabled and not self.enabled:
            self._place()
        elif not enabled:
            for site in self._held_sites():
                self._table.remove(site, f"disabled, {ASKED}")

    @property
    def rounds(self) -> bool:
        """Whether it is on, and rounds to a grid or to a smaller float."""
        return any(self._table.get(site) is self._held for site in self._sites)

    @property
    def is_tied(self) -> bool:
        """Whether it is that of several tensors."""
        return len([site for site in self._sites if site.op is None]) > 1

    @property
    def bitwidth(self) -> int:
        """The width of a code."""
        return self.precision().bits

    @bitwidth.setter
    def bitwidth(self, bitwidth: int) -> None:
        self.set_bitwidth(bitwidth)

    @property
    def data_type(self) -> QuantizationDataType:
        """Whether codes are integers or floats. Set to float, the format is float16."""
        return self.precision().kind

    @data_type.setter
    def data_type(self, data_type: QuantizationDataType) -> None:
        if data_type is self.data_type:
            return
        if data_type is QuantizationDataType.float:
            self.set_precision(float16)
        else:
            self.set_precision(qtype.int(self._integer.format.bits))

    @property
    def use_symmetric_encodings(self) -> bool:
        """Whether the grid is symmetric, would be with integers, or will be when it is calibrated again."""
        return self._integer.symmetric

    @use_symmetric_encodings.setter
    def use_symmetric_encodings(self, symmetric: bool) -> None:
        self._adjust(keep=True, symmetric=symmetric)

    @property
    def use_strict_symmetric(self) -> bool:
        """Whether the lowest code is left out where the grid is symmetric."""
        return self._strict

    @use_strict_symmetric.setter
    def use_strict_symmetric(self, strict: bool) -> None:
        if not self._held.frozen:
            self._strict = strict
            self._adjust()

    @property
    def use_unsigned_symmetric(self) -> bool:
        """Whether a symmetric grid of numbers that are not negative begins at zero."""
        return self._unsigned

    @use_unsigned_symmetric.setter
    def use_unsigned_symmetric(self, unsigned: bool) -> None:
        if not self._held.frozen:
            self._unsigned = unsigned
            self._adjust()

    @property
    def quant_scheme(self) -> QuantScheme:
        """How its range is found."""
        return self._scheme

    @quant_scheme.setter
    def quant_scheme(self, scheme: QuantScheme | str) -> None:
        self.set_quant_scheme(scheme)

    def get_encodings(self) -> list[TfEncoding] | None:
        """The numbers of each scale; None before calibration, and for formats without a scale."""
        found = self.encoding
        if found is None or not self.enabled or not has_limits(found.spec.format):
            return None
        return encodings_of(found, self._sites[0].value if self._sites else None)

    def is_initialized(self) -> bool:
        """Whether it has numbers, or needs none."""
        return (
            self._held.encoding is not None or not has_limits(self.spec.format) or self._resting is not None
        )

    def is_encoding_frozen(self) -> bool:
        """Whether calibration leaves its numbers alone."""
        return self._held.frozen

    @property
    def _is_encoding_frozen(self) -> bool:  # which scripts read
        return self._held.frozen

    def precision(self) -> qtype:
        """The number format, without its sign."""
        if self._resting is not None:
            return float32
        format = self.spec.format
        return qtype.int(format.bits) if isinstance(format, IntFormat) else qtype(format)

    # -- setting ------------------------------------------------------------------------------------

    def set_bitwidth(self, bitwidth: int) -> None:
        """Sets the width of integer codes; a frozen quantizer keeps its own, with a warning.

        Raises:
            UsageError: a width that the format does not have.
        """
        if bitwidth == self.bitwidth:
            return
        if self.data_type is QuantizationDataType.float:
            raise ArgumentError(f"a {self.precision()} has no other width; set data_type to int first")
        if self._held.frozen:
            warnings.warn(f"a frozen quantizer keeps its {self.bitwidth} bits", stacklevel=2)
            return
        self.set_precision(qtype.int(bitwidth))

    def set_precision(self, precision: qtype | str) -> None:
        """Sets the number format; a frozen quantizer is given up for a new one that calibration fills."""
        format = qtype.as_qtype(precision).format
        if isinstance(format, Unrounded):
            enabled, self.enabled = self.enabled, False
            self._resting = enabled
        elif isinstance(format, IntFormat):
            self._change(replace(self._integer, format=format))
        else:
            old = self._integer
            kept = QuantSpec(format, granularity=old.granularity, fixed_range=old.fixed_range)
            self._change(kept if format.scaled else QuantSpec(format))

    def set_qspec(self, spec: QSpec) -> None:
        """Sets format, symmetry and granularity of the quantizer of a weight; a frozen one keeps its own.

        Raises:
            UsageError: the tensor is no weight with an axis for it, or the blocks do not divide it.
        """
        if self._held.frozen:
            return
        if spec.granularity is not None:
            granularity = self.axes.granularity(spec.granularity, self._integer.granularity)
            self._integer = replace(self._integer, granularity=granularity)
        self._integer = replace(self._integer, shifted=False)
        if spec.symmetric is not None:
            self._integer = self._with_flags(replace(self._integer, symmetric=spec.symmetric))
        self.set_precision(spec.dtype)
        if spec.shift_zero_point:
            self.set_zero_point_shift()

    def set_quant_scheme(self, quant_scheme: QuantScheme | str) -> None:
        """Sets how the range is found; all quantizers of a simulation have the same scheme in qc."""
        if QuantScheme.from_str(quant_scheme) is not self._scheme:
            raise ArgumentError(
                "one quantizer with a scheme of its own is not part of qc's compatibility layer; "
                "give quant_scheme to QuantizationSimModel"
            )

    def get_zero_point_shift(self) -> float:
        """By how many steps the grid is shifted: 0.5 or 0."""
        return self._integer.shift

    def set_zero_point_shift(self, zero_point_shift: float = 0.5) -> None:
        """Shifts a symmetric grid of int2 by half a step, or back; raises UsageError for another grid."""
        if zero_point_shift not in (0.0, 0.5):
            raise ArgumentError(f"zero_point_shift is {zero_point_shift}; it must be 0 or 0.5")
        self._adjust(shifted=bool(zero_point_shift))

    def set_fixed_encoding_range(self, fixed_range: tuple[float | None, float | None] | None) -> None:
        """Fixes one or both ends of the range that calibration would observe; None fixes none."""
        low, high = fixed_range or (None, None)
        ends = (-np.inf if low is None else low, np.inf if high is None else high)
        self._adjust(keep=True, fixed_range=None if np.isinf(ends).all() else ends)

    def load_encodings(self, encoding: Sequence[TfEncoding]) -> None:
        """Takes over the numbers of each scale; a frozen quantizer is left alone.

        Raises:
            UsageError: their number does not fit the granularity, or their offsets the format, or the format
                has no scale.
        """
        if self._held.frozen:
            return
        spec = self.spec
        if not has_limits(spec.format) or self._resting is not None:
            raise ArgumentError(f"a {self.precision()} has no scale to load; set data_type to int first")
        if isinstance(spec.format, IntFormat):
            spec = self._with_bits(self._integer, bits_of(encoding))
            if any(one.offset % 1 for one in encoding):
                spec = replace(spec, shifted=True)
        self.load(encoding_from(encoding, spec, self.axes.scale_shape(spec.granularity)))

    def load(self, encoding: Encoding) -> None:
        """Takes over a spec with its numbers, in qc's terms; a frozen quantizer is left alone."""
        if self._held.frozen:
            return
        self._change(encoding.spec)
        encoding = in_codes_of(self.spec, encoding)
        if self.enabled:
            self._table.calibrate(self._held, encoding, ASKED)
        else:
            self._held.encoding = encoding

    def freeze_encodings(self) -> None:
        """Keeps calibration from changing its numbers; raises UsageError if there are none."""
        if not self.is_initialized():
            raise ArgumentError(
                "a quantizer without encodings cannot be frozen; calibrate or load them first"
            )
        if self.rounds:
            self._table.freeze(self._held)
        else:
            self._held.frozen = True

    def reset_encoding_stats(self) -> None:
        """Forgets the numbers, unless they are frozen."""
        self.settle()
        if self.rounds:
            self._table.reopen(self._held, ASKED)
        elif not self._held.frozen:
            self._held.encoding = None

    # -- internals ----------------------------------------------------------------------------------

    def _held_sites(self) -> list[Site]:
        return [site for site in self._sites if self._table.get(site) is self._held]

    def _place(self) -> None:
        before = self._held
        for site in self._sites:
            held = self._held if self._held.id else self._held.spec
            self._held = self._table.place(site, held, f"enabled, {ASKED}")
        if before.encoding is not None and before is not self._held:
            self._table.calibrate(self._held, before.encoding, ASKED)
            if before.frozen:
                self._table.freeze(self._held)

    def settle(self) -> None:
        """Lets settings of integer grids hold that were to wait until the numbers are found anew."""
        if self.data_type is QuantizationDataType.int and not self._held.frozen:
            self._change(self._integer)

    def _adjust(self, keep: bool = False, **settings: Any) -> None:
        """Changes settings of integer grids; a quantizer of floats has them when it gets integers.

        Frozen ones stay as they are.

        Args:
            keep: keep numbers that are there: the settings hold from the next calibration on.
        """
        if self._held.frozen:
            return
        self._integer = self._with_flags(replace(self._integer, **settings))
        if not keep or self._held.encoding is None:
            self.settle()

    def _with_flags(self, spec: QuantSpec) -> QuantSpec:
        """The spec with what goes with its symmetry."""
        narrow, one_sided = (flag and spec.symmetric for flag in (self._strict, self._unsigned))
        return replace(spec, narrow=narrow, one_sided=one_sided)

    def _change(self, spec: QuantSpec) -> None:
        """Another spec, which opens the quantizer; a frozen one is given up for a new one."""
        if isinstance(spec.format, IntFormat):
            spec = self._integer = replace(spec, format=self._signed(spec.format, spec.symmetric))
            if spec.symmetric:
                self._strict, self._unsigned = spec.narrow, spec.one_sided
        enabled = self.enabled
        rested, self._resting = self._resting is not None, None
        if spec == self.spec and not rested:
            return
        if self._held.frozen or rested or not enabled:
            self.enabled = False
            self._held = Quantizer(0, spec)
            self.enabled = enabled
        else:
            self._table.respec(self._held, spec, ASKED)

    def _signed(self, format: Format, symmetric: bool) -> Format:
        """The sign that codes have in files: symmetric parameters have one, and 32 bits, which need it."""
        return IntFormat.of_width(format.bits, signed=self.is_parameter and symmetric)

    def _with_bits(self, spec: QuantSpec, bits: int) -> QuantSpec:
        return replace(spec, format=self._signed(IntFormat(bits, True), spec.symmetric))
