"""The devices that qc knows, found by their names or by the provider of a target."""

from __future__ import annotations

from collections.abc import Mapping

from qc.ir.errors import UsageError, nearest

from .device import Device, require_installed, version_of
from .onnx_runtime import OrtCpu, OrtCuda
from .openvino import OpenVino
from .qnn_htp import QnnHtp
from .rknn import Rknn
from .tensorrt import TensorRt

Emitter = QnnHtp | Rknn

# What can be had of the compilers of devices, and whose it is.
EMITTING: dict[str, type[Emitter]] = {kind: device for device in (QnnHtp, Rknn) for kind in device.emitted}

DEVICES: dict[str, type[Device]] = {
    device.name: device for device in (OrtCpu, OrtCuda, OpenVino, QnnHtp, Rknn, TensorRt)
}


def open_device(name: str, options: Mapping[str, str] | None = None) -> Device:
    """A device by its name.

    Args:
        name: such as ``openvino``.
        options: options of the runtime itself, in its own words, such as ``{"htp_arch": "75"}``.

    Raises:
        UsageError: there is no such device, or it has no such option.
        QcError: its package is not installed; the sentence names the extra.
    """
    if name not in DEVICES:
        known = ", ".join(DEVICES)
        raise UsageError(f"unknown device '{name}'{nearest(name, list(DEVICES))}; known: {known}")
    require_installed(DEVICES[name])
    return DEVICES[name](options or {})


def device_for(provider: str) -> type[Device] | None:
    """The device behind the provider of a target, installed or not; None if qc knows none."""
    return next((device for device in DEVICES.values() if device.provider == provider), None)


__all__ = ["DEVICES", "EMITTING", "Device", "Emitter", "device_for", "open_device", "version_of"]
