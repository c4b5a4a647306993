"""One pass over the data for several compilations of the same model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import ModelProto

from qc.ir.errors import QcError
from qc.ir.executor import Executor, Feed, Observation, Statistics

from ..protos.detach import ModelParts
from .delegating import DelegatingExecutor
from .fingerprint import model_fingerprint
from .observer import OnFeeds


class StatisticsAsked(QcError):
    """Ends a dry run where a pass asks for statistics. Whoever starts dry runs catches it."""


class SharingExecutor(DelegatingExecutor):
    """An executor that keeps the statistics it collected, and hands them out again for the same model.

    Before the first real run, :meth:`plan` takes note of what each of several compilations will ask for; the
    first of them then observes it all in one pass, and the others find what they need. What was not planned
    is observed when it is asked for. Implements :class:`qc.ir.executor.Executor`.

    Attributes:
        passes: how many times data was read so far.
    """

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self._planning = False
        self._planned: dict[str, dict[str, Observation]] = {}
        self._known: dict[str, dict[str, tuple[Observation, Statistics]]] = {}
        self.passes = 0

    def plan(self, dry_run: Callable[[], object]) -> None:
        """Calls ``dry_run`` up to the first request for statistics, and takes note of that."""
        self._planning = True
        try:
            dry_run()
        except StatisticsAsked:
            pass
        finally:
            self._planning = False

    @property
    def planned_models(self) -> int:
        """On how many models statistics will be asked for, as far as was planned."""
        return len(self._planned)

    def observe(
        self,
        model: ModelProto,
        requests: Mapping[str, Observation],
        data: Iterable[Feed],
        *,
        base_dir: Path | None = None,
        on_feeds: OnFeeds | None = None,
    ) -> dict[str, Statistics]:
        """Statistics of tensors, kept ones where there are; see the protocol."""
        key = model_fingerprint(*ModelParts.of(model, base_dir))
        planned, known = self._planned.setdefault(key, {}), self._known.setdefault(key, {})
        if self._planning:
            planned.update({name: _both(request, planned.get(name)) for name, request in requests.items()})
            raise StatisticsAsked("a pass asks for statistics")
        if any(name not in known or not _covers(known[name][0], asked) for name, asked in requests.items()):
            wanted = planned | {name: _both(asked, planned.get(name)) for name, asked in requests.items()}
            self.passes += 1
            found = self.inner.observe(model, wanted, data, base_dir=base_dir, on_feeds=on_feeds)
            known.update({name: (request, found[name]) for name, request in wanted.items()})
        return {name: known[name][1] for name in requests}

    def run(
        self,
        model: ModelProto,
        data: Iterable[Feed],
        outputs: Sequence[str] | None = None,
        *,
        base_dir: Path | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Runs the model; nothing of it is kept. See the protocol."""
        if self._planning:
            raise StatisticsAsked("a pass runs the model")
        self.passes += 1
        return super().run(model, data, outputs, base_dir=base_dir)


def _covers(kept: Observation, asked: Observation) -> bool:
    return kept.axis == asked.axis and kept == _both(kept, asked)


def _both(request: Observation, other: Observation | None) -> Observation:
    """One observation in place of two; of different axes, the first."""
    if other is None or other.axis != request.axis:
        return request
    return replace(
        request,
        histogram=request.histogram or other.histogram,
        moments=request.moments or other.moments,
        gram=request.gram or other.gram,
    )
