"""Arguments of AIMET-ONNX that qc does not provide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..missing import refuse

Providers = Sequence[str | tuple[str, Mapping[str, Any]]]


def refuse_providers(providers: Providers | None) -> None:
    """Raises NotProvidedError for a list of providers without the CPU."""
    names = [name if isinstance(name, str) else name[0] for name in providers or ["CPUExecutionProvider"]]
    if "CPUExecutionProvider" not in names:
        refuse(f"the provider '{names[0]}'", "qc simulates on the CPU; leave 'providers' out")
