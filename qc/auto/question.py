"""What a search is asked, as a value: everything that the verdict on a recipe depends on."""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime as ort

from qc.compiler import Compilation
from qc.ir.errors import UsageError
from qc.ir.executor import Feed
from qc.runtime import Data, DataFiles, Metric, load_data, parse_metric
from qc.runtime.data.python import named_function
from qc.runtime.devices.known import DEVICES, open_device, version_of
from qc.runtime.evaluation.judge import Labels
from qc.runtime.executors.fingerprint import feed_fingerprint, model_fingerprint
from qc.runtime.protos.detach import ModelParts

from .judging import Judge, MaxDrop

_LEAST_TO_HALVE = 8  # samples


@dataclass(frozen=True)
class Question:
    """A model, its data, and what is good enough.

    Attributes:
        compilation: the model, the data to calibrate on, the target; its pipeline and rules do not count.
        data: the samples to judge by, as for :func:`qc.runtime.load_data`.
        max_drop: how much may be lost.
        metric: what counts; None for agreement with the float model.
        labels: one for each sample, for a metric that is a function.
        on: the device that runs the models that are judged, by its name; None for ONNX Runtime.
        device_options: options of the device, as pairs.
    """

    compilation: Compilation
    data: object
    max_drop: MaxDrop
    metric: str | Metric | None = None
    labels: Labels | None = None
    on: str | None = None
    device_options: tuple[tuple[str, str], ...] = ()

    def on_unseen(self) -> Question | None:
        """The same on every second sample, judged by the others.

        None where other samples are given to judge by, or there are too few.
        """
        data = load_data(self.data, self.compilation.fed_inputs())
        if self.data is not self.compilation.data or data.is_read_once:
            return None
        if sum(1 for _ in islice(data, _LEAST_TO_HALVE)) < _LEAST_TO_HALVE:
            return None
        labels = None if self.labels is None else self.labels[1::2]
        fitted = replace(self.compilation, data=data.shard(0, 2))
        return replace(self, compilation=fitted, data=data.shard(1, 2), labels=labels)

    def judge(self) -> Judge:
        """Opens the float model.

        Raises:
            UsageError: there is no such metric.
            QcError: what :class:`Judge` raises.
        """
        metric, proto = self.metric, self.compilation.proto()
        if isinstance(metric, str):
            metric = parse_metric(metric, self.labels is not None)
        if metric is not None:
            metric.check(proto)
        return Judge(
            self.compilation.reference(),
            load_data(self.data, self.compilation.fed_inputs()),
            self.max_drop,
            metric,
            self.labels,
            None if self.on is None else open_device(self.on, dict(self.device_options)),
            base_dir=self.compilation.base_dir,
            threads=self.compilation.threads,
        )

    def packed(self, threads: int | None) -> bytes:
        """The question for another process that uses so many threads.

        Raises:
            UsageError: the metric or the target cannot be sent.
        """
        inputs = self.compilation.fed_inputs()
        calibration, data = (load_data(one, inputs) for one in (self.compilation.data, self.data))
        sent = _sendable(calibration)
        is_same = self.data is self.compilation.data or calibration.source is data.source
        judged = sent if is_same else _sendable(data)
        compilation = replace(self.compilation, data=sent, threads=threads, progress=None, instruments=())
        try:
            return pickle.dumps(replace(self, compilation=compilation, data=judged))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"trials cannot run in other processes: {error}; give the metric as 'file.py:function'"
            ) from error

    def digest(self) -> str | None:
        """What tells it from other questions; None where the metric is an object, which nobody can tell."""
        if isinstance(self.metric, Metric) and not self.metric.compares:
            return None
        compilation = self.compilation
        proto = compilation.proto()
        inputs = compilation.fed_inputs()
        labels = np.asarray(self.labels) if self.labels is not None else None
        parts = (
            *(version(name) for name in ("qc-onnx", "numpy")),
            ort.__version__,
            model_fingerprint(*ModelParts.of(proto, compilation.base_dir)),
            *(_feeds_digest(load_data(one, inputs)) for one in (compilation.data, self.data)),
            repr(compilation.chosen_target()),
            compilation.seed,
            (compilation.fix_shapes, compilation.fix_inputs),
            (self.on, self.device_options, version_of(DEVICES[self.on]) if self.on is not None else None),
            str(self.max_drop),
            _metric_text(self.metric),
            None if labels is None else feed_fingerprint({"labels": labels}),
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def _sendable(data: Data) -> DataFiles | list[Feed]:
    """Data as another process finds them, or all of them."""
    spec = data.source.spec
    return spec if spec is not None and data.share == (0, 1) else list(data)


def _feeds_digest(feeds: Iterable[Feed]) -> str:
    found = [feed_fingerprint(feed) for feed in feeds]
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _metric_text(metric: str | Metric | None) -> str:
    """The name of a metric, with the code of the file in which it is if it is one of the user's."""
    if metric is None or isinstance(metric, Metric) or ":" not in metric:
        return str(metric.name if isinstance(metric, Metric) else metric)
    code = inspect.getsourcefile(named_function(metric, "the metric", UsageError))
    return metric if code is None else f"{metric} {hashlib.sha256(Path(code).read_bytes()).hexdigest()}"
