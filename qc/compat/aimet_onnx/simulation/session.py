"""Sessions of a simulation, which are ONNX Runtime's, and those of other models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto

from qc.ir.errors import listed, nearest
from qc.ir.executor import Requests
from qc.runtime import OrtExecutor, open_session, run_session, use_custom_ops
from qc.runtime.statistics.model import ModelStatistics

from ...missing import MissingAttributesError
from ...providers import Providers, device_of
from ..deprecation import warn_deprecated
from ..errors import ArgumentError, MissingOptionError, raised_as_in_aimet
from .quantized_model import Feed, QuantizedModel


@dataclass(frozen=True)
class LenientExecutor(OrtExecutor):
    """Leaves NaN and infinity out of what is observed, as AIMET does, and warns of them."""

    allow_nonfinite: bool = True

    def observe(
        self,
        model: ModelProto,
        requests: Requests,
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
        on_feeds: Callable[[int], None] | None = None,
    ) -> ModelStatistics:
        found = super().observe(model, requests, data, base_dir=base_dir, on_feeds=on_feeds)
        names = [f"'{name}'" for (name, _), statistics in found.items() if statistics.nonfinite]
        if names:
            text = f"NaN and infinite values are left out of the range of {listed(names, 3)}"
            warnings.warn(text, stacklevel=2)
        return found


class SimulationSession(ort.InferenceSession):  # type: ignore[misc]  # it has no types
    """Runs the model of a simulation as it is set at that moment.

    What ONNX Runtime's class keeps on an object, this one takes from the session that holds now.

    Args:
        current: opens ONNX Runtime's session, or gives the one that still holds.
        record: called with every feed, if given.
    """

    def __init__(
        self, current: Callable[[], ort.InferenceSession], record: Callable[[Feed], object] | None = None
    ) -> None:
        self._current = current
        self._record = record

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_current", "_record"):
            raise AttributeError(name)
        try:
            return getattr(self._current(), name)
        except AttributeError:
            raise MissingAttributesError(
                f"a session has no '{name}'; it has what an onnxruntime.InferenceSession has"
            ) from None

    @raised_as_in_aimet()
    def run(self, output_names: Sequence[str] | None, input_feed: Feed, run_options: Any = None) -> list[Any]:
        """Runs the model once.

        Args:
            output_names: the outputs that are wanted; None or empty for all.
            input_feed: an array for each input.
            run_options: not looked at.

        Returns:
            The arrays of the outputs, in the order of ``output_names``.

        Raises:
            DataError: an input is missing, unknown, or has the wrong dtype or shape.
            ModelError: ONNX Runtime failed; the sentence names the node.
        """
        if self._record is not None:
            self._record({name: np.array(array) for name, array in input_feed.items()})
        return run_session(self._current(), input_feed, output_names or None)

    def run_with_ort_values(
        self, output_names: Sequence[str], input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> Sequence[Any]:
        """Runs the model once on what ONNX Runtime holds."""
        if self._record is not None:
            self._record({name: value.numpy() for name, value in input_dict_ort_values.items()})
        return super().run_with_ort_values(output_names, input_dict_ort_values, run_options)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Runs the model once on what is bound; raises UsageError in calibration, which cannot see that."""
        if self._record is not None:
            raise ArgumentError("calibration does not see what is bound to a session; call run with a feed")
        super().run_with_iobinding(iobinding, run_options)


def OrtInferenceSession(  # a class in AIMET
    model: ModelProto | str,
    providers: Providers | None = None,
    session_options: ort.SessionOptions | None = None,
    path: str | None = None,
    save_as_external_data: bool = True,
) -> ort.InferenceSession:
    """ONNX Runtime's session of a model that may have qc's ops, such as a saved simulation.

    Args:
        providers: where it runs; see :func:`~qc.compat.providers.device_of`.
        session_options: what is set in them holds, but for libraries, which ``user_onnx_libs`` names.
        path, save_as_external_data: not needed; large weights are handed over in memory.
    """
    return open_session(model, settings=_set_in(session_options), provider=device_of(providers))


def _set_in(options: ort.SessionOptions | None) -> dict[str, Any]:
    """The attributes of session options that are not the defaults."""
    defaults = ort.SessionOptions()
    usual = {name: getattr(defaults, name) for name in dir(defaults) if not name.startswith("_")}
    set_there = {name: getattr(options or defaults, name) for name, one in usual.items() if not callable(one)}
    return {name: value for name, value in set_there.items() if value != usual[name]}


def checked_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Attributes of session options; raises MissingOptionError for one that there is not."""
    for name in settings or {}:
        if not hasattr(ort.SessionOptions, name):
            known = [one for one in dir(ort.SessionOptions) if not one.startswith("_")]
            raise MissingOptionError(f"onnxruntime.SessionOptions has no '{name}'{nearest(name, known)}")
    return dict(settings or {})


def build_session(
    model: ModelProto,
    providers: Providers | None = None,
    user_onnx_libs: Sequence[str] | None = None,
    path: str | None = None,
) -> ort.InferenceSession:
    """The same, with libraries of custom operators."""
    warn_deprecated("build_session", "aimet_onnx.utils.OrtInferenceSession")
    use_custom_ops(user_onnx_libs or ())
    return OrtInferenceSession(model, providers, path=path)


@contextmanager
def compute_encodings(sim: QuantizedModel) -> Iterator[QuantizedModel]:
    """Calibrates on whatever ``sim.session`` is fed inside of it; after an exception all is as it was."""
    if sim._feeds is not None:  # within another one, which calibrates
        yield sim
        return
    with recorded_feeds(sim) as feeds:
        yield sim
    sim._calibrate(feeds)


@contextmanager
def recorded_feeds(sim: QuantizedModel) -> Iterator[list[Feed]]:
    """Takes down what ``sim.session`` is fed inside of it, which runs the float model meanwhile."""
    feeds: list[Feed] = []
    sim._feeds = feeds
    try:
        yield feeds
    finally:
        sim._feeds = None
