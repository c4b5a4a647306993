"""Arguments of AIMET-ONNX that qc does not provide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..missing import refuse

Providers = Sequence[str | tuple[str, Mapping[str, Any]]]


def refuse_runtime(providers: Providers | None, libraries: object, options: object) -> None:
    """Raises NotProvidedError for what would change how the simulation is run."""
    names = [name if isinstance(name, str) else name[0] for name in providers or ["CPUExecutionProvider"]]
    if "CPUExecutionProvider" not in names:
        refuse(f"the provider '{names[0]}'", "qc simulates on the CPU; leave 'providers' out")
    if libraries:
        refuse("'user_onnx_libs'", "replace custom ops by functions of the model")
    if options:
        refuse("'session_options_kwargs'", "open the model of QuantizationSimModel.model yourself")
