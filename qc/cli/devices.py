"""The options that name a device, and the device that they name."""

from __future__ import annotations

from typing import Any

from qc.ir.errors import UsageError
from qc.options import option
from qc.runtime.devices.device import Device
from qc.runtime.devices.known import open_device

from .output import print_note


def on_option(
    help: str = "Run the result on this device, too: openvino, tensorrt; emulated qnn-htp, rknn.",
) -> Any:
    """``--on``."""
    return option(None, help, "--on", metavar="NAME")


def chosen_device(name: str | None, options: tuple[tuple[str, str], ...]) -> Device | None:
    """The device of ``--on``, found before any work; None if it was not given.

    Raises:
        UsageError: there is no such device, or no device for the options.
        QcError: its package is not installed.
    """
    if name is None:
        if options:
            raise UsageError("--device-option is for a device; name it with --on")
        return None
    device = open_device(name, dict(options))
    if device.emulated:
        print_note(f"{name} is emulated here: its results are those of the device, its time is not")
    return device
