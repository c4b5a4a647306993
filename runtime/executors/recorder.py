"""Statistics that were collected are kept, for several compilations and for later ones without data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from onnx import ModelProto

from qc.ir.errors import QcError
from qc.ir.executor import Executor, Feed, Observation, Request, Requests, Segments, asked_of

from ..data.load import Data
from ..protos.detach import ModelParts
from ..statistics.model import ModelStatistics, Recording
from ..statistics.tensor import TensorStatistics
from .delegating import DelegatingExecutor
from .fingerprint import model_fingerprint
from .observer import OnFeeds

Arrays = dict[str, np.ndarray]


class StatisticsAsked(QcError):
    """Ends a dry run where a pass asks for statistics. Whoever starts dry runs catches it."""


@dataclass
class Recorder(DelegatingExecutor):
    """An executor that keeps the statistics it collects, by model, tensor and observation.

    What was collected is not collected again. Before the first real run, :meth:`plan` takes note of what each
    of several compilations will ask for; the first of them then observes it all in one pass, and the others
    find what they need. Implements :class:`qc.ir.executor.Executor`.

    Attributes:
        inner: collects them.
        widens: whether a histogram is collected wherever the range of a whole tensor is asked for, so that
            every method can calibrate on what is recorded.
        recording: what was collected.
        passes: how many times all data was read so far; samples of it that passes hold do not count.
        is_planned: whether several compilations share what one pass over the data gives.
    """

    inner: Executor
    widens: bool = False
    recording: Recording = field(default_factory=Recording)
    passes: int = 0
    is_planned: bool = False
    _planning: bool = False
    _planned: dict[str, dict[Request, None]] = field(default_factory=dict)

    def plan(self, dry_run: Callable[[], object]) -> None:
        """Calls ``dry_run`` up to the first request for statistics, and takes note of that."""
        self._planning = self.is_planned = True
        try:
            dry_run()
        except StatisticsAsked:
            pass
        finally:
            self._planning = False

    def observe(
        self,
        model: ModelProto,
        requests: Requests,
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
        on_feeds: OnFeeds | None = None,
    ) -> dict[Request, TensorStatistics]:
        """Statistics of tensors, kept ones where there are; see the protocol."""
        key = model_fingerprint(*ModelParts.of(model, base_dir))
        asked = asked_of(requests)
        wanted = self._planned.setdefault(key, {})
        wanted |= dict.fromkeys(map(self._widened, asked))
        if self._planning:
            raise StatisticsAsked("a pass asks for statistics")
        missing: defaultdict[str, list[Observation]] = defaultdict(list)
        for name, observation in wanted:
            if self._known(key, (name, observation)) is None:
                missing[name].append(observation)
        if any(self._known(key, request) is None for request in asked):
            found = self.inner.observe(model, missing, data, base_dir=base_dir, on_feeds=on_feeds)
            feeds = found.feeds if isinstance(found, ModelStatistics) else ModelStatistics({}).feeds
            kept = cast("Mapping[Request, TensorStatistics]", found)
            self.recording = self.recording.plus(ModelStatistics(kept, feeds, key))
            self.passes += 1
        answers = ((request, self._known(key, request)) for request in asked)
        return {request: answer for request, answer in answers if answer is not None}

    def _known(self, model: str, request: Request) -> TensorStatistics | None:
        known = self.recording.of(model)
        return known.answer(request) if known is not None else None

    def _widened(self, request: Request) -> Request:
        name, observation = request
        return (name, Observation("histogram")) if self.widens and observation == Observation() else request

    def shapes(self, *given: Any, **named: Any) -> dict[str, tuple[int, ...]]:
        """Asks for shapes with ``inner``; for nothing where a later compilation will not have the data."""
        return {} if self.widens else super().shapes(*given, **named)

    def run(self, model: ModelProto, data: Iterable[Feed], *given: Any, **named: Any) -> Iterator[Arrays]:
        """Runs a model with ``inner``; nothing of it is kept."""
        if self._planning:
            raise StatisticsAsked("a pass runs the model")
        self.passes += isinstance(data, Data)
        return super().run(model, data, *given, **named)

    def segments(self, *given: Any, **named: Any) -> Segments:
        """Opens a model with ``inner``; nothing of it is kept."""
        if self._planning:
            raise StatisticsAsked("a pass runs the model")
        return super().segments(*given, **named)
