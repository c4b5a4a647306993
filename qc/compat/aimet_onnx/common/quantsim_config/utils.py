"""The files of configurations; ``QuantizationSimModel`` takes their names, such as ``htp_v73``, as well."""

from __future__ import annotations

from qc.passes.quantize.quantsim.reading import config_path


def get_path_for_per_channel_config() -> str:
    """The configuration that is the default, with one scale for each output channel of weights."""
    return config_path("default")


def get_path_for_per_tensor_config() -> str:
    """The same with one scale for each weight."""
    return config_path("default_per_tensor")


def get_path_for_target_config(target_config: str) -> str:
    """The configuration of a device, such as ``htp_quantsim_config_v73``, ``htp_v73`` or ``dsp``.

    Raises:
        UsageError: there is none of that name.
    """
    return config_path(target_config.replace("_quantsim_config", ""))
