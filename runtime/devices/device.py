"""What qc asks of a runtime: to open a lowered model, and to tell what it makes of the ops."""

from __future__ import annotations

import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import onnxruntime as ort
from onnx import ModelProto

from qc.ir.base.extras import install_command
from qc.ir.base.fix_shape import fix_shape_options
from qc.ir.errors import ModelError, QcError
from qc.ir.executor import Feed

from ..data.inputs import InputInfo, check_fit, free_dimensions, model_inputs
from ..execution.executed import Execution
from ..sessions.runnable import Runnable

Options = Mapping[str, str]


class Device(Protocol):
    """A runtime, with what it runs on.

    Attributes:
        name: its name, as ``--on`` has it.
        title: what messages call it.
        provider: the provider of ONNX Runtime that targets name for it.
        package: the package of Python that it comes with; empty for ONNX Runtime, which comes with qc.
        extra: the extra of qc that installs the package.
        fixed_shapes: whether the lengths of all dimensions must be known.
        emulated: whether it is not the device itself that runs, so that its time says nothing.
    """

    name: str
    title: str
    provider: str
    package: str
    extra: str
    fixed_shapes: bool
    emulated: bool

    def __init__(self, options: Options) -> None:
        """``options`` are those of the runtime itself, in its own words; UsageError for unknown ones."""

    def open(self, model: ModelProto, *, base_dir: Path | None = None, threads: int = 1) -> Runnable:
        """Opens a model.

        Raises:
            ModelError: the runtime refuses the model; the sentence has its own reason.
        """

    def execution(
        self, model: ModelProto, feeds: Sequence[Feed] = (), *, base_dir: Path | None = None, threads: int = 1
    ) -> Execution:
        """What runs the ops of a model, measured on ``feeds``, the first of which is the warm-up.

        Raises:
            ModelError: the runtime cannot read the model at all.
        """


class DeviceModel(ABC):
    """A model that a device has opened; what differs is how it is run."""

    def __init__(self, model: ModelProto) -> None:
        self._inputs: tuple[InputInfo, ...] = model_inputs(model)
        self._outputs = [output.name for output in model.graph.output]

    @property
    def outputs(self) -> Sequence[str]:
        """The names of the outputs."""
        return self._outputs

    def run(self, feed: Feed) -> dict[str, Any]:
        """Runs the model once; arrays by the name of the output.

        Raises:
            DataError: the feed does not fit.
            ModelError: the device failed, or ended the process that it runs in.
        """
        check_fit(feed, self._inputs, "the feed")
        return dict(zip(self._outputs, self._results(feed), strict=True))

    @abstractmethod
    def _results(self, feed: Feed) -> Sequence[Any]:
        """The outputs of one run, in their order."""


def version_of(device: type[Device]) -> str | None:
    """The version of the package of a device; None if it is not installed."""
    if not device.package:
        return str(ort.__version__)
    try:
        return importlib.metadata.version(device.package)
    except importlib.metadata.PackageNotFoundError:
        return None


def require_installed(device: type[Device]) -> None:
    """Raises QcError, with the extra that installs it, if the package of a device is missing."""
    if version_of(device) is None:
        raise QcError(
            f"{device.name} needs the package '{device.package}'; install it by: "
            f"{install_command(device.extra)}"
        )


def require_fixed_shapes(model: ModelProto, name: str) -> None:
    """Raises ModelError for an input with a free dimension, for a device that takes none."""
    free = free_dimensions(model_inputs(model))
    if free:
        mend = fix_shape_options(free)
        first = {name: place for place, name in reversed(free.items())}
        named = (f"'{place}' is " + (f"'{one}'" if one != place else "free") for one, place in first.items())
        raise ModelError(
            f"{name} takes no free dimensions, and {', '.join(named)}; "
            f"compile the model with {mend}, or with other lengths"
        )
