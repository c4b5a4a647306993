"""Execution providers, by which scripts for ONNX Runtime say where models run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from qc.runtime import choose_provider
from qc.runtime.sessions.providers import missing_for_cuda

from .missing import refuse

Providers = Sequence[str | tuple[str, Mapping[str, Any]]]

_DEVICES = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda"}


def device_of(providers: Providers | None) -> str:
    """The device of a list of providers: of the first that can be used here, as in ONNX Runtime.

    Options that stand beside the name of a provider are not looked at.

    Returns:
        ``"cpu"``, also without a list, or ``"cuda"``.

    Raises:
        NotProvidedError: neither the CPU nor CUDA is in the list.
        QcError: CUDA is, without the CPU, and cannot be used here.
    """
    names = [name if isinstance(name, str) else name[0] for name in providers or ["CPUExecutionProvider"]]
    devices = [_DEVICES[name] for name in names if name in _DEVICES]
    if not devices:
        refuse(f"the provider '{names[0]}'", "qc runs models on the CPU, and by CUDA on GPUs of NVIDIA")
    if devices[0] == "cuda" and "cpu" in devices and (missing := missing_for_cuda()):
        warnings.warn(f"models run on the CPU, as CUDA cannot be used: {missing}", stacklevel=2)
        return "cpu"
    return choose_provider(devices[0])
