"""What the tasks of the demo share: sessions, interleaved timings, ONNX Runtime's own quantizer, errors."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

Feed = dict[str, np.ndarray]
Run = Callable[[Feed], Sequence[np.ndarray]]


class DemoError(Exception):
    """Something the user has to mend, in one sentence."""


class Task(Protocol):
    """A pretrained model, data to calibrate and to score it, and a metric between 0 and 1 (higher is better).

    Attributes:
        name: used in file names.
        model: the float model.
        metric: the name of the score.
        data: one line about the data.
    """

    name: str
    model: Path
    metric: str
    data: str

    def calibration(self) -> Iterator[Feed]:
        """Feeds to calibrate with; none of them is scored."""

    def score(self, run: Run) -> float:
        """The metric of a model that ``run`` executes."""

    def timing_feed(self) -> Feed:
        """One typical feed of batch size 1."""


def session(model: Path, threads: int = 0) -> onnxruntime.InferenceSession:
    """A CPU session; 0 threads means as many as there are cores."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def runner(model: Path) -> Run:
    """Executes ``model`` with ONNX Runtime; returns all outputs in order."""
    opened = session(model)
    return lambda feed: opened.run(None, feed)


def latencies(models: Sequence[Path], feed: Feed, seconds: float = 3.0) -> list[float]:
    """Median seconds per run of every model, one thread, in turns so that all see the same machine."""
    opened = [session(model, threads=1) for model in models]
    for each in opened:
        each.run(None, feed)
    times: list[list[float]] = [[] for _ in opened]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for each, record in zip(opened, times, strict=True):
            start = time.perf_counter()
            each.run(None, feed)
            record.append(time.perf_counter() - start)
    return [statistics.median(record) for record in times]


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Feeds as ONNX Runtime's quantizer wants them."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self.feeds, None)


def quantize_naively(model: Path, output: Path, feeds: Iterable[Feed]) -> None:
    """Quantizes all operators to int8 with ONNX Runtime's ``quantize_static``, per channel, min-max, QDQ."""
    logging.getLogger().setLevel(logging.ERROR)
    quantize_static(
        str(model),
        str(output),
        _Reader(feeds),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
    )
