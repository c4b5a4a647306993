"""Older forms of arguments, and those of newer ones that several functions take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any

from qc.runtime.sessions.providers import missing_for_cuda

from .defs import CallbackFunc, QuantizationDataType, qtype
from .deprecation import warn_deprecated
from .errors import ArgumentError, raised_as_in_aimet
from .simulation.files import config_of

# The order of the constructor's arguments when they could be given without their names.
_OLD_ORDER = (
    "dummy_input",
    "quant_scheme",
    "rounding_mode",
    "default_param_bw",
    "default_activation_bw",
    "use_symmetric_encodings",
    "use_cuda",
    "device",
    "config_file",
    "default_data_type",
    "user_onnx_libs",
    "providers",
    "path",
)
_WIDTHS = ("default_param_bw", "default_activation_bw", "default_data_type")
_OLD = {"rounding_mode", "use_symmetric_encodings", "use_cuda", "device", *_WIDTHS}


def with_old_arguments(constructor: Callable[..., None]) -> Callable[..., None]:
    """Lets a constructor take the arguments of earlier versions, with a DeprecationWarning."""

    @wraps(constructor)
    def construct(self: object, model: object, *old: Any, **given: Any) -> None:
        if old or _OLD & given.keys():
            what = "QuantizationSimModel with arguments of earlier versions"
            warn_deprecated(what, "param_type, activation_type and the other arguments by their names")
            if len(old) > len(_OLD_ORDER):
                raise TypeError(
                    f"QuantizationSimModel takes at most {len(_OLD_ORDER)} arguments behind the model"
                )
            given |= dict(zip(_OLD_ORDER, old, strict=False))
            given = _translated(given)
        with raised_as_in_aimet():
            given["config_file"] = config_of(given.get("config_file"))
            constructor(self, model, **given)

    construct.__signature__ = signature(constructor)  # type: ignore[attr-defined]
    return construct


def _translated(given: dict[str, Any]) -> dict[str, Any]:
    old = {name: given.pop(name) for name in _OLD & given.keys()}
    old = {name: value for name, value in old.items() if value is not None}
    if old.get("rounding_mode", "nearest") != "nearest":
        raise TypeError(f"there is no rounding_mode '{old['rounding_mode']}'; numbers go to the nearest code")
    if given.get("providers") and {"use_cuda", "device"} & old.keys():
        raise ArgumentError("providers goes neither with use_cuda nor with device")
    if old.get("use_cuda", True) and not given.get("providers") and not missing_for_cuda():
        given["providers"] = ["CUDAExecutionProvider"]
    if set(_WIDTHS) & old.keys():
        if {"param_type", "activation_type"} & given.keys():
            raise ArgumentError("param_type and activation_type do not go with default_param_bw and the like")
        kind = old.get("default_data_type", QuantizationDataType.int)
        given["param_type"] = qtype.from_legacy_repr(kind, old.get("default_param_bw", 8))
        given["activation_type"] = qtype.from_legacy_repr(kind, old.get("default_activation_bw", 8))
    return {name: value for name, value in given.items() if value is not None}


_CALIBRATIONS = (
    {"inputs"},
    {"forward_pass_callback"},
    {"forward_pass_callback", "forward_pass_callback_args"},
)


def calibration_of(*given: Any, **named: Any) -> tuple[Iterable[Any] | None, Callable[[Any], Any] | None]:
    """What ``compute_encodings`` was given: feeds, or a function of a session.

    Raises:
        TypeError: neither, both, or something else.
    """
    is_data = len(given) == 1 and isinstance(given[0], Iterable)
    names = ("inputs",) if is_data else ("forward_pass_callback", "forward_pass_callback_args")
    by_position = dict(zip(names, given, strict=False))
    found = by_position | named
    function, data = found.get("forward_pass_callback"), found.get("inputs")
    fits = set(found) in _CALIBRATIONS and len(found) == len(given) + len(named)
    if not fits or (data is None and not callable(function)):
        raise TypeError(
            "compute_encodings takes an iterable of feeds, or a function of a session with at most one more "
            "argument"
        )
    if "forward_pass_callback_args" not in found:
        return data, function
    warn_deprecated("compute_encodings with an argument for the function", "a function of the session", 4)
    assert function is not None
    return None, CallbackFunc(function, found["forward_pass_callback_args"])
