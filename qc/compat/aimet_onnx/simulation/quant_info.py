"""The settings of a quantizer by the names of AIMET's compiled library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from qc.ir.quant.spec import PerBlock, PerChannel, PerTensor

from ...missing import MissingAttributesError
from ..defs import QSpec, QuantizationDataType
from ..errors import ArgumentError


class QcQuantizeInfo:
    """The settings of a quantizer by the names of AIMET's compiled library; those of a quantizer may be set.

    Args:
        op: the quantizer; default: none, and the settings are kept for the one that is made with them.
    """

    def __init__(self, op: Any = None) -> None:
        self.__dict__["_op"] = op
        self.__dict__["_kept"] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in _INFO:
            raise MissingAttributesError(f"quant_info.{name} is not part of qc's compatibility layer")
        if self._op is None:
            return self._kept.get(name)
        return _INFO[name][0](self._op)

    def __setattr__(self, name: str, value: Any) -> None:
        setter = _INFO.get(name, (None, None))[1]
        if setter is None:
            raise MissingAttributesError(f"quant_info.{name} cannot be set in qc's compatibility layer")
        if self._op is None:
            self._kept[name] = value
        else:
            setter(self._op, value)

    def hand_over(self, op: Any) -> None:
        """Sets what was kept on a quantizer, which the settings are of from now on."""
        self.__dict__["_op"] = op
        for name, value in self._kept.items():
            setattr(self, name, value)


def _channel_axis(op: Any) -> int:
    granularity = op.spec.granularity
    if isinstance(granularity, PerChannel):
        return granularity.axis
    return op.axes.channel if isinstance(granularity, PerBlock) and op.axes.channel is not None else -1


def _block_axis(op: Any) -> int:
    return op.spec.granularity.axis if isinstance(op.spec.granularity, PerBlock) else -1


def _set_block_axis(op: Any, axis: int) -> None:
    """Blocks lie along the input channels; what may be said of them is that there are none."""
    if axis == -1:
        _set_block_size(op, 0)
    elif axis != _block_axis(op):
        raise ArgumentError(f"blocks lie along the inputs of a layer, not along axis {axis}; set blockSize")


def _set_integer(op: Any, integer: bool) -> None:
    op.data_type = QuantizationDataType.int if integer else QuantizationDataType.float


def _set_block_size(op: Any, size: int) -> None:
    if size:
        op.set_qspec(QSpec.blockwise(op.precision(), size))
    elif isinstance(op.spec.granularity, PerBlock):
        op.set_qspec(QSpec.per_channel(op.precision()))


_Getter = Callable[[Any], Any]
_Setter = Callable[[Any, Any], None]


def _settable(name: str) -> tuple[_Getter, _Setter]:
    return lambda op: getattr(op, name), lambda op, value: setattr(op, name, value)


_INFO: Mapping[str, tuple[_Getter, _Setter | None]] = {
    "enabled": _settable("enabled"),
    "opMode": _settable("op_mode"),
    "useSymmetricEncoding": _settable("use_symmetric_encodings"),
    "isIntDataType": (lambda op: op.data_type is QuantizationDataType.int, _set_integer),
    "usePerChannelMode": (
        lambda op: not isinstance(op.spec.granularity, PerTensor),
        lambda op, on: op.enable_per_channel_quantization(on),
    ),
    "channelAxis": (_channel_axis, None),
    "blockAxis": (_block_axis, _set_block_axis),
    "blockSize": (
        lambda op: op.spec.granularity.size if isinstance(op.spec.granularity, PerBlock) else 0,
        _set_block_size,
    ),
    "name": (lambda op: op._sites[0].value.name if op._sites else "", None),
}
