"""OpenVINO as a device: its plugin for CPUs."""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from onnx import ModelProto

from qc.ir.base.files import temporary_folder
from qc.ir.base.underway import underway
from qc.ir.errors import ModelError, UsageError, nearest
from qc.ir.executor import Feed
from qc.ir.onnx.save import save_model

from ..execution.executed import ExecutedOp, Execution
from ..execution.profile import NodeTime
from ..protos.marks import marked_copy, marks_in
from ..protos.wiring import Node, all_nodes
from .device import DeviceModel, Options

# What OpenVINO's kernels are named after that compute on, or move, integers of 8 bits; some in small letters.
_INTEGER = ("_I8", "_i8")
# Nodes of its graph that compute nothing of the model.
_HELPERS = frozenset({"Const", "Input", "Output"})
_CHECK = re.compile(r"Check '.*' failed at \S+:\d+:")
_OF_THE_FRAME = (
    "Exception from",
    "FrontEnd API failed",
    "Model wasn't fully converted",
    "Summary:",
    "-- Conver",
)
_LONGEST = 400  # of a message, which can hold a whole graph


class OpenVino:
    """OpenVINO on the CPU. Options are its properties, such as ``INFERENCE_PRECISION_HINT=f32``."""

    name = "openvino"
    title = "OpenVINO"
    provider = "OpenVINOExecutionProvider"
    package = "openvino"
    extra = "openvino"
    fixed_shapes = False
    emulated = False

    def __init__(self, options: Options) -> None:
        known = _core().get_property("CPU", "SUPPORTED_PROPERTIES") if options else ()
        for name in options:
            if name not in known:
                raise UsageError(f"openvino has no device option '{name}'{nearest(name, list(known))}")
        self._options = options

    def open(self, model: ModelProto, *, base_dir: Path | None = None, threads: int = 1) -> OpenVinoModel:
        """See :class:`Device`."""
        return OpenVinoModel(model, base_dir, self._properties(threads))

    def execution(
        self, model: ModelProto, feeds: Sequence[Feed] = (), *, base_dir: Path | None = None, threads: int = 1
    ) -> Execution:
        """See :class:`Device`."""
        marked = marked_copy(model)
        opened = OpenVinoModel(marked, base_dir, {**self._properties(threads), "PERF_COUNT": True})
        times = _times(opened, feeds)
        nodes = list(all_nodes(model.graph))
        runners = _with_rounding(nodes, _runners(opened.kernels()))
        seconds = {time.name: time.seconds for time in times}
        ops = []
        for index, node in enumerate(nodes):
            if not node.rounds and node.op_type != "Constant":
                name, kernel = runners.get(index, ("", ""))
                integer = kernel.endswith(_INTEGER) if kernel else None
                ops.append(ExecutedOp(node, kernel, name, integer, seconds.get(name, 0.0)))
        return Execution(tuple(ops), tuple(times))

    def _properties(self, threads: int) -> dict[str, Any]:
        return {"INFERENCE_NUM_THREADS": threads, **self._options}


class OpenVinoModel(DeviceModel):
    """A model that OpenVINO has compiled.

    Args:
        model: the model; not changed.
        base_dir: the folder that its external data is relative to.
        properties: those of OpenVINO, by name.

    Raises:
        ModelError: OpenVINO cannot read or compile the model.
    """

    def __init__(self, model: ModelProto, base_dir: Path | None, properties: Mapping[str, Any]) -> None:
        super().__init__(model)
        core = _core()
        with temporary_folder() as folder, underway("opened a model", outer=True, runtime=OpenVino.title):
            path = folder / "model.onnx"
            save_model(model, path, base_dir)
            try:
                self._compiled = core.compile_model(core.read_model(str(path)), "CPU", dict(properties))
            except RuntimeError as error:
                raise ModelError(f"OpenVINO cannot open the model: {_plain(error)}") from error
        self._request = self._compiled.create_infer_request()

    def _results(self, feed: Feed) -> Sequence[Any]:
        try:
            with underway("ran a model", outer=True, runtime=OpenVino.title):
                self._request.infer({name: np.asarray(array) for name, array in feed.items()})
        except RuntimeError as error:
            raise ModelError(f"OpenVINO failed to run the model: {_plain(error)}") from error
        # The tensors are those of the request, which the next run fills again.
        count = len(self._outputs)
        return [np.array(self._request.get_output_tensor(index).data) for index in range(count)]

    def kernels(self) -> Iterator[tuple[str, str, str]]:
        """The nodes that OpenVINO runs: name, kernel, and the names of the nodes that it is made of."""
        for node in self._compiled.get_runtime_model().get_ops():
            told = node.get_rt_info()
            if told["layerType"].value not in _HELPERS:
                name, kernel = (
                    node.get_friendly_name(),
                    f"{told['layerType'].value} {told['primitiveType'].value}",
                )
                yield name, kernel, told["originalLayersNames"].value

    def node_seconds(self) -> Iterator[tuple[str, str, float]]:
        """Name, type and time of every node in the last run; only with the property ``PERF_COUNT``."""
        for one in self._request.get_profiling_info():
            yield one.node_name, one.node_type, one.real_time.total_seconds()


def _core() -> Any:
    """OpenVINO itself, which is imported when it is used."""
    return importlib.import_module("openvino").Core()


def _times(opened: OpenVinoModel, feeds: Sequence[Feed]) -> list[NodeTime]:
    """The time of every node, the median over the runs on all feeds but the first."""
    measured: dict[tuple[str, str], list[float]] = defaultdict(list)
    for index, feed in enumerate(feeds):
        opened.run(feed)
        for name, type, seconds in opened.node_seconds() if index else ():
            measured[name, type].append(seconds)
    return [NodeTime(name, type, median(taken)) for (name, type), taken in measured.items()]


def _runners(kernels: Iterable[tuple[str, str, str]]) -> dict[int, tuple[str, str]]:
    """The name and the kernel of the node that runs each op, by its place; of several the one in integers."""
    found: dict[int, tuple[str, str]] = {}
    for name, kernel, origins in kernels:
        for place in marks_in(origins):
            if place not in found or kernel.endswith(_INTEGER):
                found[place] = name, kernel
    return found


def _with_rounding(
    nodes: Sequence[Node], runners: Mapping[int, tuple[str, str]]
) -> Mapping[int, tuple[str, str]]:
    """The runners, and of ops that lost their names the runner of the op that rounds what they make."""
    rounding = {node.proto.input[0]: index for index, node in enumerate(nodes) if node.rounds}
    behind = {
        index: rounding.get(node.proto.output[0], index)
        for index, node in enumerate(nodes)
        if node.proto.output
    }
    return {index: runners[place] for index, place in behind.items() if place in runners} | dict(runners)


def _plain(error: Exception) -> str:
    """OpenVINO's message on one line, without the places in its source, and what may mend it."""
    lines = [_CHECK.sub("", line).strip() for line in str(error).splitlines()]
    said = " ".join(line for line in lines if line and not line.startswith(_OF_THE_FRAME))[:_LONGEST]
    is_free = any(word in said for word in ("dynamic", "static"))
    return f"{said}; --fix-shape and --fix-input settle lengths and branches" if is_free else said
