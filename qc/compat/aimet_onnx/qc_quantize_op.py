"""``QcQuantizeOp``: a quantizer with all names that AIMET-ONNX has for what it is asked and told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from onnx import ModelProto, TensorProto, helper

from qc.ir import lift
from qc.ir.quant.arithmetic import Rounding, fake_quantize, reduce_groups
from qc.ir.quant.formats import IntFormat, has_limits
from qc.ir.quant.spec import QuantSpec
from qc.ir.quant_table import Site
from qc.passes.encodings import VERSIONS, Document, TensorRecord, dump_encodings
from qc.passes.encodings.from_model import record_of
from qc.passes.quantize.aimet.arithmetic import grid_of_range
from qc.passes.quantize.calibration.ranges import covering

from ..missing import PartlyProvided
from .defs import QSpec, QuantizationDataType, QuantScheme, TfEncoding, float32, qtype
from .defs import TensorQuantizerOpMode as OpMode
from .deprecation import warn_deprecated
from .errors import ArgumentError, FormatError, raised_as_in_aimet
from .simulation.quant_info import QcQuantizeInfo
from .simulation.tensor_quantizer import ASKED, TensorQuantizer
from .simulation.tf_encodings import bits_of
from .simulation.weight_axes import WeightAxes

__all__ = ["GroupedBlockQuantizeDequantize", "OpMode", "QcQuantizeOp", "TensorQuantizerParams", "TfEncoding"]


@dataclass(frozen=True)
class TensorQuantizerParams:
    """What a tensor looks like.

    Attributes:
        tensor_shape: its sizes.
        channel_axis: that of output channels.
        block_axis: that along which blocks lie.
    """

    tensor_shape: tuple[int, ...]
    channel_axis: int | None = None
    block_axis: int | None = None

    def axes(self) -> WeightAxes:
        """As the axes of a weight, counted from the front."""
        rank = len(self.tensor_shape)
        channel, block = (
            axis % rank if axis is not None and rank else None
            for axis in (self.channel_axis, self.block_axis)
        )
        return WeightAxes(channel, block, tuple(self.tensor_shape))


class QcQuantizeOp(PartlyProvided, TensorQuantizer):
    """A quantizer; ``QuantizationSimModel`` makes those of its tensors.

    One that a script makes stands alone: it can be asked, set, shown arrays, calibrated and used on arrays.
    What it is set to holds for the tensors that ``set_quantizers`` gives it to.

    Args:
        quant_info: settings to begin with.
        quant_scheme: how the range is found.
        rounding_mode: ``nearest`` is the only one.
        op_mode: what it does when it runs.
        bitwidth: of integer codes.
        use_symmetric_encodings: whether the grid is symmetric.
        tensor_quantizer_params: what the tensor looks like.
    """

    instead = MappingProxyType(
        {"get_stats_histogram": "QuantAnalyzer.export_per_layer_stats_histogram writes histograms"}
    )

    def __init__(
        self,
        quant_info: QcQuantizeInfo | None = None,
        quant_scheme: QuantScheme | str = QuantScheme.min_max,
        rounding_mode: str = "nearest",
        op_mode: OpMode | None = None,
        bitwidth: int = 8,
        use_symmetric_encodings: bool = False,
        tensor_quantizer_params: TensorQuantizerParams | None = None,
    ) -> None:
        if rounding_mode != "nearest":
            raise ArgumentError(
                f"there is no rounding_mode '{rounding_mode}'; numbers go to the nearest code"
            )
        axes = tensor_quantizer_params.axes() if tensor_quantizer_params else WeightAxes()
        spec = QuantSpec(
            IntFormat.of_width(bitwidth, signed=use_symmetric_encodings), symmetric=use_symmetric_encodings
        )
        model = lift(_lone_tensor())
        (value,) = model.graph.outputs
        assert value is not None
        super().__init__(model.quant, [Site(value)], spec, use_symmetric_encodings, axes)
        self._model = model  # which the table belongs to
        self._scheme = QuantScheme.from_str(quant_scheme)
        self.enabled = True
        if op_mode is not None:
            self.op_mode = op_mode
        if quant_info is not None:
            quant_info.hand_over(self)

    @property
    def stands_alone(self) -> bool:
        """Whether a script made it."""
        return "_model" in self.__dict__

    def copy(self) -> Self:
        """One of the same settings, without places and numbers."""
        self.settle()
        flags = self._strict, self._unsigned
        made = type(self).placed(
            self._table, [], self.spec, self.is_parameter, self.axes, self._integer, *flags
        )
        made._resting = None if self._resting is None else False
        return made

    def give(self, site: Site, other: QcQuantizeOp) -> None:
        """Hands a place over to another quantizer, which holds it from now on."""
        if self is other:
            return
        if self.rounds:
            self._table.remove(site, f"replaced, {ASKED}")
        self._sites.remove(site)
        other._sites.append(site)
        if other.rounds:
            self._table.place(site, other._held, f"tied, {ASKED}")

    def adopted(self, other: QcQuantizeOp) -> QcQuantizeOp:
        """One of this table and of this tensor, with the settings and numbers of one that stands alone."""
        made = self.copy()
        if other.precision() == float32:
            made.set_precision(float32)
        else:
            made._change(other.spec)
        if other.encoding is not None:
            made.load(other.encoding)
            made._held.frozen = other.is_encoding_frozen()
        return made

    @property
    def quant_info(self) -> QcQuantizeInfo:
        """Its settings by the names of AIMET's compiled library."""
        return QcQuantizeInfo(self)

    @property
    def op_mode(self) -> OpMode:
        """What it does when it runs: measure, until there are numbers; then round."""
        asked = self.__dict__.get("_op_mode")
        if asked is not None:
            return asked
        if self.is_parameter and self.encoding is None:
            return OpMode.oneShotQuantizeDequantize
        return OpMode.quantizeDequantize if self.is_initialized() else OpMode.updateStats

    @op_mode.setter
    def op_mode(self, op_mode: OpMode) -> None:
        passes = op_mode is OpMode.passThrough
        if passes or self.__dict__.get("_op_mode") is OpMode.passThrough:
            self.enabled = not passes
        self._op_mode = op_mode if passes or op_mode is OpMode.updateStats else None

    @property
    def is_observing(self) -> bool:
        """Whether a script wants to see the tensor when the session runs, and to calibrate it by itself."""
        return self.__dict__.get("_op_mode") is OpMode.updateStats

    def begin_calibration(self) -> None:
        """Lets settings that waited for it hold, and forgets what a script has shown by itself."""
        self.settle()
        self.__dict__.pop("_seen", None)
        if self.is_observing:
            self._op_mode = None

    @property
    def encodings(self) -> list[TfEncoding] | None:
        """The numbers of each scale, or None; the older name of get_encodings and load_encodings."""
        warn_deprecated("QcQuantizeOp.encodings", "get_encodings")
        return self.get_encodings()

    @encodings.setter
    def encodings(self, encodings: list[TfEncoding] | None) -> None:
        warn_deprecated("QcQuantizeOp.encodings", "load_encodings")
        if encodings is None:
            self.reset_encoding_stats()
        else:
            self.load_encodings(encodings)

    @property
    def tensor_quantizer_params(self) -> TensorQuantizerParams | None:
        """What the tensor looks like; None where that is not known."""
        axes = self.axes
        return TensorQuantizerParams(axes.shape, axes.channel, axes.block) if axes.shape else None

    def enable_per_channel_quantization(self, enable: bool = True) -> None:
        """One scale for each output channel, or one for all; raises UsageError if there is no such axis."""
        form = QSpec.per_channel if enable else QSpec.per_tensor
        self.set_qspec(form(self.precision()))

    # -- numbers ------------------------------------------------------------------------------------

    def update_quantizer_and_load_encodings(
        self,
        encoding: Sequence[TfEncoding],
        is_symmetric: bool | None,
        is_strict_symmetric: bool | None,
        is_unsigned_symmetric: bool | None,
        data_type: QuantizationDataType,
    ) -> None:
        """Turns it on with a format of its own, and takes over the numbers; a frozen quantizer is left alone.

        Args:
            encoding: the numbers of each scale; of floats nothing but the width counts.
            is_symmetric, is_strict_symmetric, is_unsigned_symmetric: of the grid.
            data_type: of codes.
        """
        if self._held.frozen:
            return
        precision = qtype.from_legacy_repr(data_type, bits_of(encoding))
        self.enabled = True
        self.set_precision(precision)
        if data_type is QuantizationDataType.int:
            self.use_symmetric_encodings = bool(is_symmetric)
            if is_symmetric:
                self.use_strict_symmetric = bool(is_strict_symmetric)
                self.use_unsigned_symmetric = bool(is_unsigned_symmetric) or self._unsigned
            self.load_encodings(encoding)

    def update_encoding_stats(self, tensor: np.ndarray) -> None:
        """Takes an array into what :meth:`compute_encodings` makes the grid of."""
        array, granularity = np.asarray(tensor), self.spec.granularity
        low, high = (reduce_groups(array, granularity, extreme) for extreme in (np.min, np.max))
        seen = self.__dict__.get("_seen")
        self._seen = (
            (np.minimum(low, seen[0]), np.maximum(high, seen[1])) if seen is not None else (low, high)
        )

    def compute_encodings(self) -> list[TfEncoding] | None:
        """Finds the numbers for the arrays seen so far, from the least to the largest; None without a scale.

        Raises:
            UsageError: no array was seen, or ranges are found in another way than by their ends.
        """
        seen = self.__dict__.pop("_seen", None)
        self.settle()
        if not self.rounds or not has_limits(self.spec.format):
            return None
        self._op_mode = None
        fixed = self.spec.fixed_range
        if seen is None and fixed is not None and np.isfinite(fixed).all():
            shape = self.axes.scale_shape(self.spec.granularity)
            seen = np.full(shape, fixed[0]), np.full(shape, fixed[1])
        if seen is None:
            raise ArgumentError("there is nothing to compute encodings of; call update_encoding_stats before")
        if self.quant_scheme is not QuantScheme.min_max:
            raise ArgumentError("one quantizer finds ranges by min_max alone; calibrate the simulation")
        spec = self.spec
        integer = isinstance(spec.format, IntFormat)
        self.load(grid_of_range(spec, *seen).encoding(spec) if integer else covering(spec, *seen))
        return self.get_encodings()

    def reset_encoding_stats(self) -> None:
        """Forgets the numbers and the arrays seen so far, unless they are frozen."""
        self.__dict__.pop("_seen", None)
        super().reset_encoding_stats()

    def clip_and_recompute_encodings(self, clamp_val: float) -> bool:
        """Limits the range to ``[-clamp_val, clamp_val]``; tells whether that changed the numbers."""
        if not clamp_val > 0:
            raise ArgumentError(f"clamp_val is {clamp_val}; it must be above 0")
        found = self._held.encoding
        is_integer = isinstance(self.spec.format, IntFormat)
        if found is None or not (self.enabled and is_integer) or self._held.frozen:
            return False
        if found.minimum.min() >= -clamp_val and found.maximum.max() <= clamp_val:
            return False
        low, high = np.maximum(found.minimum, -clamp_val), np.minimum(found.maximum, clamp_val)
        grid = grid_of_range(found.spec, low, high).encoding(found.spec)
        self._table.calibrate(self._held, grid, f"clamped, {ASKED}")
        return True

    def quantize_dequantize(self, input_tensor: np.ndarray) -> np.ndarray:
        """The array rounded to the grid, in its own type; as it is while there is none."""
        found = self.encoding
        if found is None or not self.enabled:
            return input_tensor
        array = np.asarray(input_tensor)
        return fake_quantize(array.astype(np.float32), found, Rounding.HALF_UP).astype(array.dtype)

    def export_encodings(self, encoding_version: str = "0.6.1") -> Any:
        """What an encodings file of a version says about it: in 0.6.1 a list, else an object, or None."""
        if not (self.enabled and self.is_initialized()):
            return None
        if encoding_version not in VERSIONS:
            raise ArgumentError(f"encoding_version is '{encoding_version}'; use one of {', '.join(VERSIONS)}")
        if self.precision() == float32:
            raise FormatError("encodings files have no float32; disable the quantizer")
        value = self._sites[0].value
        if has_limits(self.spec.format):
            record = replace(record_of(value.name, value, self.quantizer), is_parameter=True)
        elif encoding_version.startswith("2"):
            return {}  # which leaves 16-bit floats out
        else:
            record = TensorRecord(value.name, self.spec.format, is_parameter=True)
        with raised_as_in_aimet():
            content = json.loads(dump_encodings(Document(encoding_version, [record])))
        if encoding_version == "0.6.1":
            return content["param_encodings"][record.name]
        (entry,) = content.get("param_encodings") or content["encodings"]
        del entry["name"]
        return entry


class GroupedBlockQuantizeDequantize(QcQuantizeOp):
    """A quantizer of blocks whose scales are integers times one float; the older form of ``QSpec.lpbq``."""

    def __init__(
        self,
        quant_info: QcQuantizeInfo | None = None,
        bitwidth: int = 4,
        decompressed_bw: int = 8,
        block_size: int = 64,
        quant_scheme: QuantScheme | str = QuantScheme.min_max,
        op_mode: OpMode | None = None,
        tensor_quantizer_params: TensorQuantizerParams | None = None,
    ) -> None:
        warn_deprecated("GroupedBlockQuantizeDequantize", "QcQuantizeOp.set_qspec(QSpec.lpbq(...))")
        if decompressed_bw <= bitwidth:
            raise ArgumentError(
                f"decompressed_bw is {decompressed_bw}; it must be more than the {bitwidth} bits"
            )
        super().__init__(
            quant_info, quant_scheme, "nearest", op_mode, bitwidth, True, tensor_quantizer_params
        )
        self.set_qspec(QSpec.lpbq(qtype.int(bitwidth), block_size, decompressed_bw - bitwidth))
        self.decompressed_bw = decompressed_bw


def _lone_tensor() -> ModelProto:
    """A model of one tensor, which a quantizer that stands alone is that of."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("given", "tensor")]
    node = helper.make_node("Identity", ["given"], ["tensor"])
    return helper.make_model(helper.make_graph([node], "lone", ends[:1], ends[1:]))
