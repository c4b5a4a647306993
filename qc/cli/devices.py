"""The options that name a device, and the device that they name."""

from __future__ import annotations

from typing import Any

from qc.ir.errors import UsageError
from qc.options import option
from qc.passes.framework.target import Target, load_target, target_names
from qc.runtime.devices.device import Device
from qc.runtime.devices.known import DEVICES, open_device

from .output import print_note


def on_option(use: str = "Run the result on this device, too") -> Any:
    """``--on``; ``use`` says what for."""
    real, emulated = (
        ", ".join(name for name, device in DEVICES.items() if device.emulated == is_emulated)
        for is_emulated in (False, True)
    )
    return option(None, f"{use}: {real}; emulated {emulated}.", "--on", metavar="NAME")


def chosen_device(
    name: str | None, options: tuple[tuple[str, str], ...], target: str | None = None
) -> Device | None:
    """The device of ``--on``, found before any work; None if it was not given.

    A note tells of a ``target``, if one was given, that is another one's.

    Raises:
        UsageError: there is no such device or target, or no device for the options.
        QcError: its package is not installed.
    """
    if name is None:
        if options:
            raise UsageError("--device-option is for a device; name it with --on")
        return None
    device = open_device(name, dict(options))
    if device.emulated:
        print_note(f"{name} is emulated here: its results are those of the device, its time is not")
    if target is not None and _is_of_another(load_target(target), device):
        print_note(
            f"the result is for {target}, and {name} runs it: what is told of {name} may be worse than of a "
            f"result for it{f', which --target {name} makes' if name in target_names() else ''}"
        )
    return device


def _is_of_another(target: Target, device: Device) -> bool:
    """Whether another device runs what is compiled for a target; a file need not say which does."""
    is_known = bool(target.provider) or target.name in target_names()
    return is_known and target.provider != device.provider
